/* A communicator: a transport, and what has become of it. The only way to a transport's functions: it remembers when
 * one was lost, and then refuses further use. */
#ifndef RA_TRANSPORT_COMM_H
#define RA_TRANSPORT_COMM_H

#include "device/device.h"
#include "transport/watch.h"

struct ra_comm {
    ra_transport_ops ops;
    void *self;
    int rank, ranks;
    int process_ranks;         /* ranks of this process: what its cores are shared by */
    int machine_ranks;         /* ranks of this machine */
    int plans;                 /* that were begun on it: the same number on every rank, for making one is collective */
    int broken;                /* lost: refuses further use */
    int memory_held;           /* the transport may still write into the last group's memory */
    char reason[512];          /* why it is broken */
    int posted;                /* a group is in flight */
    double listened;           /* on ra_clock(): when the transport was last polled without a group in flight */
    const ra_message *watched; /* the group in flight, whose peers are watched while this rank computes; NULL: none */
    int watched_count;
    ra_watch watch;
    /* An error that was met in passing, for the next wait or post to find. */
    ra_status failure;
    int failed_message; /* index in the group in flight, or -1 */
    char failure_text[512];
    const ra_device *device;    /* whose memory it moves beside the host's; NULL: none yet */
    struct ra_staging *staging; /* where the transport moves host memory only; else NULL */
    ra_queue in_flight;         /* of the last group; its device is NULL for host memory */
};

/* Where a wait stands, for the error's text. */
typedef struct ra_place {
    const char *what; /* "the forward pass", "planning" */
    int step;         /* -1: none */
} ra_place;

#define RA_LONGEST_WAIT 1e6 /* that a transport is asked for at once; any finite deadline is made of such waits */

/* RA_ERR_BROKEN when the comm was lost earlier. */
ra_status ra_comm_check(const ra_comm *comm);

/* At plan time: gets ready for groups in the memory of device, which send and receive at most so many bytes each.
 * Nothing to do for the CPU or for a rank that is alone. */
ra_status ra_comm_attach(ra_comm *comm, const ra_device *device, size_t send_bytes, size_t receive_bytes);

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

/* Waits until the event, recorded on the attached device, is done, as ra_plan_wait promises. */
ra_status ra_comm_wait_event(ra_comm *comm, const ra_device *device, void *event, double timeout_seconds);

/* Gives the comm up for a reason that ra_last_error() has, telling the peers. Returns status. */
ra_status ra_comm_lose(ra_comm *comm, ra_status status);

/* The same, and says where it happened. */
ra_status ra_comm_lose_at(ra_comm *comm, ra_status status, ra_place place);

#endif
