/* What a rank computes and is sent, found from its own queries, against its contacts with every other rank; and what
 * ranks together may see of one, against what each of them sees. */
#include "support/cmocka.h"
#include "support/problems/case.h"

#include "core/load.h"
#include "core/rowset.h"

enum { SEEDS = 400 };

static void check_load(const ra_cut_problem *cut, int rank, uint64_t seed) {
    ra_load load, want = {0};
    assert_int_equal(ra_load_of(cut, rank, &load), RA_OK);
    for (int k = 0; k < cut->ranks; k++) {
        want.pairs += ra_pattern_pairs(cut, rank, k);
        for (int64_t i = 0; i < ra_head_sets(cut->problem) && k != rank; i++) {
            ra_pool pool = {0};
            ra_rowset needed;
            assert_int_equal(ra_rowset_needed(&pool, cut, rank, k, i, &needed), RA_OK);
            want.records += ra_rowset_rows(&needed) * ra_head_set(cut->problem, i).count;
            ra_pool_free(&pool);
        }
    }
    if (load.pairs != want.pairs || load.records != want.records)
        fail_msg("seed %d, %s, rank %d of %d: %lld pairs and %lld records, not %lld and %lld", (int)seed,
                 ra_layout_name(cut->layout), rank, cut->ranks, (long long)load.pairs, (long long)load.records,
                 (long long)want.pairs, (long long)want.records);
}

static void check_hints(const ra_cut_problem *cut, int from, int to, int owner) {
    for (int64_t i = 0; i < ra_head_sets(cut->problem); i++) {
        ra_pool pool = {0};
        ra_rowset hinted, needed, all = {0};
        assert_int_equal(ra_rowset_hinted(&pool, cut, from, to, owner, i, &hinted), RA_OK);
        for (int q = from; q < to; q++) {
            assert_int_equal(ra_rowset_needed(&pool, cut, q, owner, i, &needed), RA_OK);
            assert_true(ra_rowset_within(&needed, &hinted));
            assert_int_equal(ra_rowset_union(&pool, &all, &needed, &all), RA_OK);
        }
        if (cut->layout != RA_LAYOUT_STRIPED) assert_true(ra_rowset_within(&hinted, &all));
        ra_pool_free(&pool);
    }
}

static void test_random_problems(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        static test_case c;
        ra_problem p;
        case_make(&c, seed, RA_F64, 1e7);
        assert_int_equal(ra_problem_normalise(&c.problem, &p), RA_OK);
        for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_DOCUMENTS; layout++) {
            ra_cut_problem cut = {&p, (ra_layout)layout, 1 + (int)(seed % 11)};
            for (int rank = 0; rank < cut.ranks; rank++) {
                check_load(&cut, rank, seed);
                int from = (int)(seed / 11) % cut.ranks, to = from + 1 + (int)(seed / 3) % (cut.ranks - from);
                check_hints(&cut, from, to, rank);
            }
        }
    }
}

/* Stripes whose rows see fewer keys than there are ranks: as many sights as keys a row sees, not as rows. */
static ra_status count_sights(const ra_sight *sight, void *user) {
    (void)sight;
    ++*(int *)user;
    return RA_OK;
}

static void test_narrow_windows_on_stripes(void **state) {
    (void)state;
    ra_problem p = RA_PROBLEM_INIT, n;
    p.seq_q = (int64_t)1 << 40;
    p.heads_q = 1;
    p.dim = 8;
    p.window_left = 4;
    p.window_right = 1;
    assert_int_equal(ra_problem_normalise(&p, &n), RA_OK);
    ra_cut_problem cut = {&n, RA_LAYOUT_STRIPED, 16};
    ra_load load;
    int sights = 0;
    assert_int_equal(ra_pattern_sights(&cut, 7, (ra_head_range){0, 1}, count_sights, &sights), RA_OK);
    assert_int_equal(sights, 6);
    assert_int_equal(ra_load_of(&cut, 7, &load), RA_OK);
    assert_int_equal(load.pairs, 6 * (p.seq_q / 16));
    assert_int_equal(load.records, 5 * (p.seq_q / 16));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_problems),
        cmocka_unit_test(test_narrow_windows_on_stripes),
    };
    return cmocka_run_group_tests_name("load", tests, NULL, NULL);
}
