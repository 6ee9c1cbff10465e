/* The MPI transport: what its files share.
 *
 * All traffic is on a duplicate of the host program's communicator, so nothing of the host is ever matched:
 *
 *   tag 0 .. 32767   the messages of a group, each split into chunks that MPI's int counts can say
 *   tag 32768        notices: a rank that gives up tells every other why, one that destroys its comm before the others
 *                    that it has left, one that has waited for a while asks the rank it waits for, and is answered;
 *                    one receive for them is always posted
 *
 * MPI is never waited in: every wait is a loop of MPI_Test with a deadline, so a peer that is gone costs time but never
 * a hang. Once the comm is lost (this rank gave up, or heard that another did) nothing collective is called any more,
 * and the duplicate is leaked: freeing it could wait for the dead.
 */
#ifndef RA_TRANSPORT_MPI_TRANSPORT_H
#define RA_TRANSPORT_MPI_TRANSPORT_H

#include <ringattn/mpi.h>
#include <ringattn/transport.h>

enum { RA_MPI_NOTICE_TAG = 32768 };

typedef enum ra_mpi_kind { RA_MPI_GAVE_UP, RA_MPI_LEFT, RA_MPI_QUESTION, RA_MPI_ANSWER } ra_mpi_kind;

/* What a notice begins with; all but GAVE_UP have no more. */
typedef struct ra_mpi_word {
    int kind;
    int rank; /* GAVE_UP: who did, which is not the sender where a notice is forwarded; ANSWER: whom the sender waits
               * for, or -1 */
    double waited; /* ANSWER: seconds that it has been waiting */
} ra_mpi_word;

/* Small enough to be sent eagerly by every MPI: a notice must leave without its receiver's help. */
typedef struct ra_mpi_notice {
    ra_mpi_word word;
    char text[496]; /* GAVE_UP: why */
} ra_mpi_notice;

/* What goes between this rank and another beside messages. */
typedef struct ra_mpi_peer {
    MPI_Request asking, answering; /* sends of this rank's; MPI_REQUEST_NULL: none under way */
    ra_mpi_word answer;            /* being sent */
    int owed;                      /* this rank owes it an answer */
    int asked;                     /* it owes this rank one */
    int gone;                      /* it has left */
    double since;                  /* on MPI_Wtime(): when it was last heard, or first asked; -1: neither */
    int waits_for;                 /* by its last answer */
    double waited;
} ra_mpi_peer;

/* Fixed in the library; tests lower them. */
typedef struct ra_mpi_limits {
    size_t chunk_bytes;     /* no MPI call is given more; at most INT_MAX */
    double create_seconds;  /* that a rank waits for the others when the comm is made */
    double destroy_seconds; /* likewise when the communicator is given back */
} ra_mpi_limits;
#define RA_MPI_LIMITS_DEFAULT                                                                                          \
    { .chunk_bytes = (size_t)1 << 30, .create_seconds = RA_TIMEOUT_DEFAULT, .destroy_seconds = 5 }

/* A chunk of a message: one MPI request. */
typedef struct ra_mpi_chunk {
    MPI_Request request; /* MPI_REQUEST_NULL once complete */
    int message;         /* index into the group */
    int bytes;
} ra_mpi_chunk;

typedef struct ra_mpi {
    MPI_Comm comm; /* the duplicate */
    int rank, ranks;
    ra_mpi_limits limits;
    int lost; /* nothing collective from here on */
    int left; /* how many ranks have left: the same */

    const ra_message *messages; /* the group in flight, the caller's */
    ra_mpi_chunk *chunks;       /* receives first, then sends, each in the group's order */
    size_t chunk_count, chunk_capacity;
    size_t pending; /* chunks that are not complete */

    /* The first failure of the group: every later poll says it again, since a caller may poll and not look at the
     * result. */
    ra_status failure;
    int failed_message;
    char failure_text[256];

    MPI_Request hearing; /* the receive for notices */
    ra_mpi_notice heard;
    int heard_from;       /* who gave up first, as far as is known; -1: nobody. Then `heard` says why, and stays */
    MPI_Request *telling; /* [ranks] */
    ra_mpi_notice told;
    ra_mpi_peer *peers; /* [ranks] */
    int owed;           /* how many answers this rank owes */
    int waits_for;      /* the peer that this rank polls for with seconds; -1: none */
    double wait_since;  /* on MPI_Wtime(): the first such poll of the group */
} ra_mpi;

/* mpi_comm.c: collective. *mpi_out is a transport for ra_mpi_ops. */
extern const ra_transport_ops ra_mpi_ops;
ra_status ra_mpi_open(MPI_Comm host, const ra_mpi_limits *limits, ra_mpi **mpi_out);

/* mpi_create.c: collective. */
ra_status ra_comm_create_mpi_limited(MPI_Comm host, const ra_mpi_limits *limits, ra_comm **comm_out);

/* mpi_usable.c: whether MPI may be called at all, and from this thread; says why not. */
ra_status ra_mpi_check_usable(void);

/* mpi_usable.c: RA_OK for MPI_SUCCESS, else RA_ERR_TRANSPORT with MPI's own text. call: "MPI_Isend". */
ra_status ra_mpi_check(int error, const char *call);

/* mpi_group.c: the group in flight. */
ra_status ra_mpi_post(void *self, const ra_message *messages, int count, void *stream);
ra_status ra_mpi_poll(void *self, double seconds, int *done_out, int *culprit_out);

/* Tests every chunk once and says nothing of errors: for a group that is given up. */
void ra_mpi_drain(ra_mpi *mpi);

/* Takes back the receives that no message has met yet; the others go on. A send cannot be taken back. */
void ra_mpi_cancel_receives(ra_mpi *mpi);

/* mpi_notice.c: starts to listen for notices. */
ra_status ra_mpi_listen(ra_mpi *mpi);

/* Takes what has come and answers who asks. RA_ERR_PEER with its reason once a rank has given up. */
ra_status ra_mpi_hear(ra_mpi *mpi);

/* Starts to tell every other rank that this one has left. */
void ra_mpi_take_leave(ra_mpi *mpi);

/* Starts to send every other rank the reason or, when this rank has heard of another's, that one's. */
void ra_mpi_tell(ra_mpi *mpi, const char *reason);

/* Whether a send has come to an end, well or not; there may be none. */
int ra_mpi_is_sent(MPI_Request *request);

/* Makes progress on what was sent; nonzero when MPI will not read this rank's notices any more. */
int ra_mpi_all_told(ra_mpi *mpi);

/* mpi_life.c: the table's inquire. */
void ra_mpi_inquire(void *self, int peer, ra_sign *sign_out);

/* Anything but GAVE_UP has come from that rank, in mpi->heard. */
void ra_mpi_heed(ra_mpi *mpi, int from);

/* Sends what answers can be sent. */
void ra_mpi_answer(ra_mpi *mpi);

/* Whether all that this rank has asked was answered: then no question or answer of its own is under way. */
int ra_mpi_all_answered(const ra_mpi *mpi);

/* This rank waits for a peer, or, -1, does not. */
void ra_mpi_note(ra_mpi *mpi, int peer);

/* mpi_notice.c: stops listening. Returns nonzero when MPI will not write to `heard` any more. */
int ra_mpi_hush(ra_mpi *mpi);

/* mpi_wait.c: a wait with a deadline that leaves the processor to others. */
typedef struct ra_mpi_wait {
    double until, yield_until; /* seconds of the monotonic clock */
} ra_mpi_wait;

ra_mpi_wait ra_mpi_wait_start(double seconds);

/* Between two tests: gives the processor away for a moment. progressed: the last test found something complete.
 * Returns 0 when the time is over. */
int ra_mpi_wait_pause(ra_mpi_wait *wait, int progressed);

#endif
