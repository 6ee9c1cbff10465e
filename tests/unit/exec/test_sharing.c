/* Who uses other ranks' memory: ranks of one process that have planned the same on one asynchronous device, and nobody
 * else. */
#include "support/cmocka.h"
#include "support/queued/queued.h"
#include "support/ranks.h"

#include "exec/plan.h"

enum { RANKS = 3 };

typedef struct share_case {
    const ra_backend *backends[RANKS]; /* NULL: the CPU */
    ra_strategy strategy;
    int backward, dilated, windowed;
    int shares[RANKS], sums[RANKS], closing[RANKS], without_data[RANKS];
} share_case;

static int messages_without_data(const ra_program *program) {
    int count = 0;
    for (int s = 0; s < program->schedule->step_count; s++)
        for (int i = 0; i < program->steps[s].message_count; i++) count += !program->steps[s].messages[i].data;
    return count;
}

static ra_status body(ra_comm *comm, void *user) {
    static const ra_branch branches[] = {{16, 1}, {32, 2}};
    share_case *c = user;
    int rank = ra_comm_rank(comm);
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    ra_plan *plan;
    p.seq_q = 96, p.heads_q = 2, p.dim = 8, p.dtype = RA_F32;
    if (c->dilated) p.branches = 2, p.dilated = branches;
    o.backend = c->backends[rank], o.strategy = c->strategy, o.layout = RA_LAYOUT_CONTIGUOUS, o.backward = c->backward;
    if (c->windowed) p.window_left = p.window_right = 24, o.layout = RA_LAYOUT_ZIGZAG;
    RA_TRY(ra_plan_create(comm, &p, &o, &plan));
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
    expect(&c, 1, 0, 2, 4); /* a message out and one in, in each of two steps */
    c = case_of(one, RA_STRATEGY_RING, 1);
    run(&c);
    expect(&c, 1, 1, 2, 8); /* gradients too */
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
    c.dilated = 1;
    run(&c);
    expect(&c, 1, 0, 2, 4);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_shares),
        cmocka_unit_test(test_rounds_are_summed_apart),
        cmocka_unit_test(test_overlapping_keys_are_summed_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
