/* An in-process rank's link to its device: a stream for the copies that it receives, and the events around them.
 *
 *     sender's stream      pack ── ready ── compute ... ────── join ─►  (its slot may be written again)
 *                                    └──┐                       │
 *     receiver's transfer stream        └─► copy ── copied ─────┤
 *                                    ┌──┘                       │
 *     receiver's stream       ── ready ── compute ... ──────── join ─►  (its slot has been filled)
 *
 * A message without data moves nothing: it is the order alone, from the sender's `ready` to the receiver's join.
 *
 * A stream only ever waits for what was put on another one before: no order of the hosts can make a circle. A receiver
 * may signal `copied` again, for a later group, before a slow sender joins, and a sender `ready` before a slow receiver
 * of an order does: who is slow then waits for somewhat more. That `ready` must be on the same stream: before it is
 * signalled on another one, orders are kept.
 */
#ifndef RA_TRANSPORT_LINK_H
#define RA_TRANSPORT_LINK_H

#include "device/device.h"

typedef struct ra_link {
    const ra_device *device; /* NULL: closed */
    void *transfers;         /* stream */
    void *ready;             /* event: the rank's stream when it posted the group in flight */
    void **copied;           /* [capacity] events: of message i, where it is a receive */
    void **awaited;          /* [capacity]: the event that message i, either way, ends with; of the group in flight */
    void *stream;            /* that the group in flight was posted behind */
    void *used[2];           /* events: the rank's stream behind what it last did in other ranks' memory, in this pass
                              * and in the one before, which may be on another stream, and slow peers may still be in */
    int pass;                /* which of them is this pass's */
    int count, capacity;
} ra_link;

/* Ready for groups of up to `capacity` messages in device memory; opened again, for the same device, for as many as the
 * larger capacity. No group may be in flight. */
ra_status ra_link_open(ra_link *link, const ra_device *device, int capacity);
void ra_link_close(ra_link *link);

/* A group is posted behind what is on the stream, which is marked where a message waits for that: where something is
 * sent or copied. */
ra_status ra_link_begin(ra_link *link, const ra_message *messages, int count, void *stream);

/* Message i of one link meets message j of the other; the data of both is NULL, or of neither. */
ra_status ra_link_move(ra_link *sender, int i, const ra_message *from, ra_link *receiver, int j, const ra_message *to);

/* Before the sender posts behind another stream: the receiver, which has not joined its group in flight, waits for the
 * sender's stream as it was when its orders were posted. */
ra_status ra_link_keep_order(const ra_link *sender, ra_link *receiver);

/* What the rank has put on its stream in other ranks' memory; and what is put on the rank's stream from now on comes
 * after what another rank has. */
ra_status ra_link_mark_used(ra_link *link, void *stream);
ra_status ra_link_await_used(ra_link *link, const ra_link *other);

/* The pass is over; what the rank does in other ranks' memory from now on is another one's. */
void ra_link_end_pass(ra_link *link);

/* What is put on stream from now on comes after those of the group's copies that are on their way: all of them, or, for
 * a rank that gives up, those that read or write its memory. */
ra_status ra_link_join(ra_link *link, void *stream);

#endif
