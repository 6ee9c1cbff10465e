/* Whole problems over MPI, on a communicator whose ranks are in reverse: processes/process_sweep.h. */
#include "mpi_test.h"

#include "processes/process_sweep.h"

#include <ringattn/mpi.h>

int main(int argc, char **argv) {
    ra_comm *comm = NULL;
    MPI_Comm reversed;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    CHECK(ra_comm_create_mpi(reversed, &comm) == RA_OK);
    run_sweep(comm);
    ra_comm_destroy(comm);
    MPI_Comm_free(&reversed);
    MPI_Finalize();
    return 0;
}
