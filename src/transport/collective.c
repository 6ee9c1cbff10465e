/* The one collective: everyone's bytes to rank 0, which sends them all back. Small and rare, so two hops through one rank
 * are good enough, and any transport has what it needs. */
#include "base/status.h"
#include "transport/comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int TAG_COLLECT = 32766, TAG_RETURN = 32767;

static ra_status exchange(ra_comm *comm, const ra_message *messages, int count, double timeout) {
    ra_place place = {"an exchange with all ranks", -1};
    RA_TRY(ra_comm_post(comm, messages, count, NULL, place));
    return ra_comm_wait(comm, messages, count, timeout, place);
}

/* Rank 0: one message per peer, of `bytes` bytes from or to all + peer * stride. */
static ra_status with_everyone(ra_comm *comm, int is_send, unsigned char *all, size_t stride, size_t bytes,
                               double timeout) {
    ra_message *messages = calloc((size_t)comm->ranks, sizeof *messages);
    if (!messages) return ra_comm_lose(comm, ra_fail(RA_ERR_MEMORY, "no memory for an exchange with %d ranks", comm->ranks));
    for (int r = 1; r < comm->ranks; r++)
        messages[r - 1] = (ra_message){r, is_send, is_send ? TAG_RETURN : TAG_COLLECT, all + (size_t)r * stride, bytes};
    ra_status status = exchange(comm, messages, comm->ranks - 1, timeout);
    free(messages);
    return status;
}

static ra_status collect(ra_comm *comm, unsigned char *all, size_t bytes, double timeout) {
    size_t total = bytes * (size_t)comm->ranks;
    if (comm->rank == 0) {
        RA_TRY(with_everyone(comm, 0, all, bytes, bytes, timeout));
        return with_everyone(comm, 1, all, 0, total, timeout);
    }
    ra_message to_root = {0, 1, TAG_COLLECT, all + (size_t)comm->rank * bytes, bytes};
    ra_message from_root = {0, 0, TAG_RETURN, all, total};
    RA_TRY(exchange(comm, &to_root, 1, timeout));
    return exchange(comm, &from_root, 1, timeout);
}

ra_status ra_comm_allgather(ra_comm *comm, const void *mine, size_t bytes, void *all_out, double timeout_seconds) {
    RA_TRY(ra_comm_check(comm));
    if (!bytes) return RA_OK;
    if (!mine || !all_out) RA_REFUSE("mine or all_out is NULL");
    if (!(timeout_seconds >= 0) || isinf(timeout_seconds)) RA_REFUSE("timeout_seconds must be finite and not negative");
    if (bytes > SIZE_MAX / 2 / (size_t)comm->ranks) RA_REFUSE("bytes is too large");
    double timeout = timeout_seconds > 0 ? timeout_seconds : RA_DEFAULT_TIMEOUT;
    size_t total = bytes * (size_t)comm->ranks;
    /* Not the caller's memory: a transport that is given up may still write there later, and then this is leaked. */
    unsigned char *all = malloc(total);
    if (!all) return ra_comm_lose(comm, ra_fail(RA_ERR_MEMORY, "no memory to exchange %zu bytes", total));
    memcpy(all + (size_t)comm->rank * bytes, mine, bytes);
    ra_status status = comm->ranks == 1 ? RA_OK : collect(comm, all, bytes, timeout);
    if (status == RA_OK) memcpy(all_out, all, total);
    if (!comm->memory_held) free(all);
    return status;
}
