/* A communicator: a transport, and what has become of it. The only way to a transport's functions: it remembers when
 * one was lost, and then refuses further use. */
#ifndef RA_TRANSPORT_COMM_H
#define RA_TRANSPORT_COMM_H

#include "device/upload.h"

/* Where a wait stands, for the error's text. */
typedef struct ra_place {
    const char *what; /* "the forward pass", "planning" */
    int step;         /* -1: none */
} ra_place;

#define RA_LONGEST_WAIT 1e6 /* that a transport is asked for at once; any finite deadline is made of such waits */

/* RA_ERR_BROKEN when the comm was lost earlier. */
ra_status ra_comm_check(const ra_comm *comm);
int ra_comm_is_broken(const ra_comm *comm);

/* Whether progress between blocks has met an error, which the next post or wait will return: what is computed
 * meanwhile is not wanted any more. */
int ra_comm_has_failed(const ra_comm *comm);

/* Whether the transport may still write into the memory of the last group, which therefore is never freed. */
int ra_comm_holds_memory(const ra_comm *comm);

/* Whether groups of device memory go on after they are done for the host (ra_transport_ops.ends_on_device). */
int ra_comm_ends_on_device(const ra_comm *comm);

/* How many ranks share this process's cores, and this machine's. */
int ra_comm_process_ranks(const ra_comm *comm);
int ra_comm_machine_ranks(const ra_comm *comm);

/* A plan is begun: how many were before it. That is the same on every rank, for making one is collective. */
int ra_comm_count_plan(ra_comm *comm);

/* The most that any group of a plan has. */
typedef struct ra_group_size {
    int messages;
    size_t send_bytes, receive_bytes;
} ra_group_size;

/* At plan time: gets ready for groups of that size in the memory of device. Nothing to do for a rank that is alone.
 * Fails with an error that was met in passing; the next exchange then loses the comm. */
ra_status ra_comm_attach(ra_comm *comm, const ra_device *device, ra_group_size most);

/* At plan time: what the lists of the comm's plans come to an asynchronous device by. The comm's: plans made after one
 * another use its memory again. */
ra_status ra_comm_uploader(ra_comm *comm, const ra_device *device, ra_uploader **uploader_out);

/* Posts a group; on failure the comm is lost. queue: what its memory belongs to, the attached device; NULL, or a device
 * that is not asynchronous, for host memory. */
ra_status ra_comm_post(ra_comm *comm, const ra_message *messages, int count, const ra_queue *queue, ra_place place);

/* After a post, for a rank that goes on to compute: ra_comm_progress then watches over the peers of the group as a wait
 * would, so that one that dies meanwhile is found by timeout_seconds after its last sign of life, and not only when
 * this rank comes to wait. */
void ra_comm_watch(ra_comm *comm, const ra_message *messages, int count, double timeout_seconds);

/* Waits until the group is done. When the peer that is waited for is silent for timeout_seconds (watch.h), or a message
 * or peer fails, the comm is lost: the peers are told, and the error names this rank, the peer and the step. Over a
 * transport that knows no signs of life it waits for timeout_seconds at most, and so does a wait for this rank's own
 * device. Device memory: waits until the group no longer depends on the host, and puts what comes next on the queue's
 * stream behind it. */
ra_status ra_comm_wait(ra_comm *comm, const ra_message *messages, int count, double timeout_seconds, ra_place place);

/* Memory that ranks lend each other, where all of a comm's are in one process: what is sent need not be copied. Its
 * message has no data, and is an order alone: what the receiver does when it has come is behind what the sender did
 * before it posted.
 *
 *     ra_comm_borrow ── work in peers' memory is put on the stream ── ra_comm_give_back      any number of times
 *     ... ── every peer's stream is known to be behind its last use ── ra_comm_settle       before the pass ends
 *
 * A rank that gives up before it has settled waits until no peer puts anything on its stream that uses others' memory,
 * after which none does, and its stream waits for what is there: the memory may then be freed, or used, behind it. That
 * ends at once only where nothing is computed by the thread that borrows: on asynchronous devices. */
typedef struct ra_memory_ops {
    ra_status (*borrow)(void *self); /* fails when a peer has given up */
    ra_status (*give_back)(void *self, void *stream);
    void (*settle)(void *self);
} ra_memory_ops;
int ra_comm_shares_memory(const ra_comm *comm);
ra_status ra_comm_borrow(ra_comm *comm, ra_place place);
ra_status ra_comm_give_back(ra_comm *comm, void *stream, ra_place place);
void ra_comm_settle(ra_comm *comm);

/* Waits until the event, signalled on the attached device, is done, as ra_plan_wait promises. */
ra_status ra_comm_wait_event(ra_comm *comm, const ra_device *device, void *event, double timeout_seconds);

/* Gives the comm up for a reason that ra_last_error() has, telling the peers. Returns status. */
ra_status ra_comm_lose(ra_comm *comm, ra_status status);

/* The same, and says where it happened. */
ra_status ra_comm_lose_at(ra_comm *comm, ra_status status, ra_place place);

#endif
