/* Making a comm: its timeout, and what becomes of it when one rank has no memory at any point of it. */
#include "mpi_test.h"
#include "processes/failing_memory.h"

#include <ringattn/mpi.h>

static void refuse_wrong_timeouts(void) {
    ra_comm *comm = NULL;
    const double wrong[] = {-1, 1.0 / 0.0, 0.0 / 0.0};
    for (int i = 0; i < 3; i++)
        CHECK_FAILS(ra_comm_create_mpi_timeout(MPI_COMM_WORLD, wrong[i], &comm), RA_ERR_ARGUMENT, "timeout_seconds");
    CHECK(comm == NULL);
}

/* The last rank does not come in time: the others wait for as long as they said. It comes later, and finds them gone.
 */
static void the_timeout_is_kept(int rank, int ranks) {
    ra_comm *comm = NULL;
    double start = MPI_Wtime();
    if (rank < ranks - 1) {
        CHECK_FAILS(ra_comm_create_mpi_timeout(MPI_COMM_WORLD, 0.5, &comm), RA_ERR_TIMEOUT, "waited 0.5 s");
        CHECK(MPI_Wtime() - start >= 0.5 && MPI_Wtime() - start < 1.5);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    if (rank == ranks - 1) {
        CHECK_FAILS(ra_comm_create_mpi_timeout(MPI_COMM_WORLD, 0.5, &comm), RA_ERR_TIMEOUT, "rank 0");
        CHECK(MPI_Wtime() - start < 2.5);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* One rank's call fails, the others hear of it at once: while they make their comm, or at its first use. Returns
 * whether there was such a call. */
static int fail_at(long index, int rank, int culprit) {
    ra_comm *comm = NULL;
    char word[32];
    int all[64], met = 0;
    snprintf(word, sizeof word, "rank %d", culprit);
    double start = MPI_Wtime();
    if (rank == culprit) fail_memory(index);
    ra_status status = ra_comm_create_mpi_timeout(MPI_COMM_WORLD, 20, &comm);
    if (rank == culprit) {
        met = memory_calls > index;
        fail_memory(-1);
        CHECK(status == (met ? RA_ERR_MEMORY : RA_OK));
        CHECK(!met || strstr(ra_last_error(), "no memory") != NULL);
    }
    MPI_Bcast(&met, 1, MPI_INT, culprit, MPI_COMM_WORLD);
    if (status == RA_OK) status = ra_comm_allgather(comm, &rank, sizeof rank, all, 20);
    if (!met) CHECK(status == RA_OK);
    if (met && rank != culprit) CHECK_FAILS(status, RA_ERR_PEER, "no memory");
    if (met && rank != culprit) CHECK(strstr(ra_last_error(), word) != NULL);
    CHECK(MPI_Wtime() - start < 10);
    MPI_Barrier(MPI_COMM_WORLD);
    ra_comm_destroy(comm);
    return met;
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(ranks >= 2 && ranks <= 64);
    refuse_wrong_timeouts();
    for (int culprit = 0; culprit < ranks; culprit += ranks - 1) {
        long index = 0;
        while (fail_at(index, rank, culprit)) index++;
        CHECK(index >= 6); /* the transport and its arrays, the ranks' numbers, the comms */
    }
    the_timeout_is_kept(rank, ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
