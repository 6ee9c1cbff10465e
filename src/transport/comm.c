#include "transport/comm.h"

#include "base/clock.h"
#include "base/status.h"
#include "core/problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ra_status ra_comm_create_custom(const ra_transport_ops *ops, void *self, int rank, int ranks, ra_comm **comm_out) {
    if (!comm_out) RA_REFUSE("comm_out is NULL");
    if (!ops || ops->struct_size != sizeof *ops)
        RA_REFUSE("ops is NULL or its struct_size is not sizeof(ra_transport_ops), %zu", sizeof *ops);
    if (!ops->name || !ops->post || !ops->poll || !ops->abandon || !ops->destroy)
        RA_REFUSE("ops needs a name and all four functions: post, poll, abandon, destroy");
    if (ranks < 1 || ranks > RA_MAX_RANKS) RA_REFUSE("ranks is %d; it must be between 1 and %d", ranks, RA_MAX_RANKS);
    if (rank < 0 || rank >= ranks) RA_REFUSE("rank is %d; it must be between 0 and %d", rank, ranks - 1);
    ra_comm *comm = calloc(1, sizeof *comm);
    if (!comm) return ra_fail(RA_ERR_MEMORY, "no memory for a communicator");
    int machine_ranks = ops->machine_ranks > 0 ? ops->machine_ranks : 1;
    *comm = (ra_comm){.ops = *ops, .self = self, .rank = rank, .ranks = ranks, .process_ranks = 1,
                      .machine_ranks = machine_ranks};
    *comm_out = comm;
    return RA_OK;
}

void ra_comm_destroy(ra_comm *comm) {
    if (!comm) return;
    comm->ops.destroy(comm->self);
    free(comm);
}

int ra_comm_rank(const ra_comm *comm) {
    return comm ? comm->rank : -1;
}

int ra_comm_ranks(const ra_comm *comm) {
    return comm ? comm->ranks : -1;
}

const char *ra_comm_transport(const ra_comm *comm) {
    return comm ? comm->ops.name : "";
}

ra_status ra_comm_check(const ra_comm *comm) {
    if (!comm) RA_REFUSE("comm is NULL");
    if (comm->broken)
        return ra_fail(RA_ERR_BROKEN, "rank %d: the communicator was lost earlier (%s); destroy it and make another one",
                       comm->rank, comm->reason);
    return RA_OK;
}

ra_status ra_comm_lose(ra_comm *comm, ra_status status) {
    if (comm->broken) return status;
    comm->broken = 1;
    snprintf(comm->reason, sizeof comm->reason, "%s", ra_last_error());
    comm->memory_held = !comm->ops.abandon(comm->self, comm->reason);
    return ra_fail(status, "%s", comm->reason);
}

/* ", step 3 of the forward pass" */
static const char *place_text(ra_place place, char *text, size_t bytes) {
    if (place.step < 0) snprintf(text, bytes, "%s", place.what);
    else snprintf(text, bytes, "step %d of %s", place.step, place.what);
    return text;
}

/* Says where it happened in front of what the transport said, or what the deadline means. */
static ra_status lose_at(ra_comm *comm, ra_status status, const ra_message *culprit, ra_place place) {
    char where[96], cause[512];
    snprintf(cause, sizeof cause, "%s", ra_last_error());
    place_text(place, where, sizeof where);
    if (culprit)
        ra_fail(status, "rank %d, %s, %s rank %d: %s", comm->rank, where, culprit->is_send ? "sending to" : "waiting for",
                culprit->peer, cause);
    else
        ra_fail(status, "rank %d, %s: %s", comm->rank, where, cause);
    return ra_comm_lose(comm, status);
}

ra_status ra_comm_post(ra_comm *comm, const ra_message *messages, int count, void *stream, ra_place place) {
    if (count == 0) return RA_OK;
    ra_status status = comm->ops.post(comm->self, messages, count, stream);
    return status == RA_OK ? RA_OK : lose_at(comm, status, NULL, place);
}

ra_status ra_comm_wait(ra_comm *comm, const ra_message *messages, int count, double deadline, ra_place place) {
    if (count == 0) return RA_OK;
    double start = ra_clock();
    for (;;) {
        int done = 0, culprit = -1;
        double left = deadline - ra_clock();
        double wait = left < 0 ? 0 : left > RA_LONGEST_WAIT ? RA_LONGEST_WAIT : left;
        ra_status status = comm->ops.poll(comm->self, wait, &done, &culprit);
        const ra_message *message = culprit >= 0 && culprit < count ? &messages[culprit] : NULL;
        if (status != RA_OK) return lose_at(comm, status, message, place);
        if (done) return RA_OK;
        if (left <= 0) {
            ra_fail(RA_ERR_TIMEOUT, "no answer within the deadline (waited %.1f s in this step)", ra_clock() - start);
            return lose_at(comm, RA_ERR_TIMEOUT, message, place);
        }
    }
}

void ra_comm_progress(ra_comm *comm) {
    int done, culprit;
    comm->ops.poll(comm->self, 0, &done, &culprit);
}
