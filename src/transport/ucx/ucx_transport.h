/* The UCX transport: what its files share.
 *
 * A comm has a UCX worker of its own, and one endpoint to every peer, over TCP's loopback a second one for the messages
 * of groups (ucx_bulk.c). All traffic is tagged messages:
 *
 *     bits 63..32   the key of the job, drawn by rank 0: a late process of another job is never matched
 *     bits 31..16   the sender's rank
 *     bits 15..0    0 .. 32767: the messages of a group
 *                   RA_UCX_NOTICE: a rank that gives up or leaves tells every other; one that has waited for a while
 *                       asks after the rank it waits for, and is answered; one receive for them is always posted
 *                   RA_UCX_HELLO, RA_UCX_FAREWELL: every rank to every other when a comm is made and destroyed
 *
 * UCX never lets messages of one endpoint and tag overtake each other, and takes any size. It is never waited in: every
 * wait is a loop of ucp_worker_progress with a deadline, on the caller's thread.
 *
 * Three ways lead to the end of a comm: a peer's notice, which has its reason; UCX's word that a peer cannot be reached
 * (a connection that was reset, a keepalive without an answer); and the kernel's, that a process of this machine has
 * ended.
 *
 * Memory of a device goes straight to UCX where its library moves that kind (ucx_device.c), else through the host
 * (staged.h).
 */
#ifndef RA_TRANSPORT_UCX_UCX_TRANSPORT_H
#define RA_TRANSPORT_UCX_UCX_TRANSPORT_H

#include "device/device.h"
#include "transport/ucx/ucx_api.h"

#include <ringattn/ucx.h>
#include <stdint.h>

enum ra_ucx_tags { RA_UCX_NOTICE = 0x8000, RA_UCX_HELLO, RA_UCX_FAREWELL };

enum { RA_UCX_KEY_BYTES = 16 };

typedef enum ra_ucx_kind { RA_UCX_GAVE_UP, RA_UCX_QUESTION, RA_UCX_ANSWER, RA_UCX_LEFT } ra_ucx_kind;

/* What a notice begins with; the others but GAVE_UP have no more. */
typedef struct ra_ucx_word {
    int32_t kind;
    int32_t rank;  /* GAVE_UP: who did, which is not the sender where a notice is forwarded; ANSWER: whom the sender
                    * waits  for, or -1 */
    double waited; /* ANSWER: seconds that it has been waiting */
} ra_ucx_word;

/* Small enough to be sent eagerly by every transport of UCX: a notice must leave without its receiver's help. */
typedef struct ra_ucx_notice {
    ra_ucx_word word;
    char text[496]; /* GAVE_UP: why */
} ra_ucx_notice;

/* Who a process is, for those on the same machine. */
typedef struct ra_ucx_identity {
    unsigned char machine[16]; /* the same on all processes that share a kernel, and on no others */
    uint64_t processes;        /* the name space of process numbers */
    uint64_t memory, files;    /* and those of shared memory: only within both can it be found */
    uint64_t network;          /* and that of networks: only within it does a loopback lead there */
    uint64_t pid, start;       /* a process number is given again; with the time of its start it is not */
} ra_ucx_identity;

typedef struct ra_ucx_peer {
    ucp_ep_h endpoint; /* NULL: none */
    int failed;        /* UCX's status, negative, once it has given the peer up */
    int ended;         /* the kernel says that its process has */
    int left;          /* by its own word: it destroyed its comm, and needs nobody any more */
    double sought;     /* seconds in which this rank looked for what it had sent, after that word */
    int process;       /* a descriptor that tells; -1: none */
    ucp_ep_h bulk;     /* over which the messages of groups go to it; NULL: over `endpoint` */
    int bulk_failed;   /* UCX's status, negative, once that one cannot be used any more */
    uint16_t port;     /* where it listens on this machine's loopback; 0: it does not */
    void *flushing;    /* request of a flush of `bulk`; NULL: none */
    int in_chunks;     /* large messages to and from it go in two chunks: see ucx_group.c */
    void *telling;     /* request of the notice to it; NULL: none */
    void *closing[2];  /* requests of taking the endpoints down; NULL: none */

    void *asking, *answering; /* requests of this rank's words to it; NULL: none under way */
    ra_ucx_word answer;       /* being sent */
    int owed;                 /* this rank owes it an answer */
    int asked;                /* it owes this rank one */
    double since;             /* on ra_clock(): when it was last heard, or first asked; -1: neither */
    int waits_for;            /* by its last answer */
    double waited;
} ra_ucx_peer;

/* A message of the group in flight, or a chunk of one. */
typedef struct ra_ucx_transfer {
    void *request;        /* NULL once complete */
    int message;          /* index into the group */
    size_t offset, bytes; /* of the message */
} ra_ucx_transfer;

/* A coming together of all ranks: see ra_ucx_assemble. */
typedef struct ra_ucx_assembly ra_ucx_assembly;

typedef struct ra_ucx {
    const ra_ucx_api *api;
    ucp_context_h context;
    ucp_worker_h worker;
    int rank, ranks;
    double create_seconds, destroy_seconds;
    const char *transports, *devices;    /* the caller's, until the worker is open */
    unsigned char key[RA_UCX_KEY_BYTES]; /* of the job */
    ra_ucx_peer *peers;                  /* [ranks]; this rank's own is empty */
    ucp_listener_h listener; /* where peers of this machine connect for `bulk`, until all have; NULL: none */
    ucp_ep_h *accepted;      /* [accepted_count <= ranks] the other ends of peers' `bulk` */
    int accepted_count;
    ra_ucx_assembly *assemblies; /* whose memory UCX may still use */
    double look_next;            /* when the kernel is asked about peers again */
    int lost;                    /* this rank gave up, or heard that another did: nobody is waited for any more */

    const ra_message *messages; /* the group in flight, the caller's */
    ra_ucx_transfer *transfers; /* receives first, then sends, each in the group's order */
    int transfer_count, transfer_capacity;
    int pending; /* transfers that are not complete */

    const ra_device *device;      /* whose memory groups may be in; NULL: none was attached */
    ucs_memory_type_t its_memory; /* what UCX calls that memory */
    void *ready;                  /* event: the caller's stream at post_device */
    ucs_memory_type_t memory;     /* of the group in flight */
    int held_back;                /* messages that wait for the device to come to them; 0: the group has left */

    /* The first failure of the group: every later poll says it again, since a caller may poll and not look at the
     * result. */
    ra_status failure;
    int failed_message;
    char failure_text[512];

    void *hearing; /* request of the receive for notices; NULL: none */
    ra_ucx_notice heard;
    int heard_from; /* who gave up first, as far as is known; -1: nobody. Then `heard` says why, and stays */
    ra_ucx_notice told;
    int left;          /* how many peers have */
    double looked;     /* on ra_clock(): the last look at what they have sent */
    int owed;          /* how many answers this rank owes */
    int waits_for;     /* the peer that this rank polls for with seconds; -1: none */
    double wait_since; /* on ra_clock(): the first such poll of the group */
} ra_ucx;

/* ucx_comm.c: a transport for ra_ucx_ops. Collective. */
extern const ra_transport_ops ra_ucx_ops;
int ra_ucx_abandon(void *self, const char *reason);
void ra_ucx_destroy(void *self);

/* What both tables have. */
#define RA_UCX_HOST_OPS                                                                                                \
    .struct_size = sizeof(ra_transport_ops), .name = "ucx", .post = ra_ucx_post, .poll = ra_ucx_poll,                  \
    .abandon = ra_ucx_abandon, .destroy = ra_ucx_destroy, .inquire = ra_ucx_inquire
ra_status ra_ucx_open(int rank, int ranks, ra_allgather allgather, void *user, const ra_ucx_options *options,
                      ra_ucx **ucx_out, int *machine_ranks_out);

/* What all ranks share. */
typedef struct ra_ucx_sharing {
    int memory, loopback;
} ra_ucx_sharing;

/* ucx_worker.c: the context and the worker. */
ra_status ra_ucx_worker_open(ra_ucx *ucx, ra_ucx_sharing shared);
void ra_ucx_worker_close(ra_ucx *ucx);

/* Whether options or the environment say which transports UCX is to use; before the worker is open. */
int ra_ucx_names_transports(const ra_ucx *ucx);

/* RA_OK for UCS_OK, else RA_ERR_TRANSPORT with UCX's own text. call: "ucp_init". */
ra_status ra_ucx_check(const ra_ucx *ucx, ucs_status_t status, const char *call);

/* Lets UCX work for a bounded moment. Returns nonzero when it found something to do. */
int ra_ucx_progress(ra_ucx *ucx);

/* ucx_meet.c: agrees on the key, opens the worker, brings the addresses round, connects with every peer and waits until
 * all have. mine: an error that keeps this rank from taking part; RA_OK: none. */
ra_status ra_ucx_meet(ra_ucx *ucx, ra_status mine, ra_allgather allgather, void *user, int *machine_ranks_out);

/* ucx_bulk.c: whether the networks that the user names, if any, have the loopback among them. */
int ra_ucx_bulk_may_use_loopback(const ra_ucx *ucx);

/* Listens for peers of this machine. *port_out: where; 0: it does not. */
void ra_ucx_bulk_listen(ra_ucx *ucx, uint16_t *port_out);

/* Starts to connect with a peer that listens on this machine, if it is reached over TCP. */
void ra_ucx_bulk_connect(ra_ucx *ucx, int peer);

/* Waits for at most that long until messages of groups can leave without anybody's help: over `bulk`, or, where it came
 * to nothing, over `endpoint`. *absent_out: a peer to which they cannot yet; -1: none. */
ra_status ra_ucx_bulk_settle(ra_ucx *ucx, double seconds, int *absent_out);

/* What a rank of the job shows when it connects: 64 bits of the job's key. */
uint64_t ra_ucx_client_id(const ra_ucx *ucx);

/* Nobody can connect any more. */
void ra_ucx_bulk_close_port(ra_ucx *ucx);

/* Waits for at most that long until what was sent over `bulk` has come. */
void ra_ucx_bulk_flush(ra_ucx *ucx, double seconds);

/* The first peer for which that is still under way; -1: none. */
int ra_ucx_bulk_flushing(ra_ucx *ucx);

/* Takes the other ends of peers' `bulk` down at once. */
void ra_ucx_bulk_drop_accepted(ra_ucx *ucx);

/* ucx_assembly.c: waits for at most that long until every peer has come to this point, `tag`. *absent_out: one that has
 * not; -1: all have. */
ra_status ra_ucx_assemble(ra_ucx *ucx, int tag, double seconds, int *absent_out);

/* Frees what assemblies left; nonzero when UCX will use none of it any more. */
int ra_ucx_dismiss(ra_ucx *ucx);

/* ucx_peer.c: endpoints. */
ra_status ra_ucx_connect(ra_ucx *ucx, int peer, const void *address);

/* RA_ERR_PEER when a peer is gone, naming it. awaited [ranks]: only those count that are not NULL; NULL: all do but
 * those that have left. */
ra_status ra_ucx_find_dead(ra_ucx *ucx, void *const *awaited, int *peer_out);

/* Starts to take an endpoint down, after everything on it has left, or at once. Returns the request; NULL: it is down.
 */
void *ra_ucx_start_closing(ra_ucx *ucx, ucp_ep_h endpoint, int force);

/* Takes all endpoints down: after everything on them has left (force 0), or at once. Waits for at most that long; what
 * is still under way then is given up. Returns nonzero when UCX uses none of them any more. */
int ra_ucx_disconnect(ra_ucx *ucx, int force, double seconds);

/* ucx_process.c: this process, and whether one of the same machine has ended. */
void ra_ucx_identify(ra_ucx_identity *identity_out);
int ra_ucx_share_memory(const ra_ucx_identity *a, const ra_ucx_identity *b);
int ra_ucx_share_loopback(const ra_ucx_identity *a, const ra_ucx_identity *b);

/* A descriptor that becomes readable when the process ends, or -1 where the kernel cannot tell. *ended_out: it has. */
int ra_ucx_watch(const ra_ucx_identity *mine, const ra_ucx_identity *other, int *ended_out);

/* Asks the kernel about all processes that are watched, now and then: rarely enough to cost nothing. */
void ra_ucx_look(ra_ucx *ucx);

/* ucx_group.c: the group in flight. */
ra_status ra_ucx_post(void *self, const ra_message *messages, int count, void *stream);
ra_status ra_ucx_poll(void *self, double seconds, int *done_out, int *culprit_out);

/* Asks after every transfer once and says nothing of errors: for a group that is given up. */
void ra_ucx_drain(ra_ucx *ucx);

/* Takes back the receives that no message has met yet; the others go on. A send cannot be taken back: a peer may be
 * reading it. */
void ra_ucx_cancel_receives(ra_ucx *ucx);

/* Makes a group the one in flight, without starting it; starts it. */
ra_status ra_ucx_take_group(ra_ucx *ucx, const ra_message *messages, int count, ucs_memory_type_t memory);
ra_status ra_ucx_start_group(ra_ucx *ucx, int count);

/* ucx_device.c: the table for a UCX that moves memory of CUDA devices by itself, and whether this one does. */
extern const ra_transport_ops ra_ucx_device_ops;
int ra_ucx_moves_devices(const ra_ucx *ucx);

/* Starts a group that was held back once the device has come to it. */
ra_status ra_ucx_release_group(ra_ucx *ucx);
void ra_ucx_detach(ra_ucx *ucx);

/* ucx_message.c: one tagged message in this process's memory, a word among ranks. request_out: NULL when it is over
 * already. */
ra_status ra_ucx_send(ra_ucx *ucx, int peer, int tag, const void *data, size_t bytes, void **request_out);
ra_status ra_ucx_receive(ra_ucx *ucx, int peer, int tag, void *data, size_t bytes, void **request_out);

/* A message of a group, in memory of that kind. */
ra_status ra_ucx_send_from(ra_ucx *ucx, int peer, int tag, const void *data, size_t bytes, ucs_memory_type_t memory,
                           void **request_out);
ra_status ra_ucx_receive_to(ra_ucx *ucx, int peer, int tag, void *data, size_t bytes, ucs_memory_type_t memory,
                            void **request_out);

/* Whether it is over; it is freed then. came_out: the bytes of a receive; may be NULL. A status of UCS_INPROGRESS: not
 * yet. */
ucs_status_t ra_ucx_test(ra_ucx *ucx, void **request, size_t *came_out, int *from_out);

/* ucx_notice.c: starts to listen for notices. */
ra_status ra_ucx_listen(ra_ucx *ucx);

/* Takes what has come and answers who asks. RA_ERR_PEER with its reason once a rank has given up. */
ra_status ra_ucx_hear(ra_ucx *ucx);

/* Starts to send every other rank the reason or, when this rank has heard of another's, that one's. */
void ra_ucx_tell(ra_ucx *ucx, const char *reason);

/* Starts to tell every other rank that this one leaves: those who need it need not wait. */
void ra_ucx_take_leave(ra_ucx *ucx);

/* Whether UCX will not read this rank's notices any more. */
int ra_ucx_all_told(ra_ucx *ucx);

/* Stops listening. Returns nonzero when UCX will not write to `heard` any more. */
int ra_ucx_hush(ra_ucx *ucx);

/* ucx_life.c: the table's inquire. */
void ra_ucx_inquire(void *self, int peer, ra_sign *sign_out);

/* A question or an answer has come from that rank, in ucx->heard. */
void ra_ucx_heed(ra_ucx *ucx, int from);

/* Sends what answers can be sent. */
void ra_ucx_answer(ra_ucx *ucx);

/* This rank waits for a peer, or, -1, does not. */
void ra_ucx_note(ra_ucx *ucx, int peer);

/* ucx_wait.c: a wait with a deadline that leaves the processor to others. */
typedef struct ra_ucx_wait {
    double until, yield_until; /* on ra_clock() */
} ra_ucx_wait;

ra_ucx_wait ra_ucx_wait_start(double seconds);

/* Between two rounds: gives the processor away for a moment. progressed: the last one found something to do. Returns 0
 * when the time is over. */
int ra_ucx_wait_pause(ra_ucx_wait *wait, int progressed);

#endif
