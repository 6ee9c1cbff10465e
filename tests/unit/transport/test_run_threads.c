/* ra_run_threads: what it returns when bodies fail, and what the other bodies see. */
#include "support/cmocka.h"

#include "base/clock.h"
#include "base/status.h"
#include "transport/comm.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { RANKS = 5 };

/* ---- who decides ------------------------------------------------------------------------------------------------- */

static ra_status status_body(ra_comm *comm, void *user) {
    const ra_status *statuses = user;
    ra_status status = statuses[ra_comm_rank(comm)];
    return status == RA_OK ? RA_OK : ra_fail(status, "rank %d says so", ra_comm_rank(comm));
}

/* The first rank whose failure is its own, not the first of any kind. */
static void test_the_first_own_failure_decides(void **state) {
    (void)state;
    static const struct {
        ra_status statuses[RANKS];
        int decides; /* -1: none has failed */
    } cases[] = {
        {{RA_OK, RA_OK, RA_OK, RA_OK, RA_OK}, -1},
        {{RA_OK, RA_ERR_PEER, RA_OK, RA_ERR_BROKEN, RA_OK}, 1},
        {{RA_ERR_PEER, RA_ERR_MISMATCH, RA_ERR_MISMATCH, RA_ERR_ARGUMENT, RA_ERR_MEMORY}, 3},
        {{RA_ERR_MISMATCH, RA_ERR_MISMATCH, RA_ERR_MISMATCH, RA_ERR_MISMATCH, RA_ERR_MISMATCH}, 0},
        {{RA_ERR_BROKEN, RA_ERR_PEER, RA_ERR_TIMEOUT, RA_ERR_PEER, RA_ERR_PEER}, 2},
        {{RA_ERR_TIMEOUT, RA_ERR_PEER, RA_ERR_PEER, RA_ERR_PEER, RA_ERR_TRANSPORT}, 4},
        {{RA_OK, RA_OK, RA_ERR_INTERNAL, RA_ERR_ARGUMENT, RA_OK}, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int decides = cases[i].decides;
        char words[32];
        snprintf(words, sizeof words, "rank %d says so", decides);
        ra_status status = ra_run_threads(RANKS, status_body, (void *)cases[i].statuses);
        assert_int_equal(status, decides < 0 ? RA_OK : cases[i].statuses[decides]);
        if (decides >= 0) assert_string_equal(ra_last_error(), words);
    }
}

static ra_status silent_body(ra_comm *comm, void *user) {
    (void)user;
    return ra_comm_rank(comm) == 2 ? RA_ERR_UNSUPPORTED : RA_OK;
}

static void test_a_failure_without_a_text(void **state) {
    (void)state;
    assert_int_equal(ra_run_threads(RANKS, silent_body, NULL), RA_ERR_UNSUPPORTED);
    assert_non_null(strstr(ra_last_error(), "rank 2"));
    assert_non_null(strstr(ra_last_error(), ra_status_text(RA_ERR_UNSUPPORTED)));
}

/* ---- what the others see ----------------------------------------------------------------------------------------- */

typedef struct planning {
    int failing;
    ra_status seen[RANKS];
} planning;

static ra_status planning_body(ra_comm *comm, void *user) {
    planning *p = user;
    ra_problem problem = RA_PROBLEM_INIT;
    ra_plan *plan = NULL;
    problem.seq_q = 24;
    problem.dim = 4;
    problem.heads_q = ra_comm_rank(comm) == p->failing ? -1 : 2;
    ra_status status = ra_plan_create(comm, &problem, NULL, &plan);
    ra_plan_destroy(plan);
    p->seen[ra_comm_rank(comm)] = status;
    return status;
}

/* The failed rank's body ends while the others still take their part of the answer: they get it all the same. */
static void test_everyone_gets_what_the_header_says(void **state) {
    (void)state;
    for (int round = 0; round < 400; round++) {
        planning p = {.failing = round % RANKS};
        assert_int_equal(ra_run_threads(RANKS, planning_body, &p), RA_ERR_ARGUMENT);
        for (int r = 0; r < RANKS; r++)
            if (p.seen[r] != (r == p.failing ? RA_ERR_ARGUMENT : RA_ERR_MISMATCH))
                fail_msg("round %d, rank %d of which %d failed: status %d", round, r, p.failing, p.seen[r]);
    }
}

/* Rank 2 fails at once; ranks 0 and 1 do not need it. */
static ra_status pair_body(ra_comm *comm, void *user) {
    int rank = ra_comm_rank(comm), mine = 100 + rank, theirs = -1;
    ra_status *pair = user;
    if (rank > 1) return rank == 2 ? ra_fail(RA_ERR_ARGUMENT, "rank 2 has had enough") : RA_OK;
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    ra_message messages[] = {{1 - rank, 1, 3, &mine, sizeof mine}, {1 - rank, 0, 3, &theirs, sizeof theirs}};
    ra_place place = {"a test", 0};
    pair[rank] = ra_comm_post(comm, messages, 2, NULL, place);
    if (pair[rank] == RA_OK) pair[rank] = ra_comm_wait(comm, messages, 2, 20, place);
    if (pair[rank] == RA_OK && theirs != 101 - rank) pair[rank] = RA_ERR_INTERNAL;
    return pair[rank];
}

static void test_what_is_between_others_goes_on(void **state) {
    (void)state;
    ra_status pair[2];
    assert_int_equal(ra_run_threads(RANKS, pair_body, pair), RA_ERR_ARGUMENT);
    assert_int_equal(pair[0], RA_OK);
    assert_int_equal(pair[1], RA_OK);
}

/* Who waits for the failed rank hears why it left. */
typedef struct hearing {
    char error[RANKS][1024];
} hearing;

static ra_status hearing_body(ra_comm *comm, void *user) {
    hearing *h = user;
    char mine = 0, all[RANKS];
    int rank = ra_comm_rank(comm);
    if (rank == 3) return ra_fail(RA_ERR_ARGUMENT, "rank 3 has had enough");
    ra_status status = ra_comm_allgather(comm, &mine, 1, all, 30);
    snprintf(h->error[rank], sizeof h->error[rank], "%s", ra_last_error());
    return status;
}

static void test_the_reason_goes_round(void **state) {
    (void)state;
    static hearing h;
    double start = ra_clock();
    assert_int_equal(ra_run_threads(RANKS, hearing_body, &h), RA_ERR_ARGUMENT);
    assert_true(ra_clock() - start < 10);
    for (int r = 0; r < RANKS; r++)
        if (r != 3 && !strstr(h.error[r], "rank 3 has had enough")) fail_msg("rank %d heard: %s", r, h.error[r]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_own_failure_decides),
        cmocka_unit_test(test_a_failure_without_a_text),
        cmocka_unit_test(test_everyone_gets_what_the_header_says),
        cmocka_unit_test(test_what_is_between_others_goes_on),
        cmocka_unit_test(test_the_reason_goes_round),
    };
    return cmocka_run_group_tests_name("run_threads", tests, NULL, NULL);
}
