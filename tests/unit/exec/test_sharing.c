/* Who uses other ranks' memory: ranks of one process that have planned the same on one asynchronous device, and nobody
 * else. */
#include "support/cmocka.h"
#include "support/queued/queued.h"
#include "support/ranks.h"

#include "exec/keys_stay.h"
#include "exec/plan.h"

enum { RANKS = 3, WORKSPACE = 1 << 20, INSIDE = 1, ACROSS = 2 /* segments and ranks */ };

typedef struct share_case {
    const ra_backend *backends[RANKS]; /* NULL: the CPU */
    ra_strategy strategy;
    int backward, dilated, windowed, tokens; /* tokens 0: as many as keys do not stay for */
    int halves;                              /* elements are of 16 bits, outputs too */
    int shares[RANKS], sums[RANKS], closing[RANKS], without_data[RANKS];
    int forward_calls[RANKS], backward_calls[RANKS], lent[RANKS], finishing_alone[RANKS];
    int stays[2][RANKS];       /* by pass */
    int finishing_keys[RANKS]; /* a backward call writes dk and dv as outputs */
    int64_t tiles[RANKS];      /* of the last forward call */
    void *workspaces[RANKS];   /* NULL: the library's */
    ra_strategy chosen[RANKS];
} share_case;

static int calls_of(const ra_program *program) {
    int64_t calls = 0;
    for (int s = 0; program->steps && s < program->schedule->step_count; s++) calls += program->steps[s].compute_count;
    return (int)calls;
}

/* The calls of a plan's passes, and what the last forward one is like. */
static void note_calls(share_case *c, int rank, const ra_plan *plan) {
    const ra_program *forward = &plan->forward;
    c->forward_calls[rank] = calls_of(forward);
    c->backward_calls[rank] = calls_of(&plan->backward);
    c->stays[RA_FORWARD][rank] = forward->stays, c->stays[RA_BACKWARD][rank] = plan->backward.stays;
    c->finishing_alone[rank] = forward->finishing_alone;
    c->finishing_keys[rank] = plan->backward.finishing != NULL;
    for (int s = 0; s < forward->schedule->step_count; s++)
        for (int64_t i = 0; i < forward->steps[s].compute_count; i++) {
            c->lent[rank] = forward->steps[s].computes[i].lent != NULL;
            c->tiles[rank] = forward->steps[s].computes[i].tiles.tile_count;
        }
}

static int messages_without_data(const ra_program *program) {
    int count = 0;
    for (int s = 0; s < program->schedule->step_count; s++)
        for (int i = 0; i < program->steps[s].message_count; i++) count += !program->steps[s].messages[i].data;
    return count;
}

static ra_status body(ra_comm *comm, void *user) {
    static const ra_branch branches[] = {{16, 1}, {32, 2}, {16, 1}, {96, 2}};
    share_case *c = user;
    int rank = ra_comm_rank(comm);
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    ra_plan *plan;
    p.seq_q = c->tokens ? c->tokens : 96, p.heads_q = 2, p.dim = 8, p.dtype = RA_F32;
    if (c->halves) p.dtype = p.out_dtype = RA_BF16;
    if (c->dilated) p.branches = 2, p.dilated = &branches[c->dilated == ACROSS ? 2 : 0];
    o.backend = c->backends[rank], o.strategy = c->strategy, o.layout = RA_LAYOUT_CONTIGUOUS, o.backward = c->backward;
    if (c->windowed) p.window_left = p.window_right = 24, o.layout = RA_LAYOUT_ZIGZAG;
    if (c->strategy == RA_STRATEGY_AUTO) p.causal = 1, o.layout = RA_LAYOUT_ZIGZAG;
    if (c->workspaces[rank]) o.workspace = c->workspaces[rank], o.workspace_bytes = WORKSPACE;
    RA_TRY(ra_plan_create(comm, &p, &o, &plan));
    note_calls(c, rank, plan);
    c->chosen[rank] = plan->prediction.setup.strategy;
    c->shares[rank] = plan->sharing.lenders != NULL;
    c->sums[rank] = plan->sharing.sums;
    c->closing[rank] = plan->forward.closing_count;
    c->without_data[rank] = messages_without_data(c->backward ? &plan->backward : &plan->forward);
    ra_plan_destroy(plan);
    return RA_OK;
}

static void run(share_case *c) {
    if (ra_run_threads(RANKS, body, c) != RA_OK) fail_msg("%s", ra_last_error());
}

static void expect(const share_case *c, int shares, int sums, int closing, int without_data) {
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(c->shares[r], shares);
        assert_int_equal(c->sums[r], sums);
        assert_int_equal(c->closing[r], closing);
        assert_int_equal(c->without_data[r], without_data);
    }
}

static share_case case_of(queued_device *const *queued, ra_strategy strategy, int backward) {
    share_case c = {.strategy = strategy, .backward = backward};
    for (int r = 0; r < RANKS && queued; r++) c.backends[r] = queued_backend(queued[r]);
    return c;
}

static void test_who_shares(void **state) {
    (void)state;
    queued_device *a = queued_create((queued_habits){.seed = 1}), *b = queued_create((queued_habits){.seed = 2});
    queued_device *one[] = {a, a, a}, *two[] = {a, a, b};
    share_case c = case_of(one, RA_STRATEGY_RING, 0);
    run(&c);
    expect(&c, 1, 0, 1, 0); /* it opens, and no step has messages */
    c = case_of(one, RA_STRATEGY_RING, 1);
    run(&c);
    expect(&c, 1, 1, 1, 8); /* keys and gradients, a message out and one in, in each of two steps */
    c = case_of(one, RA_STRATEGY_PAIRWISE, 1);
    run(&c);
    expect(&c, 1, 1, 0, 0); /* they could, but it packs anew */
    c = case_of(two, RA_STRATEGY_RING, 1);
    run(&c);
    expect(&c, 0, 0, 0, 0);
    c = case_of(NULL, RA_STRATEGY_RING, 1);
    run(&c);
    expect(&c, 0, 0, 0, 0);
    queued_destroy(a);
    queued_destroy(b);
}

/* Several rounds add to a row more than once: sums are then made apart, and copied. */
static void test_rounds_are_summed_apart(void **state) {
    (void)state;
    queued_device *a = queued_create((queued_habits){.seed = 1}), *one[] = {a, a, a};
    share_case c = case_of(one, RA_STRATEGY_ALLGATHER, 1);
    c.dilated = INSIDE;
    run(&c);
    expect(&c, 1, 0, 1, 4);
    queued_destroy(a);
}

/* So do tiles whose keys overlap: some queries see all of a run of keys, and others a piece of it. */
static void test_overlapping_keys_are_summed_apart(void **state) {
    (void)state;
    queued_device *a = queued_create((queued_habits){.seed = 1}), *one[] = {a, a, a};
    share_case c = case_of(one, RA_STRATEGY_RING, 1);
    c.windowed = 1;
    run(&c);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(c.shares[r], 1);
        assert_int_equal(c.sums[r], 0);
    }
    queued_destroy(a);
}

/* Everything that a forward pass receives is used where it is: it is one call of the kernel, which begins and finishes.
 */
static void test_a_forward_pass_is_one_call(void **state) {
    (void)state;
    queued_device *a = queued_create((queued_habits){.seed = 1}), *b = queued_create((queued_habits){.seed = 2});
    queued_device *one[] = {a, a, a}, *two[] = {a, a, b};
    static const ra_strategy strategies[] = {RA_STRATEGY_RING, RA_STRATEGY_ALLGATHER};
    for (int i = 0; i < 2; i++) {
        share_case c = case_of(one, strategies[i], 0);
        run(&c);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(c.forward_calls[r], 1);
            assert_int_equal(c.tiles[r], RANKS);
            assert_true(c.lent[r] && c.finishing_alone[r]);
        }
    }
    share_case c = case_of(two, RA_STRATEGY_RING, 0);
    run(&c);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(c.forward_calls[r], RANKS);
        assert_true(!c.lent[r] && !c.finishing_alone[r]);
    }
    queued_destroy(a);
    queued_destroy(b);
}

enum { MANY = 5, ROUNDS = 2 /* in which so many ranks can wait for all */ };

typedef struct opening_case {
    const ra_backend *backend;
    ra_strategy strategy;
    int windowed;
    int opening[MANY], messages[MANY]; /* messages: of the steps */
    int64_t sent[MANY];                /* messages that count as sent */
} opening_case;

static ra_status opening_body(ra_comm *comm, void *user) {
    opening_case *c = user;
    int rank = ra_comm_rank(comm);
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    ra_plan *plan;
    p.seq_q = 90, p.heads_q = 2, p.dim = 8, p.dtype = RA_F32; /* keys would stay, were there more */
    if (c->windowed) p.window_left = 4, p.window_right = 0;
    o.backend = c->backend, o.strategy = c->strategy, o.layout = RA_LAYOUT_CONTIGUOUS;
    RA_TRY(ra_plan_create(comm, &p, &o, &plan));
    const ra_program *forward = &plan->forward;
    c->opening[rank] = forward->opening_count;
    for (int s = 0; s < forward->schedule->step_count; s++) {
        c->messages[rank] += forward->steps[s].message_count;
        c->sent[rank] += forward->steps[s].sent_messages;
    }
    ra_plan_destroy(plan);
    return RA_OK;
}

/* In a forward pass that has more messages than it takes rounds for all ranks to wait for all, they do that, and have
 * no other messages. What counts as sent is what the strategy sends. */
static void test_who_opens(void **state) {
    (void)state;
    queued_device *a = queued_create((queued_habits){.seed = 1});
    static const ra_strategy strategies[] = {RA_STRATEGY_RING, RA_STRATEGY_ALLGATHER};
    for (int i = 0; i < 2; i++) {
        opening_case c = {.backend = queued_backend(a), .strategy = strategies[i]};
        if (ra_run_threads(MANY, opening_body, &c) != RA_OK) fail_msg("%s", ra_last_error());
        for (int r = 0; r < MANY; r++) {
            assert_int_equal(c.opening[r], ROUNDS);
            assert_int_equal(c.messages[r], 0);
            assert_int_equal(c.sent[r], MANY - 1);
        }
        c = (opening_case){.strategy = strategies[i]};
        if (ra_run_threads(MANY, opening_body, &c) != RA_OK) fail_msg("%s", ra_last_error());
        for (int r = 0; r < MANY; r++) assert_int_equal(c.opening[r], 0); /* CPUs copy */
    }
    opening_case c = {.backend = queued_backend(a), .strategy = RA_STRATEGY_RING, .windowed = 1};
    if (ra_run_threads(MANY, opening_body, &c) != RA_OK) fail_msg("%s", ra_last_error());
    for (int r = 0; r < MANY; r++) {
        assert_int_equal(c.opening[r], 0); /* from the rank before, to the one behind */
        assert_true(c.messages[r] > 0);
    }
    queued_destroy(a);
}

/* Rows of several branches lie strewn, and are found in a slot by an index: they are packed. Nor are there rounds that
 * can be one call. */
static void test_strewn_rows_are_packed(void **state) {
    (void)state;
    queued_device *a = queued_create((queued_habits){.seed = 1}), *one[] = {a, a, a};
    share_case c = case_of(one, RA_STRATEGY_RING, 0);
    c.dilated = ACROSS;
    run(&c);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(c.shares[r], 1);
        assert_true(c.forward_calls[r] > 1);
        assert_int_equal(c.finishing_alone[r], 0);
    }
    queued_destroy(a);
}

static void expect_stays(const share_case *c, int forward, int backward) {
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(c->stays[RA_FORWARD][r], forward);
        assert_int_equal(c->stays[RA_BACKWARD][r], backward);
    }
}

/* With enough of them keys stay, also in the backward pass, where each is added to once: a pass is a call of one rank.
 */
static void test_keys_that_stay(void **state) {
    (void)state;
    queued_device *a = queued_create((queued_habits){.seed = 1}), *b = queued_create((queued_habits){.seed = 2});
    queued_device *one[] = {a, a, a}, *two[] = {a, a, b};
    share_case c = case_of(one, RA_STRATEGY_RING, 1);
    c.tokens = 600;
    run(&c);
    expect_stays(&c, 1, 1);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(c.forward_calls[r], r == RA_LEADER);
        assert_int_equal(c.finishing_alone[r], r == RA_LEADER);
        assert_int_equal(c.backward_calls[r], r == RA_LEADER);
    }
    assert_int_equal(c.tiles[RA_LEADER], RANKS * RANKS);
    c = case_of(one, RA_STRATEGY_ALLGATHER, 0);
    c.tokens = 600;
    run(&c);
    expect_stays(&c, 1, 0); /* there is no backward pass */
    c = case_of(one, RA_STRATEGY_RING, 1);
    run(&c);
    expect_stays(&c, 0, 0); /* too few */
    c = case_of(one, RA_STRATEGY_RING, 1);
    c.tokens = 600;
    c.windowed = 1;
    run(&c);
    expect_stays(&c, 1, 1); /* though few would travel */
    c.windowed = 0;
    c.dilated = ACROSS;
    run(&c);
    expect_stays(&c, 0, 0);
    c = case_of(one, RA_STRATEGY_PAIRWISE, 1);
    c.tokens = 600;
    run(&c);
    expect_stays(&c, 0, 0);
    c = case_of(two, RA_STRATEGY_RING, 1);
    c.tokens = 600;
    run(&c);
    expect_stays(&c, 0, 0);
    queued_destroy(a);
    queued_destroy(b);
}

/* Where keys stay, a call has the whole of dk and dv, and writes outputs that the sums would have to be rounded to.
 * Where gradients come home it has not; and sums that are the outputs need no rounding. */
static void test_who_finishes_gradients(void **state) {
    (void)state;
    queued_device *a = queued_create((queued_habits){.seed = 1}), *one[] = {a, a, a};
    static const struct { int tokens, halves, finishes; } rows[] = {{600, 1, 1}, {600, 0, 0}, {0, 1, 0}, {0, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        share_case c = case_of(one, RA_STRATEGY_RING, 1);
        c.tokens = rows[i].tokens;
        c.halves = rows[i].halves;
        run(&c);
        for (int r = 0; r < RANKS; r++) assert_int_equal(c.finishing_keys[r], rows[i].finishes && r == RA_LEADER);
    }
    share_case c = case_of(NULL, RA_STRATEGY_RING, 1);
    c.halves = 1;
    run(&c);
    for (int r = 0; r < RANKS; r++) assert_int_equal(c.finishing_keys[r], 0); /* the CPU's kernels do not */
    queued_destroy(a);
}

/* "auto" is what was predicted, unless nothing need be copied and no rank has brought memory of a predicted size. */
static void test_what_auto_is(void **state) {
    (void)state;
    queued_device *a = queued_create((queued_habits){.seed = 1}), *b = queued_create((queued_habits){.seed = 2});
    queued_device *one[] = {a, a, a}, *two[] = {a, a, b};
    share_case c = case_of(one, RA_STRATEGY_AUTO, 0);
    run(&c);
    for (int r = 0; r < RANKS; r++) assert_int_equal(c.chosen[r], RA_STRATEGY_RING);
    c = case_of(two, RA_STRATEGY_AUTO, 0);
    run(&c);
    for (int r = 0; r < RANKS; r++) assert_int_equal(c.chosen[r], RA_STRATEGY_PAIRWISE);
    c = case_of(one, RA_STRATEGY_AUTO, 0);
    assert_int_equal(ra_backend_allocate(queued_backend(a), WORKSPACE, &c.workspaces[1]), RA_OK);
    run(&c);
    for (int r = 0; r < RANKS; r++) assert_int_equal(c.chosen[r], RA_STRATEGY_PAIRWISE);
    ra_backend_release(queued_backend(a), c.workspaces[1]);
    queued_destroy(a);
    queued_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_shares),
        cmocka_unit_test(test_rounds_are_summed_apart),
        cmocka_unit_test(test_overlapping_keys_are_summed_apart),
        cmocka_unit_test(test_a_forward_pass_is_one_call),
        cmocka_unit_test(test_who_opens),
        cmocka_unit_test(test_strewn_rows_are_packed),
        cmocka_unit_test(test_keys_that_stay),
        cmocka_unit_test(test_who_finishes_gradients),
        cmocka_unit_test(test_what_auto_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
