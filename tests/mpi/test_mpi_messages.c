/* Random groups of messages on sub-communicators while the host program has receives of its own posted that would
 * match anything, with parts of messages made small so that most messages have many. Every byte is checked, and the
 * bytes around every buffer. */
#include "mpi_test.h"
#include "transport/mpi/mpi_transport.h"

enum { MOST_MESSAGES = 256, GUARD = 16 };

typedef struct group {
    ra_message messages[MOST_MESSAGES];
    unsigned char *buffers[MOST_MESSAGES]; /* GUARD bytes before and after the data */
    uint64_t seeds[MOST_MESSAGES];         /* of the data */
    int count;
} group;

static size_t random_size(uint64_t *random, size_t part_bytes) {
    switch (next_random(random) % 4) {
    case 0:
        return 1 + next_random(random) % 8;
    case 1:
        return part_bytes * (1 + next_random(random) % 3); /* ends with a full part */
    case 2:
        return part_bytes * (1 + next_random(random) % 3) + 1;
    default:
        return 1 + next_random(random) % 20000;
    }
}

static void fill(unsigned char *data, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)(next_random(&seed) >> 32);
}

static void add_message(group *g, int peer, int is_send, int tag, size_t bytes, uint64_t seed) {
    unsigned char *buffer = malloc(bytes + 2 * GUARD);
    CHECK(buffer != NULL && g->count < MOST_MESSAGES);
    memset(buffer, 0xee, bytes + 2 * GUARD);
    if (is_send) fill(buffer + GUARD, bytes, seed);
    g->messages[g->count] =
        (ra_message){.peer = peer, .is_send = is_send, .tag = tag, .data = buffer + GUARD, .bytes = bytes};
    g->buffers[g->count] = buffer;
    g->seeds[g->count] = seed;
    g->count++;
}

/* Every rank draws the whole group and keeps the messages that concern it. */
static void draw_group(group *g, const ra_mpi *mpi, uint64_t *random) {
    size_t part_bytes = mpi->limits.part_bytes < 20000 ? mpi->limits.part_bytes : 20000;
    g->count = 0;
    for (int from = 0; from < mpi->ranks; from++) {
        for (int to = 0; to < mpi->ranks; to++) {
            int messages = from == to ? 0 : (int)(next_random(random) % 4);
            for (int i = 0; i < messages; i++) {
                int tag = next_random(random) % 2 ? 32767 - i : i;
                size_t bytes = random_size(random, part_bytes);
                uint64_t seed = next_random(random);
                if (from == mpi->rank) add_message(g, to, 1, tag, bytes, seed);
                if (to == mpi->rank) add_message(g, from, 0, tag, bytes, seed);
            }
        }
    }
}

static void run_group(group *g, ra_mpi *mpi) {
    int done = 0, culprit;
    CHECK(ra_mpi_ops.post(mpi, g->messages, g->count, NULL) == RA_OK);
    for (int i = 0; i < 3 && !done; i++) {
        CHECK(ra_mpi_ops.poll(mpi, 0, &done, &culprit) == RA_OK);
        CHECK(done ? culprit == -1 : culprit >= 0 && culprit < g->count);
    }
    if (!done) CHECK(ra_mpi_ops.poll(mpi, 60, &done, &culprit) == RA_OK && done);
}

static void check_group(group *g) {
    for (int i = 0; i < g->count; i++) {
        size_t bytes = g->messages[i].bytes;
        unsigned char *expected = malloc(bytes), guard[GUARD];
        CHECK(expected != NULL);
        fill(expected, bytes, g->seeds[i]);
        memset(guard, 0xee, GUARD);
        CHECK(memcmp(g->messages[i].data, expected, bytes) == 0);
        CHECK(memcmp(g->buffers[i], guard, GUARD) == 0);
        CHECK(memcmp(g->buffers[i] + GUARD + bytes, guard, GUARD) == 0);
        free(expected);
        free(g->buffers[i]);
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

static void run_rounds(MPI_Comm comm, size_t part_bytes, int rounds, uint64_t seed) {
    static group g;
    ra_mpi_limits limits = RA_MPI_LIMITS_DEFAULT;
    ra_mpi *mpi = NULL;
    limits.part_bytes = part_bytes;
    CHECK(ra_mpi_open(comm, &limits, &mpi) == RA_OK);
    for (int round = 0; round < rounds; round++) {
        draw_group(&g, mpi, &seed);
        run_group(&g, mpi);
        check_group(&g);
    }
    ra_mpi_ops.destroy(mpi);
}

int main(int argc, char **argv) {
    const uint64_t seed = 20240611;
    const size_t part_bytes[] = {61, 4096, (size_t)1 << 30};
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
    for (int i = 0; i < 3; i++) run_rounds(half, part_bytes[i], 12, seed + (uint64_t)i);
    run_rounds(MPI_COMM_WORLD, 1000, 12, seed + 3);
    host_end(&on_half);
    host_end(&on_world);

    MPI_Comm_get_errhandler(half, &handler);
    CHECK(handler == MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&half);
    MPI_Finalize();
    return 0;
}
