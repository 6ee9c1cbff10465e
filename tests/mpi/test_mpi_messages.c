/* Random groups of messages on sub-communicators while the host program has receives of its own posted that would
 * match anything, with chunks of messages made small so that most messages have many. Every byte is checked, and the
 * bytes around every buffer. */
#include "mpi_test.h"
#include "transport/mpi/mpi_transport.h"

#include "processes/messages.h"

/* Around the chunks that a message is sent in. */
static size_t random_size(void *self, uint64_t *random) {
    const ra_mpi *mpi = self;
    size_t chunk = mpi->limits.chunk_bytes < 20000 ? mpi->limits.chunk_bytes : 20000;
    switch (next_random(random) % 4) {
    case 0:
        return 1 + next_random(random) % 8;
    case 1:
        return chunk * (1 + next_random(random) % 3); /* ends with a full one */
    case 2:
        return chunk * (1 + next_random(random) % 3) + 1;
    default:
        return 1 + next_random(random) % 20000;
    }
}

/* The host program's own traffic: a receive that any message would match, met only at the end. */
typedef struct host_traffic {
    MPI_Comm comm;
    MPI_Request receive;
    int got;
} host_traffic;

static void host_begin(host_traffic *host, MPI_Comm comm) {
    host->comm = comm;
    host->got = -1;
    MPI_Irecv(&host->got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &host->receive);
}

static void host_end(host_traffic *host) {
    int rank, ranks, mine, complete;
    MPI_Comm_rank(host->comm, &rank);
    MPI_Comm_size(host->comm, &ranks);
    MPI_Test(&host->receive, &complete, MPI_STATUS_IGNORE);
    MPI_Barrier(host->comm);
    CHECK(!complete);
    mine = 1000 + rank;
    MPI_Send(&mine, 1, MPI_INT, (rank + 1) % ranks, 5, host->comm);
    MPI_Wait(&host->receive, MPI_STATUS_IGNORE);
    CHECK(host->got == 1000 + (rank + ranks - 1) % ranks);
}

static void run_rounds(MPI_Comm comm, size_t chunk_bytes, int rounds, uint64_t seed) {
    static group g;
    ra_mpi_limits limits = RA_MPI_LIMITS_DEFAULT;
    ra_mpi *mpi = NULL;
    limits.chunk_bytes = chunk_bytes;
    CHECK(ra_mpi_open(comm, &limits, &mpi) == RA_OK);
    group_target target = {&ra_mpi_ops, mpi, mpi->rank, mpi->ranks, random_size};
    for (int round = 0; round < rounds; round++) {
        draw_group(&g, &target, &seed);
        post_group(&g, &target);
        finish_group(&g, &target);
        check_group(&g);
    }
    ra_mpi_ops.destroy(mpi);
}

int main(int argc, char **argv) {
    const uint64_t seed = 20240611;
    const size_t chunk_bytes[] = {61, 4096, (size_t)1 << 30};
    int rank, ranks;
    host_traffic on_world, on_half;
    MPI_Comm half;
    MPI_Errhandler handler;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0) printf("seed %llu, %d ranks\n", (unsigned long long)seed, ranks);

    /* Two halves at once, ranks in reverse: rank numbers of the sub-communicator and of the world differ. */
    MPI_Comm_split(MPI_COMM_WORLD, ranks >= 4 ? rank % 2 : 0, ranks - rank, &half);
    host_begin(&on_world, MPI_COMM_WORLD);
    host_begin(&on_half, half);
    for (int i = 0; i < 3; i++) run_rounds(half, chunk_bytes[i], 12, seed + (uint64_t)i);
    run_rounds(MPI_COMM_WORLD, 1000, 12, seed + 3);
    host_end(&on_half);
    host_end(&on_world);

    MPI_Comm_get_errhandler(half, &handler);
    CHECK(handler == MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&half);
    MPI_Finalize();
    return 0;
}
