/* Several UCX comms of one process, each used by a thread of its own, at once and in an order of each rank's own. */
#include "ucx_test.h"

#include "support/concurrent.h"

enum { COMMS = 3, PROBLEMS = 6 };

int main(void) {
    concurrent_problems problems = {0};
    ra_comm *comms[COMMS];
    ra_rendezvous *meeting = meet();
    int rank = ra_rendezvous_rank(meeting), ranks = ra_rendezvous_ranks(meeting);
    for (int i = 0; i < COMMS; i++)
        CHECK(ra_comm_create_ucx(rank, ranks, ra_rendezvous_allgather, meeting, NULL, &comms[i]) == RA_OK);
    CHECK(concurrent_make(300, PROBLEMS, ranks, &problems) == RA_OK);
    CHECK(concurrent_run(comms, COMMS, &problems) == RA_OK);
    for (int i = 0; i < COMMS; i++) ra_comm_destroy(comms[i]);
    concurrent_free(&problems);
    ra_rendezvous_destroy(meeting);
    return 0;
}
