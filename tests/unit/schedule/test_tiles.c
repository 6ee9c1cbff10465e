/* Tiles of keys that lie in slots: of dilated problems, whose rows lie between each other there. */
#include "support/cmocka.h"
#include "support/problems/dilated.h"
#include "support/rng.h"
#include "support/schedules/coverage.h"

#include <stdio.h>

enum { MOST_RANKS = 3 };

typedef struct tile_kinds {
    int64_t all, indexed;
    int64_t spread; /* whose keys are further apart in the sequence than its queries */
    int64_t keys;   /* of slots, over all tiles */
} tile_kinds;

static void count_tiles(const ra_compute *c, tile_kinds *kinds) {
    if (c->kv_slot == RA_OWN) return;
    for (int64_t i = 0; i < c->tiles.tile_count; i++) {
        const ra_tile *t = &c->tiles.tiles[i];
        kinds->all++;
        kinds->indexed += t->k_index != NULL;
        kinds->spread += t->positions.key_stride > t->positions.query_stride;
        kinds->keys += t->k_rows.count;
    }
}

static tile_kinds kinds_of(const ra_cut_problem *cut, const ra_schedule *schedules) {
    tile_kinds kinds = {0};
    for (int r = 0; r < cut->ranks; r++)
        for (int s = 0; s < schedules[r].step_count; s++)
            for (int64_t i = 0; i < schedules[r].steps[s].compute_count; i++)
                count_tiles(&schedules[r].steps[s].computes[i], &kinds);
    return kinds;
}

/* Rates of which some divide others, as models have them, and others do not. */
static ra_branch random_branch(rng *r) {
    static const int64_t rates[] = {2, 3, 4, 4, 8, 8};
    return (ra_branch){rng_between(r, 1000, 2000), rates[rng_between(r, 0, 5)]};
}

/* Random branches that are long enough for tiles of keys that lie apart: every pair is computed once, at its own
 * positions. */
static void test_random_branches(void **state) {
    (void)state;
    tile_kinds all = {0};
    for (uint64_t seed = 1; seed <= 24; seed++) {
        rng r = {seed};
        ra_branch branches[4];
        int64_t count = rng_between(&r, 2, 4);
        for (int64_t b = 0; b < count; b++) branches[b] = random_branch(&r);
        ra_problem p = dilated_problem(rng_between(&r, 1000, 2000), 1, rng_one_in(&r, 3), branches, count);
        ra_cut_problem cut = {&p, (ra_layout)(1 + seed % RA_LAYOUT_DOCUMENTS), (int)rng_between(&r, 2, MOST_RANKS)};
        for (int i = 0; i < 2; i++) {
            ra_pool pool = {0};
            ra_schedule schedules[MOST_RANKS];
            schedules_make(&pool, &cut, i ? RA_STRATEGY_PAIRWISE : RA_STRATEGY_RING, RA_BACKWARD, schedules);
            if (ra_schedule_check(&p, schedules, cut.ranks) != RA_OK)
                fail_msg("seed %d: %s", (int)seed, ra_last_error());
            coverage_check_pairs(&cut, schedules);
            tile_kinds kinds = kinds_of(&cut, schedules);
            all.indexed += kinds.indexed;
            all.spread += kinds.spread;
            ra_pool_free(&pool);
        }
    }
    printf("%d tiles of keys that lie apart, %d with an index\n", (int)all.spread, (int)all.indexed);
    assert_true(all.spread > 50 && all.indexed > 50);
}

/* Stripes under a causal mask: pairs are masked in contacts whose keys have gaps between them in the slot, and these
 * keep an index. */
static void test_masked_keys_with_gaps(void **state) {
    (void)state;
    static const ra_branch branches[] = {{256, 1}, {512, 2}, {1024, 4}};
    ra_problem p = dilated_problem(2048, 2, 1, branches, 3);
    ra_cut_problem cut = {&p, RA_LAYOUT_STRIPED, 4};
    ra_pool pool = {0};
    ra_schedule schedules[4];
    schedules_make(&pool, &cut, RA_STRATEGY_RING, RA_FORWARD, schedules);
    assert_true(kinds_of(&cut, schedules).indexed > 0);
    coverage_check_pairs(&cut, schedules);
    ra_pool_free(&pool);
}

/* Where a contact has no masked pair its keys are a few spans, however its rows lie in the slot. */
static void test_longnet_has_no_index(void **state) {
    (void)state;
    static const ra_branch fours[] = {{2048, 1}, {8192, 4}, {16384, 16}};
    static const ra_branch twelve[] = {{2048, 1}, {4096, 2}, {8192, 4}, {16384, 6}, {32768, 12}};
    const struct {
        const ra_branch *branches;
        int64_t count, seq;
    } problems[] = {{fours, 3, 16384}, {twelve, 5, 32768}};
    for (int n = 0; n < 2; n++)
        for (int causal = 0; causal < 2; causal++)
            for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_ZIGZAG; layout++)
                for (int i = 0; i < 2; i++) {
                    ra_problem p =
                        dilated_problem(problems[n].seq, 12, causal, problems[n].branches, problems[n].count);
                    ra_cut_problem cut = {&p, (ra_layout)layout, 4};
                    ra_pool pool = {0};
                    ra_schedule schedules[4];
                    schedules_make(&pool, &cut, i ? RA_STRATEGY_PAIRWISE : RA_STRATEGY_RING, RA_FORWARD, schedules);
                    tile_kinds kinds = kinds_of(&cut, schedules);
                    assert_int_equal(kinds.indexed, 0);
                    assert_true(kinds.keys >= 128 * kinds.all);
                    ra_pool_free(&pool);
                }
}

/* Segments that a rate does not divide: rows repeat themselves from segment to segment too, but a segment's keys stay
 * one span. */
static void test_short_segments_stay_spans(void **state) {
    (void)state;
    static const ra_branch one[] = {{1024, 6}}, two[] = {{1024, 6}, {4096, 12}}, odd[] = {{200, 2}, {200, 3}};
    const struct {
        const ra_branch *branches;
        int64_t count;
        int ranks;
    } problems[] = {{one, 1, 8}, {two, 2, 8}, {odd, 2, 2}};
    for (int n = 0; n < 3; n++)
        for (int i = 0; i < 2; i++) {
            ra_problem p = dilated_problem(1 << 15, 2, 0, problems[n].branches, problems[n].count);
            ra_cut_problem cut = {&p, RA_LAYOUT_STRIPED, problems[n].ranks};
            ra_pool pool = {0};
            ra_schedule schedules[8];
            schedules_make(&pool, &cut, i ? RA_STRATEGY_PAIRWISE : RA_STRATEGY_RING, RA_FORWARD, schedules);
            tile_kinds kinds = kinds_of(&cut, schedules);
            assert_true(kinds.all > 0);
            assert_int_equal(kinds.indexed, 0);
            ra_pool_free(&pool);
        }
}

static ra_status count_contact(const ra_contact *contact, void *user) {
    (void)contact;
    ++*(int64_t *)user;
    return RA_OK;
}

/* Contacts of all ranks with keys of others. */
static int64_t count_contacts(const ra_cut_problem *cut) {
    int64_t count = 0;
    for (int q = 0; q < cut->ranks; q++)
        for (int k = 0; k < cut->ranks; k++)
            if (q != k) assert_int_equal(ra_pattern_contacts(cut, q, k, count_contact, &count), RA_OK);
    return count;
}

/* Documents whose lengths repeat themselves are no dilation: the keys of each contact are a run, pairwise a tile. */
static void test_documents_that_repeat(void **state) {
    (void)state;
    int64_t tiles = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        rng r = {seed};
        int64_t starts[65] = {0}, lengths[3];
        int kinds = (int)rng_between(&r, 1, 3), count = (int)rng_between(&r, 2, 64);
        for (int i = 0; i < kinds; i++) lengths[i] = rng_between(&r, 1, 12);
        for (int i = 0; i < count; i++) starts[i + 1] = starts[i] + lengths[i % kinds];
        ra_problem p = RA_PROBLEM_INIT, normal;
        p.seq_q = starts[count];
        p.heads_q = 2;
        p.dim = 8;
        p.causal = rng_one_in(&r, 2);
        p.documents = count;
        p.cu_seqlens_q = starts;
        assert_int_equal(ra_problem_normalise(&p, &normal), RA_OK);
        ra_cut_problem cut = {&normal, (ra_layout)rng_between(&r, RA_LAYOUT_CONTIGUOUS, RA_LAYOUT_DOCUMENTS),
                              (int)rng_between(&r, 2, MOST_RANKS)};
        for (int i = 0; i < 2; i++) {
            ra_pool pool = {0};
            ra_schedule schedules[MOST_RANKS];
            schedules_make(&pool, &cut, i ? RA_STRATEGY_PAIRWISE : RA_STRATEGY_RING, RA_BACKWARD, schedules);
            coverage_check_pairs(&cut, schedules);
            tile_kinds found = kinds_of(&cut, schedules);
            assert_true(found.indexed == 0 && found.spread == 0);
            if (i == 1) assert_int_equal(found.all, count_contacts(&cut));
            tiles += found.all;
            ra_pool_free(&pool);
        }
    }
    assert_true(tiles > 5000);
}

/* Dilation inside many short documents beside a few long ones: each contact with another rank's keys stays a span. */
static void test_dilated_documents(void **state) {
    (void)state;
    enum { SHORT = 40, LONG = 4 };
    static const ra_branch branches[] = {{2048, 5}};
    int64_t starts[SHORT + LONG + 1] = {0};
    for (int i = 0; i < SHORT + LONG; i++) starts[i + 1] = starts[i] + (i < SHORT ? 128 : 16384);
    ra_problem p = dilated_problem(starts[SHORT + LONG], 2, 0, branches, 1);
    p.documents = SHORT + LONG;
    p.cu_seqlens_q = p.cu_seqlens_k = starts;
    for (int layout = RA_LAYOUT_STRIPED; layout <= RA_LAYOUT_DOCUMENTS; layout++)
        for (int i = 0; i < 2; i++) {
            ra_cut_problem cut = {&p, (ra_layout)layout, 2};
            ra_pool pool = {0};
            ra_schedule schedules[2];
            schedules_make(&pool, &cut, i ? RA_STRATEGY_PAIRWISE : RA_STRATEGY_RING, RA_FORWARD, schedules);
            tile_kinds kinds = kinds_of(&cut, schedules);
            assert_true(kinds.all > 0);
            assert_int_equal(kinds.indexed, 0);
            ra_pool_free(&pool);
        }
}

static int64_t planned_pairs(const ra_cut_problem *cut, ra_strategy strategy) {
    int64_t pairs = 0;
    ra_pool pool = {0};
    ra_schedule schedules[MOST_RANKS];
    schedules_make(&pool, cut, strategy, RA_BACKWARD, schedules);
    for (int r = 0; r < cut->ranks; r++) pairs += schedules[r].pairs;
    ra_pool_free(&pool);
    return pairs;
}

/* Of a long sequence a few rows are kept, so far apart that the product of two rates is beyond int64. */
static void test_rows_far_apart(void **state) {
    (void)state;
    const int64_t seq = (int64_t)1 << 37, rate = (int64_t)1 << 33;
    const ra_branch below[] = {{seq, rate - 1}, {seq, rate}}, above[] = {{seq, rate}, {seq, rate + 1}};
    for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_DOCUMENTS; layout++)
        for (int strategy = RA_STRATEGY_RING; strategy <= RA_STRATEGY_PASSQ; strategy++)
            for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
                ra_problem p = dilated_problem(seq, 1, 0, below, 2), q = dilated_problem(seq, 1, 0, above, 2);
                ra_cut_problem cut_p = {&p, (ra_layout)layout, ranks}, cut_q = {&q, (ra_layout)layout, ranks};
                assert_int_equal(planned_pairs(&cut_p, (ra_strategy)strategy), 17 * 17 + 16 * 16);
                assert_int_equal(planned_pairs(&cut_q, (ra_strategy)strategy), 16 * 16 + 16 * 16);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_branches),       cmocka_unit_test(test_masked_keys_with_gaps),
        cmocka_unit_test(test_longnet_has_no_index),  cmocka_unit_test(test_short_segments_stay_spans),
        cmocka_unit_test(test_documents_that_repeat), cmocka_unit_test(test_dilated_documents),
        cmocka_unit_test(test_rows_far_apart),
    };
    return cmocka_run_group_tests_name("tiles", tests, NULL, NULL);
}
