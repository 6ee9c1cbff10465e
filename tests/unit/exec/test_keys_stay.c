/* Passes in which keys stay, of random problems and ranks: the leader computes all pairs once, each tile has rows of
 * the ranks that it says, and no two groups have a row of the results in common. */
#include "support/cmocka.h"
#include "support/problems/case.h"
#include "support/queued/queued.h"
#include "support/rng.h"

#include "core/shard.h"
#include "exec/keys_stay.h"
#include "plan/predict.h"

#include <stdlib.h>

enum { CASES = 400 };

/* The one compute, which is in the one step; NULL: it is another rank's. */
static const ra_compute *only_compute(const ra_schedule *s) {
    assert_int_equal(s->step_count, 1);
    assert_int_equal(s->steps[0].compute_count, s->rank == RA_LEADER);
    return s->steps[0].computes;
}

static int64_t position_of(const ra_setup *setup, int queries, int rank, int64_t row) {
    const ra_problem *p = &setup->problem;
    ra_sequence sequence = {queries ? p->seq_q : p->seq_k, p->documents, queries ? p->cu_seqlens_q : p->cu_seqlens_k};
    return ra_sequence_position(&sequence, setup->layout, setup->ranks, rank, row);
}

static void check_tile(const ra_setup *setup, const ra_tile *t) {
    const ra_positions *at = &t->positions;
    assert_true(t->queries >= 0 && t->queries < setup->ranks && t->part >= 0 && t->part < setup->ranks && !t->k_index);
    int64_t rows = ra_shard_of(setup->layout, setup->problem.seq_q, setup->ranks, t->queries).rows;
    for (int64_t a = 0; a < t->q_rows.count; a++) {
        int64_t row = ra_span_at(t->q_rows, a);
        assert_true(row >= 0 && row < rows);
        assert_int_equal(position_of(setup, 1, t->queries, row), at->query + a * at->query_stride);
    }
    for (int64_t b = 0; b < t->k_rows.count; b++)
        assert_int_equal(position_of(setup, 0, t->part, ra_span_at(t->k_rows, b)), at->key + b * at->key_stride);
}

/* Rows of O or dQ, over ranks and heads, that groups write to: each once. */
static void check_groups(const ra_setup *setup, const ra_tile_list *list) {
    int64_t heads = setup->problem.heads_q, most = setup->problem.seq_q;
    unsigned char *seen = calloc((size_t)(setup->ranks * heads * (most + 1)), 1);
    assert_non_null(seen);
    for (int64_t g = 0; g < list->group_count; g++) {
        const ra_tile *first = &list->tiles[list->groups[g].first];
        for (int64_t i = 0; i < list->groups[g].count; i++) {
            assert_int_equal(first[i].queries, first->queries);
            assert_true(ra_span_same(first[i].q_rows, first->q_rows) && ra_span_same(first[i].heads, first->heads));
        }
        for (int64_t h = 0; h < first->heads.count; h++)
            for (int64_t a = 0; a < first->q_rows.count; a++) {
                int64_t row = (first->queries * heads + ra_span_at(first->heads, h)) * most;
                assert_int_equal(seen[row + ra_span_at(first->q_rows, a)]++, 0);
            }
    }
    free(seen);
}

/* The pairs that the rank computes in that pass, where keys stay. */
static int64_t check_pass(const ra_setup *setup, const ra_schedule *s, ra_pass pass) {
    int64_t pairs = 0;
    const ra_compute *compute = only_compute(s);
    assert_int_equal(s->pass, pass);
    for (int64_t i = 0; compute && i < compute->tiles.tile_count; i++) {
        const ra_tile *t = &compute->tiles.tiles[i];
        check_tile(setup, t);
        pairs += ra_tile_pairs(t) * t->heads.count * setup->problem.batch;
    }
    if (compute) check_groups(setup, &compute->tiles);
    assert_int_equal(pairs, s->pairs);
    return pairs;
}

/* By pass. */
typedef struct staying {
    int stays[2];
    int64_t more[2]; /* pairs that the rank computes, less those of the planned forward pass: none over all ranks */
} staying;

static staying check_rank(const test_case *c, ra_seat seat) {
    ra_pool pool = {0};
    ra_prediction p = {0};
    ra_staying s;
    staying found = {{0}, {0}};
    if (ra_setup_make(&c->problem, &c->options, seat, &p.setup) != RA_OK) fail_msg("%s", ra_last_error());
    assert_int_equal(ra_prediction_make(&pool, &p), RA_OK);
    ra_keys_stay(&pool, &p, &s);
    for (int pass = RA_FORWARD; pass <= RA_BACKWARD; pass++) {
        found.stays[pass] = s.can[pass];
        if (s.can[pass]) found.more[pass] = check_pass(&p.setup, &s.passes[pass], (ra_pass)pass) - p.forward.pairs;
    }
    ra_pool_free(&pool);
    return found;
}

/* All ranks'. */
static staying check_ranks(const test_case *c, int ranks) {
    staying all = {{1, 1}, {0}};
    for (int rank = 0; rank < ranks; rank++) {
        staying one = check_rank(c, (ra_seat){rank, ranks, ranks, ranks, 1});
        for (int pass = 0; pass < 2; pass++) all.stays[pass] &= one.stays[pass], all.more[pass] += one.more[pass];
    }
    for (int pass = 0; pass < 2; pass++)
        if (all.stays[pass]) assert_int_equal(all.more[pass], 0);
    return all;
}

static void test_random_problems(void **state) {
    (void)state;
    int counts[2] = {0};
    queued_device *queued = queued_create((queued_habits){.seed = 1});
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        static test_case c;
        rng r = {seed};
        int ranks = (int)rng_between(&r, 2, 6);
        case_make(&c, seed, RA_F32, 1e6);
        if (seed % 2) c.problem.branches = 0, c.problem.window_left = c.problem.window_right = -1;
        c.options.backend = queued_backend(queued), c.options.kernel = NULL, c.options.backward = seed % 8 != 1;
        c.options.strategy = rng_one_in(&r, 2) ? RA_STRATEGY_RING : RA_STRATEGY_ALLGATHER;
        staying all = check_ranks(&c, ranks);
        assert_true(c.options.backward ? all.stays[RA_FORWARD] >= all.stays[RA_BACKWARD] : !all.stays[RA_BACKWARD]);
        for (int pass = 0; pass < 2; pass++) counts[pass] += all.stays[pass];
    }
    print_message("%d and %d of %d problems\n", counts[RA_FORWARD], counts[RA_BACKWARD], CASES);
    assert_true(counts[RA_BACKWARD] > CASES / 20 && counts[RA_FORWARD] > counts[RA_BACKWARD]);
    queued_destroy(queued);
}

/* Long enough for queries to be split where they lie among each other. */
static void test_stripes(void **state) {
    (void)state;
    queued_device *queued = queued_create((queued_habits){.seed = 1});
    for (int64_t tokens = 3998; tokens < 4003; tokens++) {
        static test_case c;
        c = (test_case){.problem = RA_PROBLEM_INIT, .options = RA_OPTIONS_INIT};
        c.problem.seq_q = tokens, c.problem.heads_q = 2, c.problem.dim = 8, c.problem.causal = 1;
        c.options.backend = queued_backend(queued), c.options.backward = 1, c.options.layout = RA_LAYOUT_STRIPED;
        c.options.strategy = RA_STRATEGY_RING;
        staying all = check_ranks(&c, 3);
        assert_true(all.stays[RA_FORWARD] && all.stays[RA_BACKWARD]);
    }
    queued_destroy(queued);
}

/* What the leader of so many ranks makes of a causal problem; returns how many tiles the pass has, 0: keys do not stay.
 * documents: of 40 tokens each; 0: none. */
static int64_t leader_tiles(const ra_backend *backend, ra_pass pass, int ranks, ra_layout layout, int64_t tokens,
                            int documents) {
    enum { MOST = 400, LENGTH = 40 };
    static test_case c;
    int64_t ends[MOST + 1];
    ra_pool pool = {0};
    ra_prediction p = {0};
    ra_staying s;
    c = (test_case){.problem = RA_PROBLEM_INIT, .options = RA_OPTIONS_INIT};
    for (int i = 0; i <= documents; i++) ends[i] = i * LENGTH;
    c.problem.seq_q = documents ? ends[documents] : tokens, c.problem.heads_q = 1, c.problem.dim = 8;
    c.problem.causal = 1;
    if (documents) c.problem.documents = documents, c.problem.cu_seqlens_q = ends;
    c.options.backend = backend, c.options.backward = 1, c.options.strategy = RA_STRATEGY_RING;
    c.options.layout = layout;
    ra_seat seat = {RA_LEADER, ranks, ranks, ranks, 1};
    if (ra_setup_make(&c.problem, &c.options, seat, &p.setup) != RA_OK) fail_msg("%s", ra_last_error());
    assert_int_equal(ra_prediction_make(&pool, &p), RA_OK);
    ra_keys_stay(&pool, &p, &s);
    int64_t tiles = s.can[pass] ? s.passes[pass].steps[0].computes->tiles.tile_count : 0;
    ra_pool_free(&pool);
    return tiles;
}

/* A call takes the rows of so many ranks, and the leader makes so many tiles. */
static void test_limits(void **state) {
    (void)state;
    queued_device *queued = queued_create((queued_habits){.seed = 1});
    const ra_backend *backend = queued_backend(queued);
    for (int i = RA_FORWARD; i <= RA_BACKWARD; i++) {
        ra_pass pass = (ra_pass)i;
        assert_true(leader_tiles(backend, pass, RA_RANKS_IN_A_CALL, RA_LAYOUT_ZIGZAG, 16000, 0) > 0);
        assert_int_equal(leader_tiles(backend, pass, RA_RANKS_IN_A_CALL + 1, RA_LAYOUT_ZIGZAG, 16000, 0), 0);
        assert_true(leader_tiles(backend, pass, 10, RA_LAYOUT_DOCUMENTS, 0, 40) > 0);
        assert_int_equal(leader_tiles(backend, pass, 10, RA_LAYOUT_DOCUMENTS, 0, 400), 0);
    }
    for (int64_t tokens = 1 << 10; tokens <= 1 << 22; tokens *= 4)
        for (int ranks = 2; ranks <= 16; ranks *= 2) { /* split for the backward pass alone */
            int64_t tiles = leader_tiles(backend, RA_BACKWARD, ranks, RA_LAYOUT_STRIPED, tokens, 0);
            assert_true(tiles >= ranks * ranks && tiles <= 1 << 14);
            assert_int_equal(leader_tiles(backend, RA_FORWARD, ranks, RA_LAYOUT_STRIPED, tokens, 0), ranks * ranks);
        }
    queued_destroy(queued);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_problems), cmocka_unit_test(test_stripes),
                                       cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
