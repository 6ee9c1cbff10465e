/* The life of the transport: duplicating the host's communicator, giving up, and giving the duplicate back. */
#include "mpi_transport.h"

#include <limits.h>
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
    free(mpi->parts);
    free(mpi->telling);
    free(mpi);
}

static ra_status allocate(MPI_Comm host, const ra_mpi_limits *limits, ra_mpi **mpi_out) {
    int ranks;
    MPI_Comm_size(host, &ranks);
    ra_mpi *mpi = calloc(1, sizeof *mpi);
    if (!mpi) return ra_fail(RA_ERR_MEMORY, "no memory for an MPI transport");
    mpi->telling = malloc((size_t)ranks * sizeof *mpi->telling);
    mpi->part_capacity = 2 * (size_t)ranks + 4; /* more messages than any strategy posts at once */
    mpi->parts = malloc(mpi->part_capacity * sizeof *mpi->parts);
    if (!mpi->telling || !mpi->parts) {
        free_memory(mpi);
        return ra_fail(RA_ERR_MEMORY, "no memory for an MPI transport of %d ranks", ranks);
    }
    for (int i = 0; i < ranks; i++) mpi->telling[i] = MPI_REQUEST_NULL;
    MPI_Comm_rank(host, &mpi->rank);
    mpi->ranks = ranks;
    mpi->limits = *limits;
    mpi->comm = MPI_COMM_NULL;
    mpi->hearing = MPI_REQUEST_NULL;
    mpi->heard_from = -1;
    *mpi_out = mpi;
    return RA_OK;
}

/* Waits for a collective operation that is under way. *over_out: whether it came to an end. */
static ra_status await(ra_mpi *mpi, MPI_Request *request, double seconds, const char *call, int *over_out) {
    ra_mpi_wait wait = ra_mpi_wait_start(seconds);
    do {
        RA_MPI_TRY(ra_mpi_check(MPI_Test(request, over_out, MPI_STATUS_IGNORE), call));
        if (*over_out) return RA_OK;
        RA_MPI_TRY(ra_mpi_hear(mpi));
    } while (ra_mpi_wait_pause(&wait, 0));
    return RA_OK;
}

static ra_status duplicate(ra_mpi *mpi, MPI_Comm host) {
    MPI_Request request;
    int over = 0;
    RA_MPI_TRY(ra_mpi_check(MPI_Comm_idup(host, &mpi->comm, &request), "MPI_Comm_idup"));
    RA_MPI_TRY(await(mpi, &request, mpi->limits.create_seconds, "MPI_Comm_idup", &over));
    if (!over) {
        return ra_fail(RA_ERR_TIMEOUT,
                       "rank %d of %d waited %g s for the others to create their comm as well: every rank of the "
                       "communicator must call ra_comm_create_mpi",
                       mpi->rank, mpi->ranks, mpi->limits.create_seconds);
    }
    RA_MPI_TRY(ra_mpi_check(MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
    return ra_mpi_listen(mpi);
}

ra_status ra_mpi_open(MPI_Comm host, const ra_mpi_limits *limits, ra_mpi **mpi_out) {
    ra_mpi *mpi = NULL;
    if (limits->part_bytes < 1 || limits->part_bytes > INT_MAX) {
        return ra_fail(RA_ERR_ARGUMENT, "a part of a message has 1 to %d bytes, not %zu", INT_MAX, limits->part_bytes);
    }
    RA_MPI_TRY(ra_mpi_check_usable());
    RA_MPI_TRY(check_host(host));
    RA_MPI_TRY(allocate(host, limits, &mpi));
    /* On failure the duplication may still be under way and write to mpi->comm, so mpi is leaked. */
    RA_MPI_TRY(duplicate(mpi, host));
    *mpi_out = mpi;
    return RA_OK;
}

/* Drives MPI for the whole time, even when every notice counts as sent: MPI may have copied it and not sent it yet. */
static int abandon(void *self, const char *reason) {
    ra_mpi *mpi = self;
    if (ra_mpi_check_usable() != RA_OK) return mpi->pending == 0;
    mpi->lost = 1;
    ra_mpi_tell(mpi, reason);
    ra_mpi_wait wait = ra_mpi_wait_start(TELL_SECONDS);
    do {
        ra_mpi_all_told(mpi);
        ra_mpi_drain(mpi);
    } while (ra_mpi_wait_pause(&wait, 0));
    ra_mpi_cancel_receives(mpi);
    return mpi->pending == 0;
}

/* Whether every rank came here, so that no message of anyone's is under way and the duplicate can go. */
static int everyone_left(ra_mpi *mpi) {
    MPI_Request request;
    int over = 0;
    if (mpi->pending > 0 || ra_mpi_hear(mpi) != RA_OK) return 0;
    if (MPI_Ibarrier(mpi->comm, &request) != MPI_SUCCESS) return 0;
    return await(mpi, &request, mpi->limits.destroy_seconds, "MPI_Ibarrier", &over) == RA_OK && over;
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
    if (!clean && !mpi->lost) abandon(mpi, "it destroyed its comm while other ranks still used theirs");
    int hushed = ra_mpi_hush(mpi);
    int told = ra_mpi_all_told(mpi);
    if (clean) MPI_Comm_free(&mpi->comm);
    if (hushed && told && mpi->pending == 0) free_memory(mpi);
}

/* The ranks of this communicator on this machine, so that they share its cores. Everyone has come this far, so nobody
 * waits. 0 when MPI does not say. */
static int count_machine_ranks(MPI_Comm comm) {
    MPI_Comm machine;
    int ranks = 0;
    if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine) != MPI_SUCCESS) return 0;
    MPI_Comm_size(machine, &ranks);
    MPI_Comm_free(&machine);
    return ranks;
}

const ra_transport_ops ra_mpi_ops = {
    .struct_size = sizeof(ra_transport_ops),
    .name = "mpi",
    .post = ra_mpi_post,
    .poll = ra_mpi_poll,
    .abandon = abandon,
    .destroy = destroy,
};

ra_status ra_comm_create_mpi_limited(MPI_Comm host, const ra_mpi_limits *limits, ra_comm **comm_out) {
    ra_mpi *mpi = NULL;
    if (!comm_out) return ra_fail(RA_ERR_ARGUMENT, "comm_out is NULL: it is where the comm is put");
    RA_MPI_TRY(ra_mpi_open(host, limits, &mpi));
    ra_transport_ops ops = ra_mpi_ops;
    ops.machine_ranks = count_machine_ranks(mpi->comm);
    ra_status status = ra_comm_create_custom(&ops, mpi, mpi->rank, mpi->ranks, comm_out);
    if (status != RA_OK) destroy(mpi);
    return status;
}

ra_status ra_comm_create_mpi(MPI_Comm mpi, ra_comm **comm_out) {
    ra_mpi_limits limits = RA_MPI_LIMITS_DEFAULT;
    return ra_comm_create_mpi_limited(mpi, &limits, comm_out);
}
