#include "transport/watch.h"

#include "base/clock.h"
#include "base/status.h"
#include "transport/comm_state.h"

/* The first question comes after one slice, so that ranks that are quick ask none; the last one can be answered for the
 * whole timeout, so that a peer is given up one slice after it at the latest. */
static const double SLICES_PER_TIMEOUT = 64, LONGEST_SLICE = 0.5;

ra_watch ra_watch_start(double timeout_seconds) {
    double slice = timeout_seconds / SLICES_PER_TIMEOUT, start = ra_clock();
    return (ra_watch){.timeout = timeout_seconds,
                      .slice = slice < LONGEST_SLICE ? slice : LONGEST_SLICE,
                      .since = start,
                      .polled = start,
                      .peer = -1,
                      .called = -1};
}

double ra_watch_slice(ra_watch *watch) {
    watch->polled = ra_clock();
    return watch->slice;
}

/* Whether the ranks from peer on wait each for the next and the last for this one, all for `least` seconds by words
 * that are not old. A circle that this rank is not in is found by those who are. */
static int closes_circle(const ra_watch *watch, const ra_comm *comm, ra_sign sign, double least) {
    for (int hops = 1; hops < comm->ranks; hops++) {
        int is_stuck = sign.waits_for >= 0 && sign.waits_for < comm->ranks && sign.waited >= least &&
                       sign.silent < watch->timeout / 4;
        if (!is_stuck) return 0;
        if (sign.waits_for == comm->rank) return 1;
        comm->ops.inquire(comm->self, sign.waits_for, &sign);
    }
    return 0;
}

/* Asks every rank. Returns the one that has been silent for longest, and for how long. */
static int call_roll(const ra_comm *comm, double *silent_out) {
    int quietest = -1;
    *silent_out = -1;
    for (int rank = 0; rank < comm->ranks; rank++) {
        ra_sign sign = {0, -1, 0};
        if (rank == comm->rank) continue;
        comm->ops.inquire(comm->self, rank, &sign);
        if (sign.silent <= *silent_out) continue;
        *silent_out = sign.silent;
        quietest = rank;
    }
    return quietest;
}

/* Ranks that wait for each other may do so because of one that is not among them: a process that was stopped while it
 * held a queue of the machine's shared memory keeps messages between the others from arriving. So the roll is called
 * from half of the timeout on, and whoever does not answer is named. */
static ra_status check_circle(ra_watch *watch, const ra_comm *comm, ra_sign sign, double now) {
    double waited = now - watch->since, patience = watch->timeout / 4, silent;
    if (waited < watch->timeout / 2 || !closes_circle(watch, comm, sign, watch->timeout / 2)) return RA_OK;
    if (watch->called < 0) watch->called = now;
    int quietest = call_roll(comm, &silent);
    int is_over = waited >= watch->timeout && now - watch->called >= patience;
    if (!is_over || !closes_circle(watch, comm, sign, watch->timeout)) return RA_OK;
    if (silent >= patience)
        return ra_fail(RA_ERR_TIMEOUT,
                       "no message within the deadline (rank %d is alive, but it waits for rank %d; rank %d, which has "
                       "been silent for %.1f s, may hold up their messages; waited %.1f s)",
                       watch->peer, sign.waits_for, quietest, silent, waited);
    return ra_fail(RA_ERR_TIMEOUT,
                   "no message within the deadline (rank %d is alive, but it waits for rank %d and so, in a circle, "
                   "for this one; waited %.1f s): do all ranks run the same plan?",
                   watch->peer, sign.waits_for, waited);
}

/* A peer that has spoken may have been alive for another slice, until the next question. */
static ra_status check_peer(ra_watch *watch, const ra_comm *comm, double now) {
    ra_sign sign = {0, -1, 0};
    comm->ops.inquire(comm->self, watch->peer, &sign);
    double asked = now - watch->asked, silent = sign.silent - watch->slice;
    if (asked >= watch->timeout && silent >= watch->timeout)
        return ra_fail(RA_ERR_TIMEOUT, "no answer within the deadline (rank %d has been silent for %.1f s)",
                       watch->peer, asked < sign.silent ? asked : sign.silent);
    return check_circle(watch, comm, sign, now);
}

ra_status ra_watch_check(ra_watch *watch, const ra_comm *comm, int peer) {
    double now = ra_clock();
    int was_absent = now - watch->polled > watch->slice + watch->timeout / 2;
    if (was_absent) watch->since = now;
    if (was_absent || peer != watch->peer) {
        watch->asked = now;
        watch->called = -1;
    }
    watch->peer = peer;
    if (peer >= 0) return check_peer(watch, comm, now);
    if (now - watch->since < watch->timeout) return RA_OK;
    return ra_fail(RA_ERR_TIMEOUT, "no answer within the deadline (waited %.1f s in this step)", now - watch->since);
}
