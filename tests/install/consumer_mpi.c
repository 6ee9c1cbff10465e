/* An outside program over MPI: the ranks tell each other who they are through a ringattn comm. */
#include <ringattn/mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int wrong = 1, seen[64] = {0};
    MPI_Init(&argc, &argv);
    ra_comm *comm;
    ra_status status = ra_comm_create_mpi(MPI_COMM_WORLD, &comm);
    if (status == RA_OK) {
        int rank = ra_comm_rank(comm), ranks = ra_comm_ranks(comm);
        status = ranks <= 64 ? ra_comm_allgather(comm, &rank, sizeof rank, seen, 0) : RA_ERR_ARGUMENT;
        wrong = ranks < 2;
        for (int r = 0; status == RA_OK && r < ranks; r++) wrong |= seen[r] != r;
        ra_comm_destroy(comm);
    }
    if (status != RA_OK || wrong) {
        fprintf(stderr, "consumer_mpi: %s: %s\n", ra_status_text(status), ra_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
