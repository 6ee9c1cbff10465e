/* What it costs to find out that all ranks have the same plan: constant for a rank, linear for rank 0, and one small
 * exchange; and what it costs when they have not. */
#include "support/cmocka.h"
#include "support/faults/faulty.h"
#include "support/ranks.h"

#include <stdio.h>
#include <string.h>

static const int counts[] = {1, 2, 3, 8, 33, 64};
enum { MOST = 64 };

/* odd: a rank whose problem differs; -1: none. failing: one that cannot make its plan. */
typedef struct agreement {
    int odd, failing;
} agreement;

static ra_status plan_body(ra_comm *comm, void *user) {
    const agreement *a = user;
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    ra_plan *plan = NULL;
    p.seq_q = 100;
    p.heads_q = ra_comm_rank(comm) == a->failing ? -1 : 2;
    p.dim = 4;
    p.causal = ra_comm_rank(comm) == a->odd;
    o.threads = 1;
    o.layout = RA_LAYOUT_ZIGZAG;
    o.strategy = RA_STRATEGY_RING;
    ra_status status = ra_plan_create(comm, &p, &o, &plan);
    ra_plan_destroy(plan);
    return status;
}

/* What making a plan sends; wire [ranks] and outcomes [ranks] are filled. */
static void plan_with(int ranks, agreement a, wire_count *wire, rank_outcome *outcomes) {
    ra_comm *comms[MOST];
    memset(wire, 0, (size_t)ranks * sizeof *wire);
    assert_int_equal(fault_create(ranks, (fault){.kind = FAULT_NONE}, wire, comms), RA_OK);
    ranks_run(comms, ranks, plan_body, &a, outcomes);
    ranks_destroy(comms, ranks);
}

static void test_agreeing_is_cheap(void **state) {
    (void)state;
    static wire_count wire[MOST];
    static rank_outcome outcomes[MOST];
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int ranks = counts[i];
        plan_with(ranks, (agreement){-1, -1}, wire, outcomes);
        for (int r = 0; r < ranks; r++) {
            if (outcomes[r].status != RA_OK) fail_msg("rank %d of %d: %s", r, ranks, outcomes[r].error);
            assert_int_equal(wire[r].messages, r == 0 ? ranks - 1 : 1);
            assert_true(wire[r].bytes <= 32 * wire[r].messages);
            assert_int_equal(wire[r].groups, ranks > 1 ? 2 : 0);
        }
    }
}

/* The details of two ranks go round, whatever the number of ranks. */
static void test_disagreeing_is_linear(void **state) {
    (void)state;
    static wire_count wire[MOST];
    static rank_outcome outcomes[MOST];
    for (size_t i = 1; i < sizeof counts / sizeof *counts; i++) {
        int ranks = counts[i];
        plan_with(ranks, (agreement){ranks - 1, -1}, wire, outcomes);
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(outcomes[r].status, RA_ERR_MISMATCH);
            char odd[32];
            snprintf(odd, sizeof odd, "causal is 1 on rank %d", ranks - 1);
            assert_non_null(strstr(outcomes[r].error, odd));
            assert_non_null(strstr(outcomes[r].error, "0 on rank 0"));
            assert_true(wire[r].bytes <= (r == 0 ? ranks - 1 : 1) * 1024);
        }
    }
}

/* Whoever else differs, the rank that could not make its plan is the one to name; rank 0 as well. */
static void test_the_failed_rank_is_named(void **state) {
    (void)state;
    static wire_count wire[MOST];
    static rank_outcome outcomes[MOST];
    for (int failing = 0; failing < 5; failing++) {
        plan_with(5, (agreement){1, failing}, wire, outcomes);
        for (int r = 0; r < 5; r++) {
            char name[32];
            snprintf(name, sizeof name, "rank %d", failing);
            assert_int_equal(outcomes[r].status, r == failing ? RA_ERR_ARGUMENT : RA_ERR_MISMATCH);
            assert_non_null(strstr(outcomes[r].error, name));
            assert_non_null(strstr(outcomes[r].error, "heads_q"));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agreeing_is_cheap),
        cmocka_unit_test(test_disagreeing_is_linear),
        cmocka_unit_test(test_the_failed_rank_is_named),
    };
    return cmocka_run_group_tests_name("agreement", tests, NULL, NULL);
}
