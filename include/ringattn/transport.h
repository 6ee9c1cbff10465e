/* A transport of one's own: how bytes move between ranks, as a table of functions.
 *
 * ringattn moves bytes in groups. In every step of a schedule a rank posts one group of sends and receives, computes,
 * and polls until the group is done. There is at most one group in flight per rank. Both ends of a message post it in
 * the same step, with the same tag and the same byte count. Two messages of a group may have the same peer, direction
 * and tag: between two ranks, messages of one group are posted in the same order at both ends, and meet in it.
 *
 *     post ──► poll(0) ... poll(0) ──► poll(seconds) ──► done            all is well
 *          └─► deadline or error ──► abandon ──► destroy                 nothing else is called after an error
 *
 * Threads. All functions of one `self` are called by the thread that has called ringattn with its comm, never by the
 * threads that a kernel computes with, and never two at once. Different ranks of one process call at the same time.
 *
 * Errors. A function that fails returns a ra_status and describes it with ra_fail: RA_ERR_PEER, with a text
 * that begins with "rank" and its number, when a peer has failed or left, RA_ERR_TRANSPORT when the transport has,
 * RA_ERR_MEMORY for want of memory, or another one that fits. What is no ra_status reaches the user as
 * RA_ERR_TRANSPORT, and an error without ra_fail as a sentence that names the transport. Any error loses the comm, but
 * for those of attach and reserve, which end the plan alone. An error that poll meets while this rank computes is
 * remembered: the transport need not say it twice.
 *
 * ra_transport_ops may grow, as every structure that starts with struct_size; ra_message and ra_sign stay as they are.
 */
#ifndef RINGATTN_TRANSPORT_H
#define RINGATTN_TRANSPORT_H

#include <ringattn/ringattn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A device, opaque: what a backend computes on. */
typedef struct ra_device ra_device;

typedef struct ra_message {
    int peer;     /* never this rank itself */
    int is_send;  /* else a receive */
    int tag;      /* 0 to 32767; messages of different tags, which may be of different plans, must not be matched */
    void *data;   /* stays valid and, for a send, unchanged until the group is done or abandoned */
    size_t bytes; /* at least 1; may exceed 2^31 */
} ra_message;

/* What is known of a rank, by its own word: see inquire. */
typedef struct ra_sign {
    double silent; /* seconds since it gave a sign of life or, when it never has, since it was asked for one */
    int waits_for; /* the rank that it waited for then; -1: it computed, or nothing is known */
    double waited; /* seconds that it had been waiting in that group */
} ra_sign;

typedef struct ra_transport_ops {
    size_t struct_size;
    const char *name;

    /* Starts all `count` messages and returns without waiting for any. The array is valid until the group is done or
     * abandoned. stream is NULL: see post_device. A count of 0 comes only from a transport that has this one beside it
     * for host memory: poll is then only to say whether a peer has given up. */
    ra_status (*post)(void *self, const ra_message *messages, int count, void *stream);

    /* Makes progress on the group; waits for at most `seconds` (0: not at all) until it is done. Sets *done_out.
     * When it is not done, or on an error, *culprit_out is the index of a message that is not complete or that failed,
     * or -1 when no message is to blame. A receive that got another number of bytes than posted is an error. May be
     * called again after it was done, and then says so again, until the next post: a peer that fails after a group is
     * complete does not spoil it. seconds 0 comes from a rank that computes, more from one that waits. */
    ra_status (*poll)(void *self, double seconds, int *done_out, int *culprit_out);

    /* This rank gives up: tells the peers as well as it can, without waiting for them, so that their poll fails with
     * RA_ERR_PEER and a text that holds this reason, of which the beginning matters most; drops the group in flight.
     * Returns nonzero when the memory of the group's messages will not be touched any more; otherwise the plan keeps it
     * allocated for ever. Called once at most. */
    int (*abandon)(void *self, const char *reason);

    /* Frees self. Comes after abandon or without it: a peer whose group still needs this rank must not wait for ever,
     * so its poll fails with RA_ERR_PEER. */
    void (*destroy)(void *self);

    /* How many ranks, this one included, share this machine's cores: what the default number of threads goes by.
     * 0: not known. */
    int machine_ranks;

    /* Device memory. All of the following may be left out: groups are then taken through host memory on the way to post
     * and from poll, and any transport works with any device.
     *
     *     caller's stream      pack ─┐        compute ...        ┌─ what comes next
     *     transport's streams        └──► the group's copies ──►─┘
     *                              post_device               join
     *
     * attach: at plan time; makes what groups in the memory of that device need. A comm knows one device. */
    ra_status (*attach)(void *self, const ra_device *device);

    /* Like post, for memory of the attached device: the group comes after what is on stream so far. poll's done then
     * means that nothing of the group depends on this rank's host any more; the bytes may not have moved yet. */
    ra_status (*post_device)(void *self, const ra_message *messages, int count, void *stream);

    /* The group is done, as poll says: what is put on stream from now on comes after it. */
    ra_status (*join)(void *self, void *stream);

    /* Nonzero: a peer that dies leaves the device waiting, so whoever waits for the device needs a deadline. poll then
     * also finds, when no group is posted, whether a peer has failed; and abandon frees the device. */
    int ends_on_device;

    /* Signs of life. May be left out: a wait then ends when its timeout is over, whatever the peer does meanwhile.
     * With it a wait goes on for as long as the rank that it is for is alive: for a peer that computes as long as that
     * takes, and for one that waits in turn until that one's wait ends. Only a rank that is silent for the whole
     * timeout is given up, by the rank that waits for it; and so is a circle of ranks that all wait, for that long,
     * each for the next.
     *
     * What is last known of peer, another rank; asks it for more, so that the next call knows better, and returns
     * without waiting. Called a few times per timeout by a rank that has waited for a while: ranks that are quick send
     * nothing. A rank is alive when it posts or polls, in whatever way; it waits when it polls with seconds, for the
     * peer of the culprit, which stays the same until it is complete, from the first such poll of the group on. poll
     * must therefore answer peers that ask, and is called now and then while this rank computes, also when no group is
     * in flight or none was ever posted (it is done then); and post with a count of 0 may come at any time. */
    void (*inquire)(void *self, int peer, ra_sign *sign_out);

    /* At plan time, and before attach: from now on a group may have as many as `count` messages. May be left out. What
     * a transport keeps for each message of a group it can make ready here, so that post need not. Larger groups may
     * still come, from exchanges that belong to no plan. */
    ra_status (*reserve)(void *self, int count);
} ra_transport_ops;
#define RA_TRANSPORT_OPS_INIT                                                                                          \
    { .struct_size = sizeof(ra_transport_ops) }
RA_API void ra_transport_ops_init(ra_transport_ops *ops_out);

/* Ranks over a transport of the caller's. ops is copied; self is given to every function and, once this call has
 * succeeded, freed by ops->destroy. */
RA_API ra_status ra_comm_create_custom(const ra_transport_ops *ops, void *self, int rank, int ranks,
                                       ra_comm **comm_out);

#ifdef __cplusplus
}
#endif
#endif
