/* Several comms of the same in-process ranks, each used by a thread of its own on every rank, at once and in an order
 * of each rank's own. */
#include "support/cmocka.h"

#include "support/concurrent.h"
#include "support/ranks.h"

enum { RANKS = 3, COMMS = 4, PROBLEMS = 6 };

typedef struct job {
    ra_comm *comms[RANKS][COMMS];
    concurrent_problems problems;
} job;

static ra_status body(ra_comm *comm, void *user) {
    job *j = user;
    return concurrent_run(j->comms[ra_comm_rank(comm)], COMMS, &j->problems);
}

static void test_comms_do_not_disturb_each_other(void **state) {
    (void)state;
    static job j;
    ra_comm *of_one[RANKS], *first[RANKS];
    rank_outcome outcomes[RANKS];
    assert_int_equal(concurrent_make(300, PROBLEMS, RANKS, &j.problems), RA_OK);
    for (int c = 0; c < COMMS; c++) {
        assert_int_equal(ra_comm_create_threads(RANKS, of_one), RA_OK);
        for (int r = 0; r < RANKS; r++) j.comms[r][c] = of_one[r];
    }
    for (int r = 0; r < RANKS; r++) first[r] = j.comms[r][0];
    ranks_run(first, RANKS, body, &j, outcomes);
    for (int r = 0; r < RANKS; r++)
        if (outcomes[r].status != RA_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
    for (int c = 0; c < COMMS; c++) {
        for (int r = 0; r < RANKS; r++) of_one[r] = j.comms[r][c];
        ranks_destroy(of_one, RANKS);
    }
    concurrent_free(&j.problems);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_comms_do_not_disturb_each_other)};
    return cmocka_run_group_tests_name("concurrent", tests, NULL, NULL);
}
