/* A timeout is for silence: passes whose steps take many times the timeout succeed, with the same bits, as long as the
 * ranks compute or call ra_comm_progress; and a rank that does neither is the one that all others name. */
#include "support/cmocka.h"
#include "support/ranks.h"
#include "support/rng.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 3, SEQ = 1300, HEADS = 2, DIM = 64, COUNT = SEQ * HEADS * DIM };
static const double TIMEOUT = 0.4, OFTEN = 0.01;

typedef struct arrays {
    float q[COUNT], k[COUNT], v[COUNT], dout[COUNT]; /* random; every rank uses the first of its rows */
    float o[COUNT], lse[SEQ * HEADS], dq[COUNT], dk[COUNT], dv[COUNT];
} arrays;

typedef struct job {
    ra_options options;
    double away;    /* seconds that the last rank is outside of ringattn between the passes */
    int progresses; /* whether it calls ra_comm_progress meanwhile */
    double longest; /* seconds of the last rank's slower pass */
    arrays *of[RANKS];
} job;

static void stay_away(ra_comm *comm, const job *j) {
    double end = ra_clock() + j->away;
    while (ra_comm_rank(comm) == RANKS - 1 && ra_clock() < end) {
        if (j->progresses) ra_comm_progress(comm);
        nanosleep(&(struct timespec){.tv_nsec = (long)(OFTEN * 1e9)}, NULL);
    }
}

static ra_status run_passes(ra_comm *comm, ra_plan *plan, job *j) {
    arrays *a = j->of[ra_comm_rank(comm)];
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = a->q, t.k.data = a->k, t.v.data = a->v, t.o.data = a->o, t.lse = a->lse;
    ra_gradients g = RA_GRADIENTS_INIT;
    g.q = t.q, g.k = t.k, g.v = t.v, g.o = ra_as_input(t.o), g.lse = t.lse, g.dout.data = a->dout;
    g.dq.data = a->dq, g.dk.data = a->dk, g.dv.data = a->dv;
    double start = ra_clock();
    RA_TRY(ra_plan_forward(plan, &t, NULL));
    double forward = ra_clock() - start;
    stay_away(comm, j);
    start = ra_clock();
    RA_TRY(ra_plan_backward(plan, &g, NULL));
    double backward = ra_clock() - start;
    if (ra_comm_rank(comm) == RANKS - 1) j->longest = forward > backward ? forward : backward;
    return RA_OK;
}

static ra_status body(ra_comm *comm, void *user) {
    job *j = user;
    ra_problem problem = RA_PROBLEM_INIT;
    problem.seq_q = SEQ, problem.heads_q = HEADS, problem.dim = DIM, problem.causal = 1;
    ra_plan *plan = NULL;
    RA_TRY(ra_plan_create(comm, &problem, &j->options, &plan));
    ra_status status = run_passes(comm, plan, j);
    char why[1024];
    snprintf(why, sizeof why, "%s", ra_last_error());
    ra_plan_destroy(plan);
    return status == RA_OK ? RA_OK : ra_fail(status, "%s", why);
}

static void fill(float *to, uint64_t seed) {
    rng r = {seed};
    for (int i = 0; i < COUNT; i++) to[i] = (float)rng_between(&r, -1000, 1000) / 1000;
}

/* Fresh arrays, and all ranks' outcomes. */
static void run(job *j, rank_outcome *outcomes_out) {
    ra_comm *comms[RANKS];
    for (int r = 0; r < RANKS; r++) {
        j->of[r] = calloc(1, sizeof *j->of[r]);
        assert_non_null(j->of[r]);
        float *inputs[] = {j->of[r]->q, j->of[r]->k, j->of[r]->v, j->of[r]->dout};
        for (int i = 0; i < 4; i++) fill(inputs[i], (uint64_t)(10 * r + i));
    }
    assert_int_equal(ra_comm_create_threads(RANKS, comms), RA_OK);
    ranks_run(comms, RANKS, body, j, outcomes_out);
    ranks_destroy(comms, RANKS);
}

static void release(job *j) {
    for (int r = 0; r < RANKS; r++) free(j->of[r]);
}

/* Contiguous and causal: the last rank computes far longer than the first, which waits for it. */
static job make_job(ra_strategy strategy, double timeout) {
    job j = {.options = RA_OPTIONS_INIT};
    j.options.backward = 1, j.options.kernel = "ref", j.options.threads = 1, j.options.timeout_seconds = timeout;
    j.options.layout = RA_LAYOUT_CONTIGUOUS, j.options.strategy = strategy;
    return j;
}

static void expect_success(const rank_outcome *outcomes) {
    for (int r = 0; r < RANKS; r++)
        if (outcomes[r].status != RA_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
}

static void test_work_outlasts_the_timeout(void **state) {
    (void)state;
    rank_outcome outcomes[RANKS];
    job patient = make_job(RA_STRATEGY_RING, 60);
    run(&patient, outcomes);
    expect_success(outcomes);
    double timeout =
        patient.longest / 3 < TIMEOUT ? patient.longest / 3 : TIMEOUT; /* what this machine needs several of */
    job hasty = make_job(RA_STRATEGY_RING, timeout);
    run(&hasty, outcomes);
    expect_success(outcomes);
    assert_true(hasty.longest > 1.5 * timeout); /* or it shows nothing */
    for (int r = 0; r < RANKS; r++) assert_memory_equal(patient.of[r], hasty.of[r], sizeof(arrays));
    release(&patient);
    release(&hasty);
}

static void test_a_rank_that_says_that_it_is_alive(void **state) {
    (void)state;
    rank_outcome outcomes[RANKS];
    job j = make_job(RA_STRATEGY_RING, TIMEOUT);
    j.away = 4 * TIMEOUT, j.progresses = 1;
    run(&j, outcomes);
    expect_success(outcomes);
    release(&j);
}

static void test_a_rank_that_says_nothing(void **state) {
    (void)state;
    rank_outcome outcomes[RANKS];
    job j = make_job(RA_STRATEGY_RING, TIMEOUT);
    j.away = 8 * TIMEOUT;
    run(&j, outcomes);
    for (int r = 0; r < RANKS; r++) {
        assert_int_not_equal(outcomes[r].status, RA_OK);
        if (!strstr(outcomes[r].error, "rank 2 has been silent")) fail_msg("rank %d: %s", r, outcomes[r].error);
    }
    release(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_outlasts_the_timeout),
        cmocka_unit_test(test_a_rank_that_says_that_it_is_alive),
        cmocka_unit_test(test_a_rank_that_says_nothing),
    };
    return cmocka_run_group_tests_name("long_steps", tests, NULL, NULL);
}
