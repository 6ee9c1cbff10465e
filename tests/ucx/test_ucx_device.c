/* Groups in a device's memory that UCX reads and writes by itself, on the device of support/queued.h, whose memory is
 * the host's: random problems, as over in-process ranks bit for bit. A group that left before the device had come to it
 * would carry what was there before. */
#include "transport/ucx/ucx_transport.h"
#include "ucx_test.h"

#include "processes/process_sweep.h"
#include "support/queued/queued.h"

enum { PROBLEMS = 24 };

/* The table that a UCX with CUDA gets, whatever this one can. */
static ra_comm *create(ra_rendezvous *meeting) {
    ra_transport_ops ops = ra_ucx_device_ops;
    ra_ucx *ucx = NULL;
    ra_comm *comm = NULL;
    int rank = ra_rendezvous_rank(meeting), ranks = ra_rendezvous_ranks(meeting);
    CHECK(ra_ucx_open(rank, ranks, ra_rendezvous_allgather, meeting, NULL, &ucx, &ops.machine_ranks) == RA_OK);
    CHECK(ra_comm_create_custom(&ops, ucx, rank, ranks, &comm) == RA_OK);
    return comm;
}

int main(void) {
    static test_case c;
    ra_rendezvous *meeting = meet();
    queued_device *queued =
        queued_create((queued_habits){.seed = (uint64_t)test_number("RANK"), .delay_one_in = 6, .delay_most_us = 300});
    CHECK(queued != NULL);
    ra_comm *comm = create(meeting);
    for (uint64_t seed = 1; seed <= PROBLEMS; seed++) {
        case_make(&c, seed, seed % 3 ? RA_F64 : RA_BF16, 3e6);
        c.options.backend = queued_backend(queued);
        c.options.kernel = NULL;
        check_one(comm, &c);
    }
    ra_comm_destroy(comm);
    queued_destroy(queued);
    ra_rendezvous_destroy(meeting);
    return 0;
}
