#include "transport/watch.h"

#include "base/clock.h"
#include "base/status.h"
#include "transport/comm_state.h"

#include <stdio.h>

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
 * that are not old. A circle that this rank is not in is found by those who are. *lowest_out: the lowest rank in it. */
static int closes_circle(const ra_watch *watch, const ra_comm *comm, ra_sign sign, double least, int *lowest_out) {
    *lowest_out = comm->rank < watch->peer ? comm->rank : watch->peer;
    for (int hops = 1; hops < comm->ranks; hops++) {
        int is_stuck = sign.waits_for >= 0 && sign.waits_for < comm->ranks && sign.waited >= least &&
                       sign.silent < watch->timeout / 4;
        if (!is_stuck) return 0;
        if (sign.waits_for == comm->rank) return 1;
        if (sign.waits_for < *lowest_out) *lowest_out = sign.waits_for;
        comm->ops.inquire(comm->self, sign.waits_for, &sign);
    }
    return 0;
}

/* Whoever is to blame may not be whom this rank waits for: a process that was stopped while it held a queue of shared
 * memory keeps messages between others from arriving, or keeps another process inside MPI. So, before a rank gives up,
 * every rank has been asked for this part of the timeout, and those that have not answered are named. */
static double patience(const ra_watch *watch) {
    return watch->timeout / 4;
}

static void call_roll(ra_watch *watch, const ra_comm *comm, double now) {
    ra_sign sign;
    if (watch->called < 0) watch->called = now;
    for (int rank = 0; rank < comm->ranks; rank++)
        if (rank != comm->rank) comm->ops.inquire(comm->self, rank, &sign);
}

/* ", rank 3 has been silent for 1.0 s" for the first ranks, other than the watched one, that did not answer the roll;
 * "" when all did, or have not had the time to. */
static const char *silent_ranks(const ra_watch *watch, const ra_comm *comm, double now, char *text, size_t size) {
    enum { MOST_NAMED = 3 };
    size_t length = 0;
    text[0] = '\0';
    for (int rank = 0, named = 0; rank < comm->ranks && named < MOST_NAMED; rank++) {
        ra_sign sign = {0, -1, 0};
        int had_time = watch->called >= 0 && now - watch->called >= patience(watch);
        if (rank == comm->rank || rank == watch->peer || !had_time) continue;
        comm->ops.inquire(comm->self, rank, &sign);
        if (sign.silent < patience(watch)) continue;
        length += (size_t)snprintf(text + length, size - length, ", rank %d has been silent for %.1f s", rank,
                                   sign.silent < watch->timeout ? sign.silent : now - watch->called);
        named++;
    }
    return text;
}

static ra_status give_up_circle(const ra_watch *watch, const ra_comm *comm, int waits_for, double now) {
    char text[256];
    return ra_fail(RA_ERR_TIMEOUT,
                   "no message within the deadline (rank %d is alive, but it waits for rank %d and so, in a circle, "
                   "for this one%s; waited %.1f s): do all ranks run the same plan?",
                   watch->peer, waits_for, silent_ranks(watch, comm, now, text, sizeof text), now - watch->since);
}

/* A peer that has spoken may have been alive for another slice, until the next question. */
static ra_status check_peer(ra_watch *watch, const ra_comm *comm, double now) {
    ra_sign sign = {0, -1, 0};
    comm->ops.inquire(comm->self, watch->peer, &sign);
    double asked = now - watch->asked, silent = sign.silent - watch->slice, waited = now - watch->since;
    double half = watch->timeout / 2;
    int lowest, may_be_dead = asked >= half && silent >= half;
    int may_be_circle = waited >= half && closes_circle(watch, comm, sign, half, &lowest);
    if (!may_be_dead && !may_be_circle) return RA_OK;
    /* Of a circle one rank does, lest thousands ask thousands. The others leave it the time to say what it found. */
    int calls = may_be_dead || lowest == comm->rank;
    if (calls) call_roll(watch, comm, now);
    if (asked >= watch->timeout && silent >= watch->timeout) {
        char text[256];
        return ra_fail(RA_ERR_TIMEOUT, "no answer within the deadline (rank %d has been silent for %.1f s%s)",
                       watch->peer, asked < sign.silent ? asked : sign.silent,
                       silent_ranks(watch, comm, now, text, sizeof text));
    }
    int is_over = calls ? waited >= watch->timeout && now - watch->called >= patience(watch)
                        : waited >= watch->timeout + patience(watch);
    if (!is_over || !closes_circle(watch, comm, sign, watch->timeout, &lowest)) return RA_OK;
    return give_up_circle(watch, comm, sign.waits_for, now);
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
