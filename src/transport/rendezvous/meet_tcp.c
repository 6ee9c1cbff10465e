/* A meeting at a port of rank 0's. Once all have come every round of allgather goes to rank 0 and back:
 *
 *     rank r → 0   header, `bytes` bytes
 *     0 → rank r   header, ranks * bytes bytes; or a header with the reason why there will be none
 */
#include "base/clock.h"
#include "base/status.h"
#include "transport/rendezvous/handshake.h"
#include "transport/rendezvous/meeting.h"
#include "transport/rendezvous/reception.h"
#include "transport/rendezvous/socket.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double TELL_SECONDS = 1;

typedef struct tcp_meeting {
    int *sockets; /* [ranks]: rank 0 has one to each, the others one to rank 0; else -1 */
    char address[256];
    int port;
} tcp_meeting;

typedef struct round_header {
    uint64_t bytes; /* that one rank gives */
    int32_t status; /* an ra_status; with an error nothing follows */
    char why[252];
} round_header;

/* ---- a round ----------------------------------------------------------------------------------------------------- */

static ra_status name_rank(ra_status status, int rank) {
    if (status == RA_OK) return RA_OK;
    char why[512];
    snprintf(why, sizeof why, "%s", ra_last_error());
    return ra_fail(status, "meeting rank %d: %s", rank, why);
}

static ra_status check_header(const round_header *header, int rank, size_t bytes) {
    if (header->status != RA_OK)
        return ra_fail(RA_ERR_PEER, "rank %d gave up: %.*s", rank, (int)sizeof header->why, header->why);
    if (header->bytes == bytes) return RA_OK;
    return ra_fail(RA_ERR_MISMATCH,
                   "rank %d gave %llu bytes where this rank gave %zu: the ranks are at different points", rank,
                   (unsigned long long)header->bytes, bytes);
}

static ra_status collect(const ra_rendezvous *meeting, size_t bytes, unsigned char *all, double deadline) {
    const tcp_meeting *t = meeting->self;
    for (int r = 1; r < meeting->ranks; r++) {
        round_header header;
        RA_TRY(name_rank(ra_socket_receive(t->sockets[r], &header, sizeof header, deadline), r));
        RA_TRY(check_header(&header, r, bytes));
        RA_TRY(name_rank(ra_socket_receive(t->sockets[r], all + (size_t)r * bytes, bytes, deadline), r));
    }
    return RA_OK;
}

static ra_status spread(const ra_rendezvous *meeting, size_t bytes, const unsigned char *all, double deadline) {
    const tcp_meeting *t = meeting->self;
    round_header header = {.bytes = bytes};
    for (int r = 1; r < meeting->ranks; r++) {
        RA_TRY(name_rank(ra_socket_send(t->sockets[r], &header, sizeof header, deadline), r));
        RA_TRY(name_rank(ra_socket_send(t->sockets[r], all, (size_t)meeting->ranks * bytes, deadline), r));
    }
    return RA_OK;
}

static void give_up(const ra_rendezvous *meeting) {
    const tcp_meeting *t = meeting->self;
    char why[512];
    round_header header = {.status = RA_ERR_PEER};
    snprintf(why, sizeof why, "%s", ra_last_error());
    snprintf(header.why, sizeof header.why, "%.251s", why);
    double deadline = ra_clock() + TELL_SECONDS;
    for (int r = 0; r < meeting->ranks; r++)
        if (t->sockets[r] >= 0) ra_socket_send(t->sockets[r], &header, sizeof header, deadline);
    ra_fail(RA_OK, "%s", why);
}

static ra_status ask_rank_0(const ra_rendezvous *meeting, const void *mine, size_t bytes, void *all_out,
                            double deadline) {
    const tcp_meeting *t = meeting->self;
    round_header header = {.bytes = bytes};
    RA_TRY(name_rank(ra_socket_send(t->sockets[0], &header, sizeof header, deadline), 0));
    RA_TRY(name_rank(ra_socket_send(t->sockets[0], mine, bytes, deadline), 0));
    RA_TRY(name_rank(ra_socket_receive(t->sockets[0], &header, sizeof header, deadline), 0));
    RA_TRY(check_header(&header, 0, bytes));
    return name_rank(ra_socket_receive(t->sockets[0], all_out, (size_t)meeting->ranks * bytes, deadline), 0);
}

static ra_status allgather(ra_rendezvous *meeting, const void *mine, size_t bytes, void *all_out) {
    double deadline = ra_clock() + meeting->timeout_seconds;
    /* Rank 0 waits its whole time for a rank that does not come, and then has to say so to those who wait for it. */
    if (meeting->rank > 0) return ask_rank_0(meeting, mine, bytes, all_out, deadline + TELL_SECONDS);
    memcpy(all_out, mine, bytes);
    ra_status status = collect(meeting, bytes, all_out, deadline);
    if (status == RA_OK) status = spread(meeting, bytes, all_out, deadline);
    if (status != RA_OK) give_up(meeting);
    return status;
}

static void destroy(ra_rendezvous *meeting) {
    tcp_meeting *t = meeting->self;
    for (int r = 0; r < meeting->ranks; r++)
        if (t->sockets[r] >= 0) close(t->sockets[r]);
    free(t->sockets);
    free(t);
}

/* ---- meeting ----------------------------------------------------------------------------------------------------- */

static ra_status receive_others(const ra_rendezvous *meeting, const char *key) {
    const tcp_meeting *t = meeting->self;
    int listener = -1;
    if (meeting->ranks == 1) return RA_OK;
    RA_TRY(ra_socket_listen(t->address, t->port, &listener));
    ra_status status = ra_reception(listener, key, meeting->ranks, meeting->timeout_seconds, t->sockets);
    close(listener);
    return status;
}

/* *over_out: rank 0 has said yes or no; else the connection ended, or whoever has the port is somebody else. */
static ra_status present(const ra_rendezvous *meeting, const char *key, int socket, double deadline, int *over_out) {
    ra_challenge challenge;
    ra_claim claim;
    ra_verdict verdict;
    *over_out = 0;
    double soon = ra_clock() + 5;
    if (ra_socket_receive(socket, &challenge, sizeof challenge, soon < deadline ? soon : deadline) != RA_OK)
        return RA_OK;
    if (!ra_challenge_valid(&challenge)) return RA_OK;
    RA_TRY(ra_claim_make(key, &challenge, meeting->rank, meeting->ranks, &claim));
    if (ra_socket_send(socket, &claim, sizeof claim, deadline) != RA_OK) return RA_OK;
    if (ra_socket_receive(socket, &verdict, sizeof verdict, deadline) != RA_OK) return RA_OK;
    if (!ra_verdict_valid(key, &challenge, &claim, &verdict)) return RA_OK;
    *over_out = 1;
    verdict.why[sizeof verdict.why - 1] = 0;
    return verdict.status == RA_OK ? RA_OK : ra_fail(RA_ERR_PEER, "rank 0 refused: %s", verdict.why);
}

static ra_status go_to_rank_0(const ra_rendezvous *meeting, const char *key) {
    const tcp_meeting *t = meeting->self;
    double start = ra_clock(), deadline = start + meeting->timeout_seconds;
    int answered = 0;
    for (int over = 0; ra_clock() < deadline;) {
        int socket = -1;
        RA_TRY(ra_socket_connect(t->address, t->port, deadline, &socket));
        ra_status status = socket < 0 ? RA_OK : present(meeting, key, socket, deadline, &over);
        if (status == RA_OK && over) {
            t->sockets[0] = socket;
            return RA_OK;
        }
        if (socket >= 0) close(socket);
        if (status != RA_OK) return status;
        answered |= socket >= 0;
        ra_meeting_nap(ra_clock() - start);
    }
    return ra_fail(RA_ERR_TIMEOUT, "rank %d of %d waited %g s for rank 0 at %s, port %d, %s", meeting->rank,
                   meeting->ranks, meeting->timeout_seconds, t->address, t->port,
                   answered
                       ? "where somebody answers, but did not let it in: is RINGATTN_JOB_KEY the same on all ranks, "
                         "have all been started, and does the port belong to rank 0?"
                       : "where nobody answers");
}

static ra_status check(const char *address, int port, const char *key) {
    if (!address || !*address) return ra_refuse("the address of rank 0 is empty");
    if (strlen(address) >= sizeof((tcp_meeting *)0)->address) return ra_refuse("the address of rank 0 is too long");
    if (port < 1 || port > 65535) return ra_refuse("the port is %d; it must be between 1 and 65535", port);
    if (!key || !*key)
        return ra_refuse(
            "the job has no key, so anyone who reaches the port could join it: give all ranks the same one, for "
            "instance RINGATTN_JOB_KEY=$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')");
    return RA_OK;
}

ra_status ra_rendezvous_tcp(const char *address, int port, const char *key, int rank, int ranks, double timeout_seconds,
                            ra_rendezvous **rendezvous_out) {
    ra_rendezvous *meeting = NULL;
    if (!rendezvous_out) return ra_refuse("rendezvous_out is NULL");
    RA_TRY(check(address, port, key));
    RA_TRY(ra_meeting_make(rank, ranks, timeout_seconds, &meeting));
    tcp_meeting *t = calloc(1, sizeof *t);
    int *sockets = calloc((size_t)ranks, sizeof *sockets);
    if (!t || !sockets) {
        free(t);
        free(sockets);
        free(meeting);
        return ra_fail(RA_ERR_MEMORY, "no memory for a rendezvous of %d ranks", ranks);
    }
    for (int r = 0; r < ranks; r++) sockets[r] = -1;
    t->sockets = sockets;
    t->port = port;
    snprintf(t->address, sizeof t->address, "%s", address);
    meeting->self = t;
    meeting->allgather = allgather;
    meeting->destroy = destroy;
    ra_status status = rank == 0 ? receive_others(meeting, key) : go_to_rank_0(meeting, key);
    if (status == RA_OK)
        *rendezvous_out = meeting;
    else
        ra_rendezvous_destroy(meeting);
    return status;
}
