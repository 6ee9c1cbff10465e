/* Whole problems over UCX: processes/process_sweep.h. */
#include "ucx_test.h"

#include "processes/process_sweep.h"

int main(void) {
    ra_comm *comm = NULL;
    ra_rendezvous *meeting = meet();
    int rank = ra_rendezvous_rank(meeting), ranks = ra_rendezvous_ranks(meeting);
    CHECK(ra_comm_create_ucx(rank, ranks, ra_rendezvous_allgather, meeting, NULL, &comm) == RA_OK);
    ra_rendezvous_destroy(meeting);
    run_sweep(comm);
    ra_comm_destroy(comm);
    return 0;
}
