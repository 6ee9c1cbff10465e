/* A rank's watch over the peer that it waits for: a deadline is for silence, not for work.
 *
 *     wait ── slice ──┬── slice ──┬── slice ──┬── ...          poll in slices, and between them:
 *                     └ ask       └ ask       └ ask            is the peer alive? does it wait for this rank in turn?
 *
 * Each rank watches the one that it waits for and no other. So where ranks wait for a rank that waits for a dead one,
 * the last of them gives up, names the dead, and its notice ends the others' waits. Two things end a wait: a peer that
 * has left every question of a whole timeout unanswered; and a circle of ranks that are alive but have all been
 * waiting, for as long, each for the next: ranks that follow different plans, or a message that does not get through.
 * Before a circle is given up, every rank is asked: one that is silent is named, for it may be what holds the message
 * up.
 *
 * Time in which this rank itself did not run (it was stopped, or the whole machine was) is nobody's silence.
 */
#ifndef RA_TRANSPORT_WATCH_H
#define RA_TRANSPORT_WATCH_H

#include <ringattn/transport.h>

typedef struct ra_watch {
    double timeout;
    double slice;  /* seconds between two questions */
    double since;  /* on ra_clock(): the start of the wait, or of the time since this rank runs again */
    double polled; /* on ra_clock(): when the slice under way began */
    int peer;      /* whom it is for; -1: nobody yet */
    double asked;  /* on ra_clock(): when that one was first asked, and this rank ran since */
    double called; /* on ra_clock(): when all ranks were first asked, as the wait may be in vain; -1: not yet */
} ra_watch;

ra_watch ra_watch_start(double timeout_seconds);

/* How long to poll; to be asked right before each poll. */
double ra_watch_slice(ra_watch *watch);

/* After a poll that did not end the wait for peer (-1: for nobody in particular): RA_ERR_TIMEOUT, with a text, when it
 * has lasted long enough. */
ra_status ra_watch_check(ra_watch *watch, const ra_comm *comm, int peer);

#endif
