/* In-process ranks as a transport: many random groups, the allgather, leaving, failing bodies. */
#include "support/cmocka.h"
#include "support/ranks.h"
#include "support/rng.h"

#include "base/clock.h"
#include "base/status.h"
#include "transport/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 5, ROUNDS = 300, MOST = 20000 };

/* How many bytes a sends b in a round: both ends know. */
static size_t size_of(int round, int a, int b) {
    rng r = {(uint64_t)(round * 1000 + a * 31 + b)};
    return rng_one_in(&r, 3) ? 0 : (size_t)rng_between(&r, 1, rng_one_in(&r, 4) ? MOST : 50);
}

static unsigned char byte_of(int round, int a, int b, size_t i) {
    return (unsigned char)(round * 7 + a * 31 + b * 17 + (int)i);
}

static ra_status exchange_body(ra_comm *comm, void *user) {
    (void)user;
    int me = ra_comm_rank(comm);
    static unsigned char memory[RANKS][2 * RANKS][MOST];
    rng random = {(uint64_t)me + 99};
    for (int round = 0; round < ROUNDS; round++) {
        ra_message messages[2 * RANKS];
        int count = 0;
        for (int peer = 0; peer < RANKS; peer++) {
            if (peer == me) continue;
            size_t out = size_of(round, me, peer), in = size_of(round, peer, me);
            for (size_t i = 0; i < out; i++) memory[me][peer][i] = byte_of(round, me, peer, i);
            if (out) messages[count++] = (ra_message){peer, 1, round % 5, memory[me][peer], out};
            if (in) messages[count++] = (ra_message){peer, 0, round % 5, memory[me][RANKS + peer], in};
        }
        for (int i = count - 1; i > 0; i--) { /* any order between pairs will do */
            int j = (int)rng_between(&random, 0, i);
            ra_message swap = messages[i];
            messages[i] = messages[j];
            messages[j] = swap;
        }
        ra_place place = {"a test", round};
        RA_TRY(ra_comm_post(comm, messages, count, NULL, place));
        if (rng_one_in(&random, 2)) ra_comm_progress(comm);
        RA_TRY(ra_comm_wait(comm, messages, count, 20, place));
        for (int peer = 0; peer < RANKS; peer++)
            for (size_t i = 0; peer != me && i < size_of(round, peer, me); i++)
                if (memory[me][RANKS + peer][i] != byte_of(round, peer, me, i))
                    return ra_fail(RA_ERR_INTERNAL, "rank %d, round %d: a byte from rank %d is wrong", me, round, peer);
    }
    return RA_OK;
}

static void test_random_groups(void **state) {
    (void)state;
    if (ra_run_threads(RANKS, exchange_body, NULL) != RA_OK) fail_msg("%s", ra_last_error());
}

/* Two messages of one tag each way between every pair, and a large one first, behind whose copy the peers post. */
static ra_status order_body(ra_comm *comm, void *user) {
    (void)user;
    int me = ra_comm_rank(comm), other = (me + 1) % 3, third = (me + 2) % 3;
    static unsigned char large[3][2][4096];
    for (int round = 0; round < 4000; round++) {
        int out[2][2], in[2][2];
        for (int i = 0; i < 2; i++) out[0][i] = out[1][i] = round * 2 + i;
        ra_message messages[] = {
            {other, 1, 1, &out[0][0], sizeof(int)},          {third, 1, 2, large[me][0], sizeof large[0][0]},
            {other, 0, 2, large[me][1], sizeof large[0][0]}, {other, 1, 1, &out[0][1], sizeof(int)},
            {third, 0, 1, &in[1][0], sizeof(int)},           {third, 0, 1, &in[1][1], sizeof(int)},
        };
        ra_place place = {"a test", round};
        RA_TRY(ra_comm_post(comm, messages, 6, NULL, place));
        RA_TRY(ra_comm_wait(comm, messages, 6, 20, place));
        if (in[1][0] != round * 2 || in[1][1] != round * 2 + 1) return ra_fail(RA_ERR_INTERNAL, "messages crossed");
    }
    return RA_OK;
}

static void test_messages_of_a_pair_keep_their_order(void **state) {
    (void)state;
    if (ra_run_threads(3, order_body, NULL) != RA_OK) fail_msg("%s", ra_last_error());
}

static ra_status allgather_body(ra_comm *comm, void *user) {
    (void)user;
    int ranks = ra_comm_ranks(comm);
    for (int round = 0; round < 50; round++) {
        int mine[3] = {ra_comm_rank(comm), round, 5}, all[3 * 16];
        RA_TRY(ra_comm_allgather(comm, mine, sizeof mine, all, 10));
        for (int r = 0; r < ranks; r++)
            if (all[3 * r] != r || all[3 * r + 1] != round) return ra_fail(RA_ERR_INTERNAL, "wrong bytes");
    }
    return RA_OK;
}

static void test_allgather(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 16; ranks += 5)
        if (ra_run_threads(ranks, allgather_body, NULL) != RA_OK) fail_msg("%s", ra_last_error());
}

/* One rank's body fails at once; the others wait for it in an exchange and must hear of it long before the deadline. */
static ra_status failing_body(ra_comm *comm, void *user) {
    (void)user;
    char mine = 0, all[RANKS];
    if (ra_comm_rank(comm) == 3) return ra_fail(RA_ERR_ARGUMENT, "rank 3 has had enough");
    return ra_comm_allgather(comm, &mine, 1, all, 30);
}

static void test_a_failing_body_fails_all(void **state) {
    (void)state;
    double start = ra_clock();
    assert_int_equal(ra_run_threads(RANKS, failing_body, NULL), RA_ERR_ARGUMENT);
    assert_string_equal(ra_last_error(), "rank 3 has had enough");
    assert_true(ra_clock() - start < 5);
}

static ra_status waiting_body(ra_comm *comm, void *user) {
    (void)user;
    char mine = 0, all[2];
    return ra_comm_allgather(comm, &mine, 1, all, 30);
}

/* A deadline beyond what the system's clocks can say is still a deadline, and not a hang. */
static ra_status patient_body(ra_comm *comm, void *user) {
    (void)user;
    char mine = 0, all[2];
    if (ra_comm_rank(comm) == 0) nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    return ra_comm_allgather(comm, &mine, 1, all, 1e300);
}

static void test_a_very_late_deadline(void **state) {
    (void)state;
    if (ra_run_threads(2, patient_body, NULL) != RA_OK) fail_msg("%s", ra_last_error());
}

/* A body that returns early is noticed by those who wait for it. */
static ra_status early_body(ra_comm *comm, void *user) {
    (void)user;
    char mine = 0, all[2];
    return ra_comm_rank(comm) == 1 ? RA_OK : ra_comm_allgather(comm, &mine, 1, all, 30);
}

static void test_an_early_end_is_noticed(void **state) {
    (void)state;
    double start = ra_clock();
    assert_int_equal(ra_run_threads(2, early_body, NULL), RA_ERR_PEER);
    assert_true(ra_clock() - start < 5);
}

static void test_leaving_is_noticed(void **state) {
    (void)state;
    ra_comm *comms[2];
    rank_outcome outcome;
    assert_int_equal(ra_comm_create_threads(2, comms), RA_OK);
    ra_comm_destroy(comms[1]);
    ranks_run(comms, 1, waiting_body, NULL, &outcome);
    assert_int_equal(outcome.status, RA_ERR_PEER);
    assert_non_null(strstr(outcome.error, "left"));
    assert_non_null(strstr(outcome.error, "rank 1"));
    assert_true(outcome.seconds < 5);
    ra_comm_destroy(comms[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_groups),
        cmocka_unit_test(test_allgather),
        cmocka_unit_test(test_a_failing_body_fails_all),
        cmocka_unit_test(test_leaving_is_noticed),
        cmocka_unit_test(test_messages_of_a_pair_keep_their_order),
        cmocka_unit_test(test_a_very_late_deadline),
        cmocka_unit_test(test_an_early_end_is_noticed),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
