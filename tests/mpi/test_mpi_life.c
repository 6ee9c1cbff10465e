/* Signs of life over MPI: ranks that work are waited for, one that is silent is named by all, a circle of waiters ends,
 * and no question is left behind when a comm is destroyed. Run with at least 2 ranks. */
#include "base/clock.h"
#include "mpi_test.h"
#include "transport/comm.h"
#include "transport/mpi/mpi_transport.h"

#include <time.h>

static const double TIMEOUT = 0.6;

static ra_comm *create(void) {
    ra_comm *comm = NULL;
    CHECK(ra_comm_create_mpi_timeout(MPI_COMM_WORLD, 30, &comm) == RA_OK);
    return comm;
}

static void be_away(ra_comm *comm, double seconds, int progresses) {
    double end = ra_clock() + seconds;
    while (ra_clock() < end) {
        if (progresses) ra_comm_progress(comm);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* The last rank comes late, but says that it is alive; the others wait for it, and for each other, beyond the timeout.
 */
static void work_is_waited_for(int rank, int ranks) {
    int all[64];
    ra_comm *comm = create();
    double start = MPI_Wtime();
    for (int round = 0; round < 2; round++) {
        if (rank == ranks - 1) be_away(comm, 3 * TIMEOUT, 1);
        CHECK(ra_comm_allgather(comm, &rank, sizeof rank, all, TIMEOUT) == RA_OK);
        for (int r = 0; r < ranks; r++) CHECK(all[r] == r);
    }
    CHECK(MPI_Wtime() - start >= 6 * TIMEOUT);
    CHECK(!ra_comm_lost(comm));
    ra_comm_destroy(comm);
}

/* Questions are under way when the answer comes that ends the wait, and the comm is destroyed at once: the next one,
 * which MPI may give the same name, gets none of them. */
static void no_question_is_left(int rank, int ranks) {
    for (int round = 0; round < 8; round++) {
        int all[64];
        ra_comm *comm = create();
        if (rank == round % ranks) be_away(comm, 0.05 + 0.02 * round, 0);
        CHECK(ra_comm_allgather(comm, &rank, sizeof rank, all, TIMEOUT) == RA_OK);
        ra_comm_destroy(comm);
    }
}

static void silence_is_named(int rank, int ranks) {
    int all[64], last = ranks - 1;
    char words[64];
    ra_comm *comm = create();
    snprintf(words, sizeof words, "rank %d has been silent", last);
    CHECK(ra_comm_allgather(comm, &rank, sizeof rank, all, 30) == RA_OK);
    double start = MPI_Wtime();
    if (rank == last) be_away(comm, 4 * TIMEOUT, 0);
    ra_status status = ra_comm_allgather(comm, &rank, sizeof rank, all, TIMEOUT);
    CHECK(status == (rank == 0 ? RA_ERR_TIMEOUT : RA_ERR_PEER));
    CHECK(strstr(ra_last_error(), words) != NULL);
    CHECK(rank == last || MPI_Wtime() - start < TIMEOUT + 1);
    CHECK(ra_comm_lost(comm));
    MPI_Barrier(MPI_COMM_WORLD);
    ra_comm_destroy(comm);
}

/* Each rank waits for the next, and nobody sends. */
static void circles_end(int rank, int ranks) {
    char byte;
    ra_comm *comm = create();
    ra_message message = {.peer = (rank + 1) % ranks, .tag = 3, .data = &byte, .bytes = 1};
    ra_place place = {"a circle", -1};
    double start = MPI_Wtime();
    CHECK(ra_comm_post(comm, &message, 1, NULL, place) == RA_OK);
    ra_status status = ra_comm_wait(comm, &message, 1, TIMEOUT, place);
    CHECK(status == RA_ERR_TIMEOUT || status == RA_ERR_PEER);
    CHECK(strstr(ra_last_error(), "in a circle") != NULL);
    CHECK(MPI_Wtime() - start >= TIMEOUT && MPI_Wtime() - start < 2 * TIMEOUT + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    ra_comm_destroy(comm);
}

/* A rank that has done its chunk hears that another gave up when it asks. */
static void loss_is_heard(int rank, int ranks) {
    ra_comm *comm = create();
    int all[64];
    CHECK(ra_comm_allgather(comm, &rank, sizeof rank, all, 30) == RA_OK);
    CHECK(!ra_comm_lost(comm));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == ranks - 1) ra_comm_lose(comm, ra_fail(RA_ERR_MEMORY, "no memory on the last rank"));
    MPI_Barrier(MPI_COMM_WORLD);
    double end = ra_clock() + 10;
    while (!ra_comm_lost(comm)) CHECK(ra_clock() < end);
    CHECK(rank == ranks - 1 || strstr(ra_last_error(), "no memory on the last rank") != NULL);
    ra_comm_destroy(comm);
}

int main(int argc, char **argv) {
    int rank, ranks, level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(ranks >= 2 && ranks <= 64);
    work_is_waited_for(rank, ranks);
    no_question_is_left(rank, ranks);
    silence_is_named(rank, ranks);
    circles_end(rank, ranks);
    loss_is_heard(rank, ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
