/* ra_comm over MPI: the collective, several comms at once, and what becomes of a comm that was lost. */
#include "mpi_test.h"
#include "transport/mpi/mpi_transport.h"

#include <pthread.h>

static const ra_mpi_limits SMALL = {.chunk_bytes = 100, .create_seconds = 60, .destroy_seconds = 0.5};

static unsigned char byte_of(int rank, size_t i) {
    return (unsigned char)(17 * rank + 3 * (int)i + 1);
}

static void gather_once(ra_comm *comm, size_t bytes) {
    int rank = ra_comm_rank(comm), ranks = ra_comm_ranks(comm);
    unsigned char *mine = malloc(bytes), *all = calloc((size_t)ranks, bytes);
    CHECK(mine && all);
    for (size_t i = 0; i < bytes; i++) mine[i] = byte_of(rank, i);
    CHECK(ra_comm_allgather(comm, mine, bytes, all, 30) == RA_OK);
    for (int r = 0; r < ranks; r++) {
        for (size_t i = 0; i < bytes; i++) CHECK(all[(size_t)r * bytes + i] == byte_of(r, i));
    }
    free(mine);
    free(all);
}

static void gather(MPI_Comm host, const ra_mpi_limits *limits) {
    const size_t sizes[] = {1, 99, 100, 101, 1000, 70000};
    ra_comm *comm = NULL, *other = NULL;
    int rank;
    CHECK(ra_comm_create_mpi_limited(host, limits, &comm) == RA_OK);
    CHECK(ra_comm_create_mpi(host, &other) == RA_OK);
    MPI_Comm_rank(host, &rank);
    CHECK(ra_comm_rank(comm) == rank);
    CHECK(strcmp(ra_comm_transport(comm), "mpi") == 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        gather_once(comm, sizes[i]);
        gather_once(other, sizes[i]);
    }
    ra_comm_destroy(comm);
    gather_once(other, 8);
    ra_comm_destroy(other);
}

/* With MPI_THREAD_MULTIPLE any thread may use a comm. */
static void *gather_elsewhere(void *user) {
    gather(MPI_COMM_WORLD, user);
    return NULL;
}

/* The last rank never comes: everyone else gets an error that names itself and a peer, then RA_ERR_BROKEN. */
static void stall(int rank, int ranks) {
    ra_comm *comm = NULL;
    int all[64], last = ranks - 1;
    char self[32];
    CHECK(ra_comm_create_mpi_limited(MPI_COMM_WORLD, &SMALL, &comm) == RA_OK);
    double start = MPI_Wtime();
    if (rank != last) {
        ra_status status = ra_comm_allgather(comm, &rank, sizeof rank, all, 0.4);
        CHECK(status == RA_ERR_TIMEOUT || status == RA_ERR_PEER);
        snprintf(self, sizeof self, "rank %d", rank);
        CHECK(strstr(ra_last_error(), self) != NULL);
        CHECK(strstr(ra_last_error(), "waiting for rank") != NULL);
        CHECK(ra_comm_allgather(comm, &rank, sizeof rank, all, 0.4) == RA_ERR_BROKEN);
        CHECK(MPI_Wtime() - start < 1.4);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    ra_comm_destroy(comm);
}

int main(int argc, char **argv) {
    int rank, ranks, level;
    MPI_Comm half;
    pthread_t thread;
    ra_mpi_limits limits = RA_MPI_LIMITS_DEFAULT;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(ranks <= 64);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    gather(MPI_COMM_WORLD, &limits);
    gather(half, &SMALL);
    MPI_Comm_free(&half);
    if (level == MPI_THREAD_MULTIPLE) {
        CHECK(pthread_create(&thread, NULL, gather_elsewhere, &limits) == 0);
        pthread_join(thread, NULL);
    }
    if (ranks >= 2) stall(rank, ranks);
    MPI_Finalize();
    return 0;
}
