/* A comm that has another one beside it as its host: a transport whose every function goes to the host brings bytes and
 * bad news round as the host itself would. */
#include "support/cmocka.h"

#include "base/status.h"
#include "transport/comm_state.h"
#include "transport/host.h"

#include <string.h>

static ra_status post(void *self, const ra_message *messages, int count, void *stream) {
    (void)stream;
    return ra_host_post(self, messages, count);
}

static ra_status poll(void *self, double seconds, int *done_out, int *culprit_out) {
    return ra_host_poll(self, seconds, done_out, culprit_out);
}

static int abandon(void *self, const char *reason) {
    return ra_host_abandon(self, reason);
}

static void destroy(void *self) {
    (void)self;
}

static void inquire(void *self, int peer, ra_sign *sign_out) {
    ra_host_inquire(self, peer, sign_out);
}

static const ra_transport_ops OPS = {.struct_size = sizeof OPS,
                                     .name = "beside",
                                     .post = post,
                                     .poll = poll,
                                     .abandon = abandon,
                                     .destroy = destroy,
                                     .inquire = inquire};

/* Every rank's number comes to every rank, over the comm beside. */
static ra_status exchange(ra_comm *host, void *user) {
    (void)user;
    ra_comm *comm = NULL;
    int all[3] = {-1, -1, -1}, mine = ra_comm_rank(host);
    RA_TRY(ra_comm_create_beside(host, &OPS, host, &comm));
    ra_status status = ra_comm_allgather(comm, &mine, sizeof mine, all, 10);
    int same = ra_comm_rank(comm) == mine && ra_comm_ranks(comm) == 3 && comm->process_ranks == host->process_ranks &&
               comm->machine_ranks == host->machine_ranks;
    ra_comm_destroy(comm);
    if (status != RA_OK) return status;
    return same && all[0] == 0 && all[1] == 1 && all[2] == 2 ? RA_OK : ra_fail(RA_ERR_INTERNAL, "other bytes or ranks");
}

static void test_bytes_go_over_the_host(void **state) {
    (void)state;
    assert_int_equal(ra_run_threads(3, exchange, NULL), RA_OK);
}

/* Rank 1 gives up; rank 0 waits for it and must hear why, and both lose the host as well. */
static ra_status fail_or_hear(ra_comm *host, void *user) {
    int *heard = user, all[2], mine = 0;
    ra_comm *comm = NULL;
    RA_TRY(ra_comm_create_beside(host, &OPS, host, &comm));
    int rank = ra_comm_rank(host);
    ra_status status = rank == 1 ? ra_comm_lose(comm, ra_fail(RA_ERR_MEMORY, "no paper left"))
                                 : ra_comm_allgather(comm, &mine, sizeof mine, all, 10);
    heard[rank] = status != RA_OK && strstr(ra_last_error(), "no paper left") && ra_comm_lost(host) &&
                  ra_comm_check(host) == RA_ERR_BROKEN;
    ra_comm_destroy(comm);
    return RA_OK;
}

static void test_a_failure_loses_the_host_on_every_rank(void **state) {
    (void)state;
    int heard[2] = {0};
    assert_int_equal(ra_run_threads(2, fail_or_hear, heard), RA_OK);
    assert_int_equal(heard[0], 1);
    assert_int_equal(heard[1], 1);
}

/* A transport that leaves its signs of life out, and counts how often it is abandoned. */
static int abandoned;

static int count_abandon(void *self, const char *reason) {
    (void)self, (void)reason;
    abandoned++;
    return 0;
}

static void test_what_the_host_lacks(void **state) {
    (void)state;
    ra_transport_ops silent = OPS;
    ra_comm *host = NULL, *comm = NULL;
    silent.inquire = NULL;
    silent.abandon = count_abandon;
    silent.machine_ranks = 2;
    assert_int_equal(ra_comm_create_custom(&silent, NULL, 1, 4, &host), RA_OK);
    assert_int_equal(ra_comm_create_beside(host, &OPS, host, &comm), RA_OK);
    assert_null(comm->ops.inquire);
    assert_int_equal(comm->machine_ranks, 2);
    assert_int_equal(ra_comm_rank(comm), 1);
    assert_int_equal(ra_comm_ranks(comm), 4);
    abandoned = 0;
    assert_int_equal(ra_host_abandon(host, "first"), 0);
    assert_int_equal(ra_host_abandon(host, "second"), 0);
    assert_int_equal(abandoned, 1);
    assert_int_equal(ra_comm_check(host), RA_ERR_BROKEN);
    assert_non_null(strstr(ra_last_error(), "first"));
    ra_comm_destroy(comm);
    ra_comm_destroy(host);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_go_over_the_host),
        cmocka_unit_test(test_a_failure_loses_the_host_on_every_rank),
        cmocka_unit_test(test_what_the_host_lacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
