/* The life of the transport: duplicating the host's communicator, giving up, and giving the duplicate back. */
#include "mpi_transport.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* How long a rank that gives up sees to it that its notices leave. */
static const double TELL_SECONDS = 0.1;

static ra_status check_host(MPI_Comm host) {
    int inter = 0, found = 0, *tag_max = NULL;
    if (host == MPI_COMM_NULL) {
        return ra_fail(RA_ERR_ARGUMENT, "the communicator is MPI_COMM_NULL: only its members may create a comm on it");
    }
    MPI_Comm_test_inter(host, &inter);
    if (inter) {
        return ra_fail(RA_ERR_ARGUMENT, "the communicator is an inter-communicator: merge it with MPI_Intercomm_merge "
                                        "first");
    }
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_max, &found);
    if (found && *tag_max < RA_MPI_NOTICE_TAG) {
        return ra_fail(RA_ERR_UNSUPPORTED, "this MPI allows tags up to %d only, ringattn needs %d", *tag_max,
                       RA_MPI_NOTICE_TAG);
    }
    return RA_OK;
}

static void free_memory(ra_mpi *mpi) {
    free(mpi->chunks);
    free(mpi->telling);
    free(mpi->peers);
    free(mpi);
}

static void clear(ra_mpi *mpi, MPI_Comm host, const ra_mpi_limits *limits) {
    *mpi = (ra_mpi){
        .limits = *limits, .comm = MPI_COMM_NULL, .hearing = MPI_REQUEST_NULL, .heard_from = -1, .waits_for = -1};
    MPI_Comm_rank(host, &mpi->rank);
    MPI_Comm_size(host, &mpi->ranks);
}

static ra_status allocate(MPI_Comm host, const ra_mpi_limits *limits, ra_mpi **mpi_out) {
    ra_mpi *mpi = malloc(sizeof *mpi);
    if (!mpi) return ra_fail(RA_ERR_MEMORY, "no memory for an MPI transport");
    clear(mpi, host, limits);
    size_t ranks = (size_t)mpi->ranks;
    mpi->telling = malloc(ranks * sizeof *mpi->telling);
    mpi->peers = malloc(ranks * sizeof *mpi->peers);
    mpi->chunk_capacity = 2 * ranks + 4; /* more messages than any strategy posts at once */
    mpi->chunks = malloc(mpi->chunk_capacity * sizeof *mpi->chunks);
    if (!mpi->telling || !mpi->peers || !mpi->chunks) {
        free_memory(mpi);
        return ra_fail(RA_ERR_MEMORY, "no memory for an MPI transport of %zu ranks", ranks);
    }
    for (size_t i = 0; i < ranks; i++) {
        mpi->telling[i] = MPI_REQUEST_NULL;
        mpi->peers[i] =
            (ra_mpi_peer){.asking = MPI_REQUEST_NULL, .answering = MPI_REQUEST_NULL, .since = -1, .waits_for = -1};
    }
    *mpi_out = mpi;
    return RA_OK;
}

/* Waits for a collective operation that is under way. *over_out: whether it came to an end. */
static ra_status await(ra_mpi *mpi, MPI_Request *request, double seconds, const char *call, int *over_out) {
    ra_mpi_wait wait = ra_mpi_wait_start(seconds);
    do {
        RA_TRY(ra_mpi_check(MPI_Test(request, over_out, MPI_STATUS_IGNORE), call));
        if (*over_out) return RA_OK;
        RA_TRY(ra_mpi_hear(mpi));
    } while (ra_mpi_wait_pause(&wait, 0));
    return RA_OK;
}

static ra_status duplicate(ra_mpi *mpi, MPI_Comm host) {
    MPI_Request request;
    int over = 0;
    RA_TRY(ra_mpi_check(MPI_Comm_idup(host, &mpi->comm, &request), "MPI_Comm_idup"));
    RA_TRY(await(mpi, &request, mpi->limits.create_seconds, "MPI_Comm_idup", &over));
    if (!over) {
        return ra_fail(RA_ERR_TIMEOUT,
                       "rank %d of %d waited %g s for the others to create their comm as well: every rank of the "
                       "communicator must call ra_comm_create_mpi",
                       mpi->rank, mpi->ranks, mpi->limits.create_seconds);
    }
    return ra_mpi_check(MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

/* Sends one rank the notice. Whether it has left before the time was over. */
static int tell_one(const ra_mpi *mpi, int peer, ra_mpi_wait *wait) {
    MPI_Request request;
    if (MPI_Isend(&mpi->told, sizeof mpi->told, MPI_BYTE, peer, RA_MPI_NOTICE_TAG, mpi->comm, &request) != MPI_SUCCESS)
        return 1;
    do
        if (ra_mpi_is_sent(&request)) return 1;
    while (ra_mpi_wait_pause(wait, 0));
    MPI_Request_free(&request);
    return 0;
}

/* Sends every other rank the reason with no memory but the transport's own, and drives MPI for a while, as abandon
 * does. Whether MPI is done with it. */
static int tell_without_memory(ra_mpi *mpi, const char *reason) {
    int sent = 1, there;
    ra_mpi_wait wait = ra_mpi_wait_start(TELL_SECONDS);
    mpi->told = (ra_mpi_notice){.word = {.kind = RA_MPI_GAVE_UP, .rank = mpi->rank}};
    snprintf(mpi->told.text, sizeof mpi->told.text, "%s", reason);
    for (int peer = 0; peer < mpi->ranks; peer++)
        if (peer != mpi->rank && !tell_one(mpi, peer, &wait)) sent = 0;
    do MPI_Iprobe(MPI_ANY_SOURCE, RA_MPI_NOTICE_TAG, mpi->comm, &there, MPI_STATUS_IGNORE);
    while (ra_mpi_wait_pause(&wait, 0));
    return sent;
}

/* This rank cannot make its comm, for the reason that ra_last_error() has. It takes part in the duplication all the
 * same, so that it can tell the others, who would wait for it. It has no memory; so there is a transport for this,
 * which is lost to MPI when something does not come to its end. */
static ra_status decline(MPI_Comm host, const ra_mpi_limits *limits, ra_status status) {
    static ra_mpi spare;
    static atomic_flag taken = ATOMIC_FLAG_INIT;
    char why[256];
    snprintf(why, sizeof why, "%s", ra_last_error());
    if (!atomic_flag_test_and_set(&taken)) {
        clear(&spare, host, limits);
        if (duplicate(&spare, host) == RA_OK && tell_without_memory(&spare, why)) atomic_flag_clear(&taken);
    }
    return ra_fail(status, "%s", why);
}

ra_status ra_mpi_open(MPI_Comm host, const ra_mpi_limits *limits, ra_mpi **mpi_out) {
    ra_mpi *mpi = NULL;
    if (limits->chunk_bytes < 1 || limits->chunk_bytes > INT_MAX) {
        return ra_fail(RA_ERR_ARGUMENT, "a chunk of a message has 1 to %d bytes, not %zu", INT_MAX,
                       limits->chunk_bytes);
    }
    RA_TRY(ra_mpi_check_usable());
    RA_TRY(check_host(host));
    ra_status status = allocate(host, limits, &mpi);
    if (status != RA_OK) return decline(host, limits, status);
    /* On failure the duplication may still be under way and write to mpi->comm, so mpi is leaked. */
    RA_TRY(duplicate(mpi, host));
    RA_TRY(ra_mpi_listen(mpi));
    *mpi_out = mpi;
    return RA_OK;
}

/* Drives MPI for the whole time, even when every notice counts as sent: MPI may have copied it and not sent it yet. */
static void see_off(ra_mpi *mpi) {
    ra_mpi_wait wait = ra_mpi_wait_start(TELL_SECONDS);
    do {
        ra_mpi_all_told(mpi);
        ra_mpi_drain(mpi);
    } while (ra_mpi_wait_pause(&wait, 0));
}

static int abandon(void *self, const char *reason) {
    ra_mpi *mpi = self;
    if (ra_mpi_check_usable() != RA_OK) return mpi->pending == 0;
    mpi->lost = 1;
    ra_mpi_tell(mpi, reason);
    see_off(mpi);
    ra_mpi_cancel_receives(mpi);
    return mpi->pending == 0;
}

/* Waits until this rank's questions are answered, for at most `seconds`; returns the seconds that are left, or -1. */
static double await_answers(ra_mpi *mpi, double seconds) {
    double end = MPI_Wtime() + seconds;
    ra_mpi_wait wait = ra_mpi_wait_start(seconds);
    do {
        if (ra_mpi_hear(mpi) != RA_OK) return -1;
        if (ra_mpi_all_answered(mpi)) return end - MPI_Wtime();
    } while (ra_mpi_wait_pause(&wait, 0));
    return -1;
}

/* Whether every rank came here, so that nothing of anyone's is under way and the duplicate can go: MPI may give its
 * name to another communicator, where a question that comes late would be taken for one. */
static int everyone_left(ra_mpi *mpi) {
    MPI_Request request;
    int over = 0;
    if (mpi->pending > 0 || mpi->left > 0) return 0;
    double left = await_answers(mpi, mpi->limits.destroy_seconds);
    if (left < 0 || mpi->left > 0 || MPI_Ibarrier(mpi->comm, &request) != MPI_SUCCESS) return 0;
    return await(mpi, &request, left, "MPI_Ibarrier", &over) == RA_OK && over;
}

static void destroy(void *self) {
    ra_mpi *mpi = self;
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised) {
        free_memory(mpi);
        return;
    }
    if (ra_mpi_check_usable() != RA_OK) return; /* a thread that may not call MPI: all that is left is to leak */

    int clean = !mpi->lost && everyone_left(mpi);
    if (!clean && !mpi->lost) { /* those who still work need not wait for this rank, and fail only when they must */
        ra_mpi_take_leave(mpi);
        see_off(mpi);
        ra_mpi_cancel_receives(mpi);
    }
    int hushed = ra_mpi_hush(mpi);
    int told = ra_mpi_all_told(mpi);
    if (clean) MPI_Comm_free(&mpi->comm);
    if (hushed && told && mpi->pending == 0) free_memory(mpi);
}

const ra_transport_ops ra_mpi_ops = {
    .struct_size = sizeof(ra_transport_ops),
    .name = "mpi",
    .post = ra_mpi_post,
    .poll = ra_mpi_poll,
    .abandon = abandon,
    .destroy = destroy,
    .inquire = ra_mpi_inquire,
};
