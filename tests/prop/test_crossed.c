/* Ranks that run different plans or passes at the same time get an error, and at once: never each other's rows. */
#include "support/cmocka.h"
#include "support/faults/faulty.h"
#include "support/problems/crossed.h"
#include "support/ranks.h"

#include <string.h>

enum { MOST = 5 };
static const double TIMEOUT = 60, AT_ONCE = 10;

static ra_status body(ra_comm *comm, void *user) {
    const crossing *kind = user;
    return crossed_run(comm, *kind, TIMEOUT);
}

static void cross(ra_comm **comms, int ranks, crossing kind) {
    rank_outcome outcomes[MOST];
    int found = 0;
    ranks_run(comms, ranks, body, &kind, outcomes);
    ranks_destroy(comms, ranks);
    for (int r = 0; r < ranks; r++) {
        ra_status status = outcomes[r].status;
        if (kind == CROSSED_NOTHING) {
            if (status != RA_OK) fail_msg("rank %d of %d: %s", r, ranks, outcomes[r].error);
            continue;
        }
        if (status != RA_ERR_TRANSPORT && status != RA_ERR_PEER)
            fail_msg("crossing %d, rank %d of %d: status %d, %s", kind, r, ranks, status, outcomes[r].error);
        if (!strstr(outcomes[r].error, "same calls")) fail_msg("'%s' does not say what to do", outcomes[r].error);
        assert_true(outcomes[r].seconds < AT_ONCE);
        found += status == RA_ERR_TRANSPORT;
    }
    assert_true(found > 0 || kind == CROSSED_NOTHING);
}

static void test_in_process(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= MOST; ranks++)
        for (int kind = 0; kind < CROSSED_COUNT; kind++) {
            ra_comm *comms[MOST];
            assert_int_equal(ra_comm_create_threads(ranks, comms), RA_OK);
            cross(comms, ranks, (crossing)kind);
        }
}

/* Over a transport of somebody else's, whose messages come late. */
static void test_over_a_slow_transport(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        for (int kind = 0; kind < CROSSED_COUNT; kind++) {
            ra_comm *comms[3];
            assert_int_equal(fault_create(3, (fault){.kind = FAULT_DELAY, .seed = seed}, NULL, comms), RA_OK);
            cross(comms, 3, (crossing)kind);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_process),
        cmocka_unit_test(test_over_a_slow_transport),
    };
    return cmocka_run_group_tests_name("crossed", tests, NULL, NULL);
}
