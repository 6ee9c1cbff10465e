/* The last hop of every row, found by arithmetic, against what each rank needs. */
#include "support/cmocka.h"
#include "support/problems/case.h"

#include "core/reach.h"
#include "core/rowset.h"

enum { SEEDS = 600, MOST_ROWS = 4096 };

typedef struct row_hops {
    int hop[MOST_ROWS]; /* by row; 0: no other rank sees it */
    int64_t next;       /* runs come in rising order: no later one has a row before this one */
} row_hops;

static ra_status mark(const ra_reach *reach, void *user) {
    row_hops *got = user;
    assert_true(reach->hop >= 1 && reach->rows.stride == 1 && reach->rows.count >= 1);
    assert_true(reach->rows.first >= got->next && reach->rows.first + reach->rows.count <= MOST_ROWS);
    for (int64_t i = 0; i < reach->rows.count; i++) got->hop[ra_span_at(reach->rows, i)] = reach->hop;
    got->next = reach->rows.first + reach->rows.count;
    return RA_OK;
}

static void find_by_looking(const ra_cut_problem *cut, int owner, row_hops *want) {
    ra_pool pool = {0};
    for (int hop = 1; hop < cut->ranks; hop++) {
        ra_rowset needed;
        assert_int_equal(ra_rowset_needed(&pool, cut, (owner + hop) % cut->ranks, owner, 0, &needed), RA_OK);
        for (int64_t i = 0; i < needed.count; i++)
            for (int64_t j = 0; j < needed.spans[i].count; j++) want->hop[ra_span_at(needed.spans[i], j)] = hop;
    }
    ra_pool_free(&pool);
}

static void check_owner(const ra_cut_problem *cut, int owner, uint64_t seed) {
    static row_hops got, want;
    got = want = (row_hops){0};
    find_by_looking(cut, owner, &want);
    assert_int_equal(ra_reach_of(cut, owner, mark, &got), RA_OK);
    for (int64_t row = 0; row < MOST_ROWS; row++)
        if (got.hop[row] != want.hop[row])
            fail_msg("seed %d, %s, owner %d of %d, row %lld: the last hop is %d, not %d", (int)seed,
                     ra_layout_name(cut->layout), owner, cut->ranks, (long long)row, want.hop[row], got.hop[row]);
}

/* More ranks than a document has positions in every third problem: most of its runs are empty there. */
static void test_random_problems(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        static test_case c;
        ra_problem p;
        case_make(&c, seed, RA_F64, 1e6);
        c.problem.branches = 0;
        c.problem.dilated = NULL;
        assert_int_equal(ra_problem_normalise(&c.problem, &p), RA_OK);
        assert_true(p.seq_k <= MOST_ROWS);
        for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_DOCUMENTS; layout++) {
            ra_cut_problem cut = {&p, (ra_layout)layout, 1 + (int)(seed % (seed % 3 ? 11 : 37))};
            for (int owner = 0; owner < cut.ranks; owner++) check_owner(&cut, owner, seed);
        }
    }
}

static ra_status count(const ra_reach *reach, void *user) {
    (void)reach;
    ++*(int *)user;
    return RA_OK;
}

/* However long the sequence, its rows are taken together. */
static void test_cost_does_not_grow_with_rows(void **state) {
    (void)state;
    ra_problem p = RA_PROBLEM_INIT, n;
    p.seq_q = (int64_t)1 << 40;
    p.heads_q = 1;
    p.dim = 8;
    p.window_left = 4;
    p.window_right = 1;
    assert_int_equal(ra_problem_normalise(&p, &n), RA_OK);
    for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_DOCUMENTS; layout++) {
        ra_cut_problem cut = {&n, (ra_layout)layout, 16};
        int runs = 0;
        assert_int_equal(ra_reach_of(&cut, 7, count, &runs), RA_OK);
        assert_in_range(runs, 1, 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_problems),
        cmocka_unit_test(test_cost_does_not_grow_with_rows),
    };
    return cmocka_run_group_tests_name("reach", tests, NULL, NULL);
}
