/* Making a comm: a transport, a first exchange over it in which the ranks meet, and the comm around it. */
#include "mpi_transport.h"

#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A number that ranks have in common when they share a machine's cores: of the running kernel where it can be had,
 * since containers on one machine have names of their own. */
static uint64_t machine_number(void) {
    char name[MPI_MAX_PROCESSOR_NAME + 1] = "";
    int length = 0, file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        length = (int)read(file, name, sizeof name - 1);
        close(file);
    }
    if (length <= 0) MPI_Get_processor_name(name, &length);
    uint64_t number = 14695981039346656037u; /* FNV-1a */
    for (int i = 0; i < length; i++) number = (number ^ (unsigned char)name[i]) * 1099511628211u;
    return number;
}

static void keep(void *self) {
    (void)self;
}

/* Collective: shows every rank's number to all, through a comm that leaves the transport as it is. */
static ra_status show_numbers(ra_mpi *mpi, uint64_t mine, uint64_t *all_out) {
    ra_transport_ops ops = ra_mpi_ops;
    ra_comm *comm = NULL;
    ops.destroy = keep;
    RA_TRY(ra_comm_create_custom(&ops, mpi, mpi->rank, mpi->ranks, &comm));
    ra_status status = ra_comm_allgather(comm, &mine, sizeof mine, all_out, mpi->limits.create_seconds);
    ra_comm_destroy(comm);
    return status;
}

/* Collective: finds out that every rank has a transport, and how many share this machine. */
static ra_status meet(ra_mpi *mpi, int *machine_ranks_out) {
    uint64_t mine = machine_number(), *all = malloc((size_t)mpi->ranks * sizeof *all);
    ra_status status =
        all ? show_numbers(mpi, mine, all) : ra_fail(RA_ERR_MEMORY, "no memory for %d ranks", mpi->ranks);
    *machine_ranks_out = 0;
    for (int r = 0; status == RA_OK && r < mpi->ranks; r++) *machine_ranks_out += all[r] == mine;
    free(all);
    return status;
}

/* The last that can fail comes after the ranks have met: those who have a comm then hear of it at its first use. */
static ra_status finish(ra_mpi *mpi, ra_comm **comm_out) {
    ra_transport_ops ops = ra_mpi_ops;
    RA_TRY(meet(mpi, &ops.machine_ranks));
    return ra_comm_create_custom(&ops, mpi, mpi->rank, mpi->ranks, comm_out);
}

ra_status ra_comm_create_mpi_limited(MPI_Comm host, const ra_mpi_limits *limits, ra_comm **comm_out) {
    char why[512];
    ra_mpi *mpi = NULL;
    if (!comm_out) return ra_fail(RA_ERR_ARGUMENT, "comm_out is NULL: it is where the comm is put");
    RA_TRY(ra_mpi_open(host, limits, &mpi));
    ra_status status = finish(mpi, comm_out);
    if (status == RA_OK) return RA_OK;
    snprintf(why, sizeof why, "%s", ra_last_error());
    if (!mpi->lost) ra_mpi_ops.abandon(mpi, why);
    ra_mpi_ops.destroy(mpi);
    return ra_fail(status, "%s", why);
}

ra_status ra_comm_create_mpi_timeout(MPI_Comm mpi, double timeout_seconds, ra_comm **comm_out) {
    ra_mpi_limits limits = RA_MPI_LIMITS_DEFAULT;
    if (!(timeout_seconds >= 0) || isinf(timeout_seconds))
        return ra_fail(RA_ERR_ARGUMENT, "timeout_seconds is %g; it must be finite and not negative", timeout_seconds);
    if (timeout_seconds > 0) limits.create_seconds = timeout_seconds;
    if (limits.create_seconds < limits.destroy_seconds) limits.destroy_seconds = limits.create_seconds;
    return ra_comm_create_mpi_limited(mpi, &limits, comm_out);
}

ra_status ra_comm_create_mpi(MPI_Comm mpi, ra_comm **comm_out) {
    return ra_comm_create_mpi_timeout(mpi, 0, comm_out);
}
