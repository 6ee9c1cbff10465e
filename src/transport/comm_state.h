/* What a comm is made of: for the files of this folder alone. Everybody else calls comm.h. */
#ifndef RA_TRANSPORT_COMM_STATE_H
#define RA_TRANSPORT_COMM_STATE_H

#include "transport/comm.h"
#include "transport/watch.h"

struct ra_comm {
    ra_transport_ops ops;
    void *self;
    const ra_memory_ops *memory_ops; /* NULL: its ranks do not see each other's memory */
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
    /* An error that progress between blocks has met, for the next wait or post to find. */
    ra_status failure;
    int failed_message; /* index in the group in flight, or -1 */
    char failure_text[512];
    const ra_device *device;    /* whose memory it moves beside the host's; NULL: none yet */
    struct ra_staging *staging; /* where the transport moves host memory only; else NULL */
    ra_queue in_flight;         /* of the last group; its device is NULL for host memory */
    ra_uploader *uploaders;     /* for the lists of its plans, one for each device that they are on */
};

#endif
