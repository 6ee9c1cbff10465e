/* How ranks find each other: cards and addresses go round by the caller's allgather, then every rank says hello to
 * every other over UCX.
 *
 *     allgather    card:     who I am and where, whether I can take part, a random number,
 *                            whether my user names the transports
 *     worker       opened: over shared memory alone where all ranks share it
 *     allgather    length:   how long my address is, or why I have none,
 *                            whether my UCX moves memory of devices, at which port of the loopback I listen
 *     allgather    address:  padded to the longest
 *     connect      an endpoint to every peer, and a second one to those that are reached over TCP's loopback
 *     hello        to and from everyone, with the job's whole key: rank 0's random number
 */
#include "transport/ucx/ucx_transport.h"

#include "base/clock.h"
#include "base/entropy.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[8] = "ra-ucx4";

/* Whether a rank can go on, and why not. */
typedef struct state_of_rank {
    int32_t status; /* an ra_status */
    char reason[256];
} state_of_rank;

typedef struct card {
    char magic[8];
    int32_t rank, ranks;
    state_of_rank state;
    unsigned char key[RA_UCX_KEY_BYTES];
    ra_ucx_identity identity;
    int32_t names_transports; /* its user said what UCX is to use, which may not be shared memory */
} card;

typedef struct length_card {
    state_of_rank state;
    uint64_t address_bytes;
    int32_t moves_devices;
    uint16_t port;
} length_card;

static ra_status bring_round(ra_allgather allgather, void *user, const void *mine, size_t bytes, void *all_out) {
    unsigned said = ra_fail_count();
    ra_status status = allgather(user, mine, bytes, all_out);
    if (status == RA_OK) return RA_OK;
    char why[512];
    snprintf(why, sizeof why, "%s", ra_fail_count() == said ? "it gave no reason" : ra_last_error());
    /* A function of another language may return anything. */
    ra_status known = status > RA_OK && status <= RA_ERR_INTERNAL ? status : RA_ERR_TRANSPORT;
    return ra_fail(known, "the allgather for UCX's addresses failed with %d: %s", (int)status, why);
}

static state_of_rank describe(ra_status status) {
    state_of_rank state = {.status = status};
    if (status != RA_OK) snprintf(state.reason, sizeof state.reason, "%s", ra_last_error());
    return state;
}

static ra_status check_state(const state_of_rank *state, int rank) {
    if (state->status == RA_OK) return RA_OK;
    return ra_fail((ra_status)state->status, "rank %d cannot take part: %.*s", rank, (int)sizeof state->reason,
                   state->reason);
}

static ra_status check_card(const card *c, int rank, int ranks) {
    if (memcmp(c->magic, MAGIC, sizeof MAGIC) != 0)
        return ra_fail(RA_ERR_MISMATCH,
                       "what came as rank %d's card is no card: does allgather put everyone's bytes in rank "
                       "order, and do all ranks have the same version of ringattn?",
                       rank);
    RA_TRY(check_state(&c->state, rank));
    if (c->rank != rank || c->ranks != ranks)
        return ra_fail(RA_ERR_MISMATCH, "the allgather has rank %d of %d in the place of rank %d of %d", (int)c->rank,
                       (int)c->ranks, rank, ranks);
    return RA_OK;
}

/* status: this rank's so far. One that cannot take part takes part in this, and then says its own reason. */
static ra_status exchange_cards(const ra_ucx *ucx, ra_status status, ra_allgather allgather, void *user,
                                card *all_out) {
    card mine = {.rank = ucx->rank, .ranks = ucx->ranks};
    memcpy(mine.magic, MAGIC, sizeof MAGIC);
    ra_ucx_identify(&mine.identity);
    mine.names_transports = ra_ucx_names_transports(ucx);
    if (status == RA_OK) status = ra_random_bytes(mine.key, sizeof mine.key);
    mine.state = describe(status);
    ra_status round = bring_round(allgather, user, &mine, sizeof mine, all_out);
    if (status != RA_OK) return ra_fail(status, "%s", mine.state.reason);
    RA_TRY(round);
    for (int r = 0; r < ucx->ranks; r++) RA_TRY(check_card(&all_out[r], r, ucx->ranks));
    return RA_OK;
}

static int is_over_memory(const card *a, const card *b) {
    return ra_ucx_share_memory(&a->identity, &b->identity) && !a->names_transports && !b->names_transports;
}

static int count_machine(const card *cards, int rank, int ranks) {
    int count = 0;
    for (int r = 0; r < ranks; r++)
        count += memcmp(cards[r].identity.machine, cards[rank].identity.machine, sizeof cards[r].identity.machine) == 0;
    return count;
}

/* Each takes five descriptors of a process, which may have a thousand. */
static const int MOST_SECOND_ENDPOINTS = 64;

/* Whether peers may come over the loopback. */
static int needs_port(const card *cards, int rank, int ranks) {
    if (count_machine(cards, rank, ranks) > MOST_SECOND_ENDPOINTS) return 0;
    for (int r = 0; r < ranks; r++)
        if (r != rank && ra_ucx_share_loopback(&cards[rank].identity, &cards[r].identity) &&
            !is_over_memory(&cards[rank], &cards[r]))
            return 1;
    return 0;
}

/* Whether large messages between this rank and another go in chunks: where it is not sure that they share memory. Not
 * where both may have it on devices, whose messages take their time each, whatever the size. */
static int goes_in_chunks(const card *mine, const card *other, int on_devices) {
    return !is_over_memory(mine, other) && !on_devices;
}

/* Likewise. *stride_out: the longest address. */
static ra_status exchange_lengths(ra_ucx *ucx, ra_status status, const card *cards, size_t address_bytes,
                                  ra_allgather allgather, void *user, length_card *all, size_t *stride_out) {
    length_card mine = {.state = describe(status), .address_bytes = address_bytes};
    if (status == RA_OK) mine.moves_devices = ra_ucx_moves_devices(ucx);
    if (status == RA_OK && needs_port(cards, ucx->rank, ucx->ranks)) ra_ucx_bulk_listen(ucx, &mine.port);
    ra_status round = bring_round(allgather, user, &mine, sizeof mine, all);
    if (status != RA_OK) round = ra_fail(status, "%s", mine.state.reason);
    *stride_out = 1;
    for (int r = 0; r < ucx->ranks && round == RA_OK; r++) {
        round = check_state(&all[r].state, r);
        if (all[r].address_bytes > *stride_out) *stride_out = all[r].address_bytes;
        int on_devices = mine.moves_devices && all[r].moves_devices;
        ucx->peers[r].in_chunks = goes_in_chunks(&cards[ucx->rank], &cards[r], on_devices);
        ucx->peers[r].port = ra_ucx_share_loopback(&cards[ucx->rank].identity, &cards[r].identity) ? all[r].port : 0;
    }
    return round;
}

/* addresses_out [ranks][stride]; the caller frees it. */
static ra_status exchange_addresses(const ra_ucx *ucx, const void *mine, size_t bytes, size_t stride,
                                    ra_allgather allgather, void *user, unsigned char **addresses_out) {
    size_t ranks = (size_t)ucx->ranks;
    unsigned char *all = stride > ((size_t)1 << 24) ? NULL : calloc(ranks + 1, stride);
    if (!all) return ra_fail(RA_ERR_MEMORY, "no memory for %zu addresses of %zu bytes", ranks, stride);
    unsigned char *padded = all + ranks * stride;
    memcpy(padded, mine, bytes);
    *addresses_out = all;
    return bring_round(allgather, user, padded, stride, all);
}

static ra_status connect_all(ra_ucx *ucx, const card *cards, const unsigned char *addresses, size_t stride) {
    for (int r = 0; r < ucx->ranks; r++) {
        if (r == ucx->rank) continue;
        ra_ucx_peer *p = &ucx->peers[r];
        p->process = ra_ucx_watch(&cards[ucx->rank].identity, &cards[r].identity, &p->ended);
        RA_TRY(ra_ucx_connect(ucx, r, addresses + (size_t)r * stride));
        ra_ucx_bulk_connect(ucx, r);
    }
    return RA_OK;
}

/* A rank says hello when its messages can leave without anybody's help: until all have, all help each other. */
static ra_status greet(ra_ucx *ucx) {
    double start = ra_clock();
    int absent;
    RA_TRY(ra_ucx_listen(ucx));
    RA_TRY(ra_ucx_bulk_settle(ucx, ucx->create_seconds, &absent));
    double left = ucx->create_seconds - (ra_clock() - start);
    if (absent < 0) RA_TRY(ra_ucx_assemble(ucx, RA_UCX_HELLO, left, &absent));
    if (absent < 0) return RA_OK;
    return ra_fail(RA_ERR_TIMEOUT, "rank %d of %d waited %g s for rank %d to connect over UCX, and no word came",
                   ucx->rank, ucx->ranks, ucx->create_seconds, absent);
}

static ra_ucx_sharing shared_by_all(const card *cards, int ranks) {
    ra_ucx_sharing shared = {.memory = 1, .loopback = ranks <= MOST_SECOND_ENDPOINTS};
    for (int r = 1; r < ranks; r++) {
        if (!ra_ucx_share_memory(&cards[0].identity, &cards[r].identity)) shared.memory = 0;
        if (!ra_ucx_share_loopback(&cards[0].identity, &cards[r].identity)) shared.loopback = 0;
    }
    return shared;
}

static ra_status open_address(ra_ucx *ucx, const card *cards, ucp_address_t **address_out, size_t *bytes_out) {
    RA_TRY(ra_ucx_worker_open(ucx, shared_by_all(cards, ucx->ranks)));
    return ra_ucx_check(ucx, ucx->api->ucp_worker_get_address(ucx->worker, address_out, bytes_out),
                        "ucp_worker_get_address");
}

static ra_status connect_and_greet(ra_ucx *ucx, const card *cards, length_card *lengths, ra_allgather allgather,
                                   void *user) {
    ucp_address_t *address = NULL;
    unsigned char *addresses = NULL;
    size_t bytes = 0, stride = 0;
    ra_status status = open_address(ucx, cards, &address, &bytes);
    status = exchange_lengths(ucx, status, cards, bytes, allgather, user, lengths, &stride);
    if (status == RA_OK) status = exchange_addresses(ucx, address, bytes, stride, allgather, user, &addresses);
    if (status == RA_OK) status = connect_all(ucx, cards, addresses, stride);
    if (status == RA_OK) status = greet(ucx);
    ra_ucx_bulk_close_port(ucx);
    if (address) ucx->api->ucp_worker_release_address(ucx->worker, address);
    free(addresses);
    return status;
}

/* Without memory for the others' cards a rank cannot even say that it has none. */
ra_status ra_ucx_meet(ra_ucx *ucx, ra_status mine, ra_allgather allgather, void *user, int *machine_ranks_out) {
    card *cards = calloc((size_t)ucx->ranks, sizeof *cards);
    length_card *lengths = calloc((size_t)ucx->ranks, sizeof *lengths);
    if (mine == RA_OK && !(cards && lengths))
        mine = ra_fail(RA_ERR_MEMORY, "no memory for the cards of %d ranks", ucx->ranks);
    ra_status status = cards ? exchange_cards(ucx, mine, allgather, user, cards) : mine;
    if (status == RA_OK) {
        memcpy(ucx->key, cards[0].key, sizeof ucx->key);
        *machine_ranks_out = count_machine(cards, ucx->rank, ucx->ranks);
        status = connect_and_greet(ucx, cards, lengths, allgather, user);
    }
    free(cards);
    free(lengths);
    return status;
}
