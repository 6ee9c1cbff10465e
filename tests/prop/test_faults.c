/* When something goes wrong every rank gets an error that says who, with whom and in which step, in time; and what only
 * looks odd (delays, another order between pairs) changes nothing. */
#include "support/cmocka.h"
#include "support/faults/faulty.h"
#include "support/problems/sweep.h"
#include "support/ranks.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4 };

static const ra_strategy strategies[] = {RA_STRATEGY_RING, RA_STRATEGY_PAIRWISE, RA_STRATEGY_ALLGATHER,
                                         RA_STRATEGY_PASSQ};

static void make_case(test_case *c, ra_strategy strategy, double timeout) {
    case_plain(c, strategy, NULL);
    c->problem.causal = 0;
    c->options.threads = 1;
    c->options.timeout_seconds = timeout;
}

/* ---- harmless -------------------------------------------------------------------------------------------- */

typedef struct harmless_run {
    const sweep_data *data;
    sweep_result results[RANKS];
} harmless_run;

static ra_status harmless_body(ra_comm *comm, void *user) {
    harmless_run *run = user;
    return sweep_run(comm, run->data, 3, &run->results[ra_comm_rank(comm)]);
}

static uint64_t run_harmless(const sweep_data *data, fault f) {
    static harmless_run run;
    rank_outcome outcomes[RANKS];
    ra_comm *comms[RANKS];
    run.data = data;
    assert_int_equal(fault_create(RANKS, f, NULL, comms), RA_OK);
    ranks_run(comms, RANKS, harmless_body, &run, outcomes);
    ranks_destroy(comms, RANKS);
    for (int r = 0; r < RANKS; r++) {
        if (outcomes[r].status != RA_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
        assert_true(sweep_worst_abs(&run.results[r]) < 1e-11);
        assert_int_equal(run.results[r].wrong_infinities, 0);
    }
    return run.results[0].bits;
}

static void test_delays_and_orders_change_no_bit(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        static test_case c;
        make_case(&c, strategies[i], 20);
        sweep_data *data = sweep_data_make(&c);
        uint64_t bits = run_harmless(data, (fault){.kind = FAULT_NONE});
        for (uint64_t seed = 1; seed <= 4; seed++) {
            assert_true(run_harmless(data, (fault){.kind = FAULT_DELAY, .seed = seed}) == bits);
            assert_true(run_harmless(data, (fault){.kind = FAULT_REORDER, .seed = seed}) == bits);
        }
        sweep_data_free(data);
    }
}

/* ---- harmful --------------------------------------------------------------------------------------------- */

typedef struct harmful_run {
    const sweep_data *data;
    ra_status again[RANKS]; /* what using the comm once more gives */
    int wrote[RANKS];       /* an output was written although the call failed */
} harmful_run;

/* After a failure an output is as it was, or NaN. */
static int looks_whole(double x) {
    return x != 42 && !isnan(x);
}

/* A plan, then passes until one fails; the outputs are filled with a pattern that must survive. */
static ra_status harmful_body(ra_comm *comm, void *user) {
    harmful_run *run = user;
    const test_case *c = run->data->c;
    int rank = ra_comm_rank(comm);
    enum { ROWS = 64, ELEMENTS = ROWS * 2 * 8 };
    double q[ELEMENTS] = {0}, k[ELEMENTS] = {0}, v[ELEMENTS] = {0}, o[ELEMENTS], lse[ROWS * 2];
    double dq[ELEMENTS], dk[ELEMENTS], dv[ELEMENTS];
    ra_plan *plan;
    ra_status planned = ra_plan_create(comm, &c->problem, &c->options, &plan);
    if (planned != RA_OK) { /* a slow rank may still be planning when a quick one fails in its first step */
        char why[1024];
        snprintf(why, sizeof why, "%s", ra_last_error());
        run->again[rank] = ra_plan_create(comm, &c->problem, &c->options, &plan);
        return ra_fail(planned, "%s", why);
    }
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = q, t.k.data = k, t.v.data = v, t.o.data = o, t.lse = lse;
    ra_gradients g = RA_GRADIENTS_INIT;
    g.q = t.q, g.k = t.k, g.v = t.v, g.o = ra_as_input(t.o), g.lse = lse, g.dout.data = q;
    g.dq.data = dq, g.dk.data = dk, g.dv.data = dv;
    for (int i = 0; i < ELEMENTS; i++) o[i] = dq[i] = dk[i] = dv[i] = 42;
    ra_status status = ra_plan_forward(plan, &t, NULL);
    int forward_failed = status != RA_OK;
    if (!forward_failed) status = ra_plan_backward(plan, &g, NULL);
    char error[1024];
    snprintf(error, sizeof error, "%s", ra_last_error());
    for (int i = 0; i < ELEMENTS && status != RA_OK; i++) {
        if (forward_failed && looks_whole(o[i])) run->wrote[rank] = 1;
        if (looks_whole(dq[i]) || looks_whole(dk[i]) || looks_whole(dv[i])) run->wrote[rank] = 1;
    }
    run->again[rank] = status == RA_OK ? RA_OK : ra_plan_forward(plan, &t, NULL);
    ra_plan_destroy(plan);
    return status == RA_OK ? RA_OK : ra_fail(status, "%s", error);
}

/* Whether the rank that the fault happens to must be in every other's error: where it does not speak itself, the others
 * must find out who it was, through whoever waits for it. */
static int must_be_named(fault f) {
    return !f.without_signs && (f.kind == FAULT_KILL || f.kind == FAULT_STALL);
}

static void expect_harm(fault f, ra_strategy strategy, double timeout, int expect_step) {
    static test_case c;
    static harmful_run run;
    make_case(&c, strategy, timeout);
    memset(&run, 0, sizeof run);
    sweep_data data = {.c = &c};
    run.data = &data;
    rank_outcome outcomes[RANKS];
    ra_comm *comms[RANKS];
    assert_int_equal(fault_create(RANKS, f, NULL, comms), RA_OK);
    ranks_run(comms, RANKS, harmful_body, &run, outcomes);
    ranks_destroy(comms, RANKS);
    for (int r = 0; r < RANKS; r++) {
        char rank_text[32];
        snprintf(rank_text, sizeof rank_text, "rank %d", r);
        if (outcomes[r].status == RA_OK)
            fail_msg("fault %d, %s: rank %d got no error", f.kind, ra_strategy_name(strategy), r);
        if (outcomes[r].seconds > timeout + 1) fail_msg("rank %d took %.2f s", r, outcomes[r].seconds);
        const char *e = outcomes[r].error;
        if (strncmp(e, rank_text, strlen(rank_text)) != 0) fail_msg("'%s' does not begin with '%s'", e, rank_text);
        if (expect_step && !strstr(e, "step")) fail_msg("'%s' names no step", e);
        if (!strstr(e + strlen(rank_text), "rank ") && r != f.rank) fail_msg("'%s' names no peer", e);
        snprintf(rank_text, sizeof rank_text, "rank %d has been silent", f.rank);
        if (must_be_named(f) && r != f.rank && !strstr(e, rank_text)) fail_msg("'%s' does not name rank %d", e, f.rank);
        assert_false(run.wrote[r]);
        assert_int_equal(run.again[r], RA_ERR_BROKEN);
    }
}

static void test_every_rank_learns_of_a_fault(void **state) {
    (void)state;
    /* Groups 0 and 1 belong to planning, those behind them to the passes. */
    for (int i = 0; i < 6; i++) {
        ra_strategy strategy = strategies[i % 3];
        int without = i >= 3;
        expect_harm((fault){.kind = FAULT_ERROR, .rank = 2, .group = 2, .without_signs = without}, strategy, 5, 1);
        expect_harm((fault){.kind = FAULT_LENGTH, .rank = 2, .group = 2, .without_signs = without}, strategy, 5, 1);
        expect_harm((fault){.kind = FAULT_LENGTH, .rank = 1, .group = 4, .without_signs = without}, strategy, 5, 1);
        expect_harm((fault){.kind = FAULT_DROP, .rank = 3, .group = 2, .without_signs = without}, strategy, 0.5, 1);
        expect_harm((fault){.kind = FAULT_KILL, .rank = 1, .group = 2, .without_signs = without}, strategy, 0.5, 1);
        fault stall = {.kind = FAULT_STALL, .rank = 0, .group = 2, .seconds = 1.2, .without_signs = without};
        expect_harm(stall, strategy, 0.5, 1);
    }
}

/* In groups of both passes in which all ranks still need each other, and by every rank: the dead one is in all errors.
 */
static void test_the_dead_are_named(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int group = 2; group <= (strategies[i] == RA_STRATEGY_ALLGATHER ? 2 : 6); group += 2)
            for (int rank = 0; rank < RANKS; rank++)
                expect_harm((fault){.kind = FAULT_KILL, .rank = rank, .group = group}, strategies[i], 0.25, 1);
}

static void test_a_fault_while_planning(void **state) {
    (void)state;
    expect_harm((fault){.kind = FAULT_KILL, .rank = 3, .group = 0}, RA_STRATEGY_RING, 0.5, 0);
    expect_harm((fault){.kind = FAULT_ERROR, .rank = 0, .group = 1}, RA_STRATEGY_RING, 5, 0);
    expect_harm((fault){.kind = FAULT_LENGTH, .rank = 1, .group = 0}, RA_STRATEGY_RING, 5, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delays_and_orders_change_no_bit),
        cmocka_unit_test(test_every_rank_learns_of_a_fault),
        cmocka_unit_test(test_the_dead_are_named),
        cmocka_unit_test(test_a_fault_while_planning),
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
