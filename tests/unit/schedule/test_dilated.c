/* What dilated problems send: exactly the rows that are needed, counted here by brute force. */
#include "support/cmocka.h"
#include "support/problems/dilated.h"
#include "support/rng.h"

#include "schedule/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8 };

/* Rows times key/value heads that all ranks send in a forward pass; per rank where sent is not NULL. */
static int64_t records_sent(const ra_cut_problem *cut, ra_strategy strategy, int64_t *sent) {
    int64_t total = 0, record = ra_record_elements(cut->problem) * (int64_t)ra_dtype_bytes(cut->problem->dtype);
    for (int r = 0; r < cut->ranks; r++) {
        ra_pool pool = {0};
        ra_schedule schedule;
        int64_t bytes, messages;
        assert_int_equal(ra_schedule_make(&pool, cut, strategy, RA_FORWARD, r, &schedule), RA_OK);
        ra_schedule_traffic(cut->problem, &schedule, &bytes, &messages);
        assert_int_equal(bytes % record, 0);
        if (sent) sent[r] = bytes / record;
        total += bytes / record;
        ra_pool_free(&pool);
    }
    return total;
}

/* ---- brute force ------------------------------------------------------------------------------------------------- */

/* The definition of a pair, by position: see docs/dilated.md. One document, equal lengths. */
static int keeps(const ra_problem *p, int64_t h, int64_t i, int64_t j) {
    if (p->causal && j > i) return 0;
    for (int64_t b = 0; b < p->branches; b++) {
        int64_t w = p->dilated[b].segment, r = p->dilated[b].rate, o = h % r;
        if (i / w == j / w && i % w % r == o && j % w % r == o) return 1;
    }
    return 0;
}

/* Rows of other ranks that some query of a rank sees, over ranks and heads (heads_kv = heads_q). */
static int64_t brute_force(const ra_cut_problem *cut) {
    const ra_problem *p = cut->problem;
    int64_t total = 0, n = p->seq_q, row;
    int *rank_of = malloc((size_t)n * sizeof *rank_of);
    for (int64_t i = 0; i < n; i++) ra_shard_locate(cut->layout, n, cut->ranks, i, &rank_of[i], &row);
    for (int64_t h = 0; h < p->heads_q; h++)
        for (int64_t j = 0; j < n; j++) {
            int needed[MOST_RANKS] = {0};
            for (int64_t i = 0; i < n; i++)
                if (rank_of[i] != rank_of[j] && keeps(p, h, i, j)) needed[rank_of[i]] = 1;
            for (int r = 0; r < cut->ranks; r++) total += needed[r];
        }
    free(rank_of);
    return total;
}

static void test_pairwise_sends_the_union_exactly(void **state) {
    (void)state;
    rng r = {77};
    for (int i = 0; i < 120; i++) {
        ra_branch branches[4];
        int64_t count = rng_between(&r, 1, 4), n = rng_between(&r, 1, 180);
        for (int64_t b = 0; b < count; b++) branches[b] = (ra_branch){rng_between(&r, 1, 200), rng_between(&r, 1, 12)};
        ra_problem p = dilated_problem(n, rng_between(&r, 1, 5), rng_one_in(&r, 2), branches, count);
        ra_cut_problem cut = {&p, (ra_layout)rng_between(&r, RA_LAYOUT_CONTIGUOUS, RA_LAYOUT_DOCUMENTS),
                              (int)rng_between(&r, 1, MOST_RANKS)};
        int64_t want = brute_force(&cut), ring = records_sent(&cut, RA_STRATEGY_RING, NULL);
        assert_int_equal(records_sent(&cut, RA_STRATEGY_PAIRWISE, NULL), want);
        assert_true(ring >= want && ring <= want * (cut.ranks > 1 ? cut.ranks - 1 : 1));
    }
}

static void test_segments_inside_shards_send_nothing(void **state) {
    (void)state;
    static const ra_branch inside[] = {{64, 1}, {128, 3}, {256, 7}};
    ra_problem p = dilated_problem(2048, 6, 1, inside, 3);
    ra_cut_problem cut = {&p, RA_LAYOUT_CONTIGUOUS, 8};
    assert_int_equal(records_sent(&cut, RA_STRATEGY_RING, NULL), 0);
    assert_int_equal(records_sent(&cut, RA_STRATEGY_PAIRWISE, NULL), 0);
}

/* ---- the figures ------------------------------------------------------------------------------------------------- */

static void test_figures(void **state) {
    (void)state;
    static const ra_branch branches[] = {{2048, 1}, {4096, 2}, {8192, 4}, {16384, 6}, {32768, 12}};
    double alone = 0;
    for (int b = 0; b < 5; b++) {
        ra_problem p = dilated_problem(32768, 12, 0, &branches[b], 1);
        ra_cut_problem cut = {&p, RA_LAYOUT_CONTIGUOUS, 8};
        alone += (double)records_sent(&cut, RA_STRATEGY_PAIRWISE, NULL) / (8 * 12);
    }
    ra_problem all = dilated_problem(32768, 12, 0, branches, 5), dense = dilated_problem(32768, 12, 0, NULL, 0);
    ra_cut_problem cut = {&all, RA_LAYOUT_CONTIGUOUS, 8}, dense_cut = {&dense, RA_LAYOUT_CONTIGUOUS, 8};
    double together = (double)records_sent(&cut, RA_STRATEGY_PAIRWISE, NULL) / (8 * 12);
    double whole = (double)records_sent(&dense_cut, RA_STRATEGY_RING, NULL) / (8 * 12);
    printf("rows per head and rank: each branch alone %.1f, union %.1f, dense ring %.1f\n", alone, together, whole);
    assert_true(fabs(alone - 5461.3) < 0.05);
    assert_true(fabs(together - 4437.3) < 0.05);
    assert_true(whole == 28672);
}

/* (w - L) / r rows per head, in groups of w / L ranks; half of that when causal. */
static void test_one_branch_across_shards(void **state) {
    (void)state;
    static const ra_branch branch = {4096, 4};
    ra_problem full = dilated_problem(8192, 4, 0, &branch, 1), causal = dilated_problem(8192, 4, 1, &branch, 1);
    ra_cut_problem cut = {&full, RA_LAYOUT_CONTIGUOUS, 8};
    int64_t sent[8];
    assert_int_equal(records_sent(&cut, RA_STRATEGY_PAIRWISE, sent), 8 * 4 * (4096 - 1024) / 4);
    for (int r = 0; r < 8; r++) assert_int_equal(sent[r], 4 * (4096 - 1024) / 4);
    cut.problem = &causal;
    assert_int_equal(records_sent(&cut, RA_STRATEGY_PAIRWISE, NULL), 8 * 4 * (4096 - 1024) / 4 / 2);
}

/* A balanced layout is found for causal work of long branches. */
static void test_auto_balances(void **state) {
    (void)state;
    static const ra_branch branches[] = {{2048, 1}, {16384, 8}, {131072, 64}};
    ra_problem p = dilated_problem(131072, 4, 1, branches, 3);
    ra_layout layout;
    int64_t total = 0, most = 0;
    assert_int_equal(ra_layout_resolve(&p, NULL, 8, &layout), RA_OK);
    for (int r = 0; r < 8; r++) {
        ra_options o = RA_OPTIONS_INIT;
        ra_plan_info info = RA_PLAN_INFO_INIT;
        o.layout = layout;
        assert_int_equal(ra_predict(&p, &o, 8, r, &info), RA_OK);
        total += info.pairs;
        if (info.pairs > most) most = info.pairs;
    }
    assert_true((double)most * 8 / (double)total <= 1.05);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairwise_sends_the_union_exactly),
        cmocka_unit_test(test_segments_inside_shards_send_nothing),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_one_branch_across_shards),
        cmocka_unit_test(test_auto_balances),
    };
    return cmocka_run_group_tests_name("dilated", tests, NULL, NULL);
}
