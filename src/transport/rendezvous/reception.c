#include "transport/rendezvous/reception.h"

#include "base/clock.h"
#include "base/status.h"
#include "transport/rendezvous/handshake.h"
#include "transport/rendezvous/socket.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Strangers that send nothing are disconnected after a while, the oldest first when many come; a rank that is
 * disconnected so comes again. */
enum { MOST_STRANGERS = 64 };
static const double STRANGER_SECONDS = 5;
static const double VERDICT_SECONDS = 2;

typedef struct guest {
    int socket; /* -1: none */
    double since;
    size_t came; /* bytes of the claim */
    ra_challenge challenge;
    ra_claim claim;
} guest;

typedef struct reception {
    const char *key;
    int listener, ranks, turned_away;
    guest strangers[MOST_STRANGERS];
    guest *seats; /* [ranks]: those whose claim is right */
    struct pollfd *asked;
} reception;

static void cut_off(guest *g) {
    if (g->socket >= 0) close(g->socket);
    *g = (guest){.socket = -1};
}

static void turn_away(reception *r, guest *g) {
    r->turned_away++;
    cut_off(g);
}

/* A free place, or the one of whoever has been there longest without proving anything. */
static guest *find_place(reception *r) {
    guest *place = &r->strangers[0];
    for (int i = 0; i < MOST_STRANGERS; i++) {
        guest *g = &r->strangers[i];
        if (g->socket < 0) return g;
        if (g->since < place->since) place = g;
    }
    turn_away(r, place);
    return place;
}

static void open_door(reception *r) {
    for (int socket; (socket = ra_socket_accept(r->listener)) >= 0;) {
        guest *g = find_place(r);
        *g = (guest){.socket = socket, .since = ra_clock()};
        if (ra_challenge_make(&g->challenge) != RA_OK ||
            ra_socket_send(socket, &g->challenge, sizeof g->challenge, ra_clock()) != RA_OK)
            turn_away(r, g);
    }
}

/* A seat whose owner has gone is free again. */
static ra_status seat(reception *r, guest *g) {
    int rank = g->claim.rank;
    if (g->claim.ranks != r->ranks || rank < 1 || rank >= r->ranks) {
        return ra_fail(RA_ERR_MISMATCH, "rank %d was started as one of %d ranks, rank 0 as one of %d", rank,
                       (int)g->claim.ranks, r->ranks);
    }
    guest *place = &r->seats[rank];
    char byte;
    if (place->socket >= 0 && ra_socket_take(place->socket, &byte, 1) < 0) cut_off(place);
    if (place->socket >= 0) {
        return ra_fail(RA_ERR_MISMATCH,
                       "two processes say that they are rank %d: two jobs have the same address, port and "
                       "RINGATTN_JOB_KEY",
                       rank);
    }
    *place = *g;
    *g = (guest){.socket = -1};
    return RA_OK;
}

/* Reads what has come of the claim. An error ends the job: only who knows the key can cause it. */
static ra_status listen_to(reception *r, guest *g) {
    long got = ra_socket_take(g->socket, (char *)&g->claim + g->came, sizeof g->claim - g->came);
    if (got > 0) g->came += (size_t)got;
    int late = ra_clock() - g->since > STRANGER_SECONDS;
    if (g->came == sizeof g->claim && ra_claim_valid(r->key, &g->challenge, &g->claim)) return seat(r, g);
    if (got < 0 || late || g->came == sizeof g->claim) turn_away(r, g);
    return RA_OK;
}

static int first_absent(reception *r) {
    for (int rank = 1; rank < r->ranks; rank++)
        if (r->seats[rank].socket < 0) return rank;
    return -1;
}

/* Until something comes, or for a moment. */
static void await_any(reception *r) {
    int count = 1;
    r->asked[0] = (struct pollfd){.fd = r->listener, .events = POLLIN};
    for (int i = 0; i < MOST_STRANGERS; i++)
        if (r->strangers[i].socket >= 0)
            r->asked[count++] = (struct pollfd){.fd = r->strangers[i].socket, .events = POLLIN};
    poll(r->asked, (nfds_t)count, 100);
}

static ra_status receive_all(reception *r, double timeout_seconds) {
    double start = ra_clock();
    for (;;) {
        open_door(r);
        for (int i = 0; i < MOST_STRANGERS; i++)
            if (r->strangers[i].socket >= 0) RA_TRY(listen_to(r, &r->strangers[i]));
        int absent = first_absent(r);
        if (absent < 0) return RA_OK;
        if (ra_clock() - start > timeout_seconds)
            return ra_fail(RA_ERR_TIMEOUT,
                           "rank 0 of %d waited %g s for rank %d, which did not come (%d connections were turned away: "
                           "strangers, or ranks with another RINGATTN_JOB_KEY)",
                           r->ranks, timeout_seconds, absent, r->turned_away);
        await_any(r);
    }
}

/* Tells everyone who showed that it knows the key; also those who came twice. */
static ra_status tell(reception *r, ra_status verdict, const char *why) {
    ra_status status = RA_OK;
    for (int i = 0; i < r->ranks + MOST_STRANGERS; i++) {
        guest *g = i < r->ranks ? &r->seats[i] : &r->strangers[i - r->ranks];
        ra_verdict said;
        if (g->socket < 0 || g->came != sizeof g->claim) continue;
        ra_verdict_make(r->key, &g->challenge, &g->claim, verdict, why, &said);
        if (ra_socket_send(g->socket, &said, sizeof said, ra_clock() + VERDICT_SECONDS) != RA_OK && status == RA_OK)
            status = ra_fail(RA_ERR_PEER, "rank %d left before all had come", (int)g->claim.rank);
    }
    return status;
}

static ra_status run(reception *r, double timeout_seconds, int *sockets_out) {
    char why[512];
    ra_status status = receive_all(r, timeout_seconds);
    snprintf(why, sizeof why, "%s", status == RA_OK ? "" : ra_last_error());
    ra_status told = tell(r, status, why);
    if (status != RA_OK) return ra_fail(status, "%s", why);
    RA_TRY(told);
    for (int rank = 0; rank < r->ranks; rank++) {
        sockets_out[rank] = r->seats[rank].socket;
        r->seats[rank].socket = -1;
    }
    return RA_OK;
}

ra_status ra_reception(int listener, const char *key, int ranks, double timeout_seconds, int *sockets_out) {
    reception *r = calloc(1, sizeof *r);
    if (!r) return ra_fail(RA_ERR_MEMORY, "no memory to receive %d ranks", ranks);
    *r = (reception){.key = key, .listener = listener, .ranks = ranks};
    r->seats = calloc((size_t)ranks, sizeof *r->seats);
    r->asked = calloc(1 + MOST_STRANGERS, sizeof *r->asked);
    ra_status status = RA_OK;
    if (!r->seats || !r->asked) status = ra_fail(RA_ERR_MEMORY, "no memory to receive %d ranks", ranks);
    for (int i = 0; i < MOST_STRANGERS; i++) r->strangers[i].socket = -1;
    for (int i = 0; r->seats && i < ranks; i++) r->seats[i].socket = -1;
    if (status == RA_OK) status = run(r, timeout_seconds, sockets_out);
    for (int i = 0; i < MOST_STRANGERS; i++) cut_off(&r->strangers[i]);
    for (int i = 0; r->seats && i < ranks; i++) cut_off(&r->seats[i]);
    free(r->seats);
    free(r->asked);
    free(r);
    return status;
}
