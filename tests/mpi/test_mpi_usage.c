/* What ra_comm_create_mpi refuses, each with a sentence; and that it leaves the host's communicator alone. */
#include "mpi_test.h"
#include "transport/mpi/mpi_transport.h"

#include <pthread.h>

static const ra_mpi_limits PATIENT = {.chunk_bytes = 1000, .create_seconds = 60, .destroy_seconds = 60};
static const ra_mpi_limits HASTY = {.chunk_bytes = 1000, .create_seconds = 0.3, .destroy_seconds = 0.3};

static void refuse_bad_communicators(int rank, int ranks) {
    ra_comm *comm = NULL;
    MPI_Comm half, inter;
    CHECK_FAILS(ra_comm_create_mpi(MPI_COMM_NULL, &comm), RA_ERR_ARGUMENT, "MPI_COMM_NULL");
    CHECK_FAILS(ra_comm_create_mpi(MPI_COMM_WORLD, NULL), RA_ERR_ARGUMENT, "comm_out");
    if (ranks >= 2) {
        int in_first = rank < ranks / 2;
        MPI_Comm_split(MPI_COMM_WORLD, in_first, rank, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, in_first ? ranks / 2 : 0, 9, &inter);
        CHECK_FAILS(ra_comm_create_mpi(inter, &comm), RA_ERR_ARGUMENT, "inter-communicator");
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
    CHECK(comm == NULL);
}

/* Assertions stay on the main thread: the other one only brings back what it got. */
typedef struct attempt {
    ra_status status;
    char text[256];
} attempt;

static void *create_elsewhere(void *user) {
    attempt *a = user;
    ra_comm *comm;
    a->status = ra_comm_create_mpi(MPI_COMM_SELF, &comm);
    snprintf(a->text, sizeof a->text, "%s", ra_last_error());
    return NULL;
}

static void refuse_wrong_thread(void) {
    int level;
    attempt a = {.status = RA_OK};
    pthread_t thread;
    MPI_Query_thread(&level);
    CHECK(level < MPI_THREAD_MULTIPLE);
    CHECK(pthread_create(&thread, NULL, create_elsewhere, &a) == 0);
    pthread_join(thread, NULL);
    CHECK(a.status == RA_ERR_ARGUMENT);
    CHECK(strstr(a.text, "MPI_THREAD_MULTIPLE") != NULL);
}

/* Only rank 0 comes in time. The others come later, find the duplication complete and rank 0 gone again. */
static void missing_rank_is_an_error(int rank, int ranks) {
    ra_mpi *mpi = NULL;
    if (ranks < 2) return;
    double start = MPI_Wtime();
    if (rank == 0) {
        CHECK_FAILS(ra_mpi_open(MPI_COMM_WORLD, &HASTY, &mpi), RA_ERR_TIMEOUT, "rank 0 of");
        CHECK(mpi == NULL && MPI_Wtime() - start < 1.3);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0 && ra_mpi_open(MPI_COMM_WORLD, &HASTY, &mpi) == RA_OK) ra_mpi_ops.destroy(mpi);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_Wtime() - start < 5);
}

/* A handler of the host's own must survive and must not be called. */
static int handler_calls;
static void host_handler(MPI_Comm *comm, int *error, ...) {
    (void)comm;
    (void)error;
    handler_calls++;
}

static void host_is_left_alone(void) {
    MPI_Comm host;
    MPI_Errhandler mine, after;
    ra_mpi *mpi = NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &host);
    MPI_Comm_create_errhandler(host_handler, &mine);
    MPI_Comm_set_errhandler(host, mine);
    CHECK(ra_mpi_open(host, &PATIENT, &mpi) == RA_OK);
    CHECK(mpi->comm != host);
    MPI_Comm_get_errhandler(host, &after);
    CHECK(after == mine);
    MPI_Comm_get_errhandler(mpi->comm, &after);
    CHECK(after == MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    ra_mpi_ops.destroy(mpi);
    MPI_Comm_get_errhandler(host, &after);
    CHECK(after == mine && handler_calls == 0);
    MPI_Comm_free(&host);
}

int main(int argc, char **argv) {
    int rank, ranks, level;
    ra_comm *comm = NULL;
    ra_mpi *kept = NULL;
    CHECK_FAILS(ra_comm_create_mpi(MPI_COMM_WORLD, &comm), RA_ERR_ARGUMENT, "not initialised");
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    refuse_bad_communicators(rank, ranks);
    refuse_wrong_thread();
    host_is_left_alone();
    missing_rank_is_an_error(rank, ranks);

    CHECK(ra_mpi_open(MPI_COMM_SELF, &PATIENT, &kept) == RA_OK);
    MPI_Finalize();
    ra_mpi_ops.destroy(kept);
    CHECK_FAILS(ra_comm_create_mpi(MPI_COMM_WORLD, &comm), RA_ERR_ARGUMENT, "finalised");
    return 0;
}
