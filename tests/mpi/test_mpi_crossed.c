/* Ranks that are called for different things over MPI: an error by the deadline on every rank, never a peer's rows. */
#include "mpi_test.h"
#include "support/problems/crossed.h"

#include <ringattn/mpi.h>

static const double TIMEOUT = 1;

static void cross(int rank, crossing kind) {
    ra_comm *comm = NULL;
    CHECK(ra_comm_create_mpi(MPI_COMM_WORLD, &comm) == RA_OK);
    double start = MPI_Wtime();
    ra_status status = crossed_run(comm, kind, kind == CROSSED_NOTHING ? 30 : TIMEOUT);
    if (kind == CROSSED_NOTHING) {
        CHECK(status == RA_OK);
        CHECK(ra_last_error()[0] == 0);
    } else {
        char self[32];
        snprintf(self, sizeof self, "rank %d", rank);
        CHECK(status == RA_ERR_TIMEOUT || status == RA_ERR_PEER);
        CHECK(strstr(ra_last_error(), self) != NULL);
        CHECK(MPI_Wtime() - start < TIMEOUT + 5);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    ra_comm_destroy(comm);
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(ranks >= 2);
    for (int kind = 0; kind < CROSSED_COUNT; kind++) cross(rank, (crossing)kind);
    MPI_Finalize();
    return 0;
}
