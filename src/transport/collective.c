/* Exchanges of all ranks: bytes go to rank 0, and what it makes of them goes back to everyone. Small and rare, so two
 * hops through one rank are good enough, and any transport has what it needs.
 *
 * Messages are never in the caller's memory: a transport that is given up may still write there later. They are in one
 * block, which is then leaked. */
#include "transport/collective.h"

#include "base/status.h"
#include "transport/comm_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Two kinds of exchange never meet. No message of a plan has these tags (exec/program.c). */
typedef struct exchange_tags {
    int collect, give;
} exchange_tags;

static const exchange_tags ALLGATHER = {32766, 32767}, AGREEMENT = {32764, 32765};

typedef struct exchange {
    ra_comm *comm;
    exchange_tags tags;
    double timeout_seconds; /* of each wait */
} exchange;

static exchange begin(ra_comm *comm, exchange_tags tags, double timeout_seconds) {
    return (exchange){comm, tags, timeout_seconds > 0 ? timeout_seconds : RA_TIMEOUT_DEFAULT};
}

static ra_status run_group(const exchange *x, const ra_message *messages, int count) {
    ra_place place = {"an exchange with all ranks", -1};
    RA_TRY(ra_comm_post(x->comm, messages, count, NULL, place));
    return ra_comm_wait(x->comm, messages, count, x->timeout_seconds, place);
}

/* Rank 0: one message per peer, of `bytes` bytes from or to data + peer * stride. */
static ra_status with_everyone(const exchange *x, int is_send, unsigned char *data, size_t stride, size_t bytes) {
    int ranks = x->comm->ranks;
    ra_message *messages = calloc((size_t)ranks, sizeof *messages);
    if (!messages)
        return ra_comm_lose(x->comm, ra_fail(RA_ERR_MEMORY, "no memory for an exchange with %d ranks", ranks));
    for (int r = 1; r < ranks; r++)
        messages[r - 1] =
            (ra_message){r, is_send, is_send ? x->tags.give : x->tags.collect, data + (size_t)r * stride, bytes};
    ra_status status = run_group(x, messages, ranks - 1);
    free(messages);
    return status;
}

/* mine [bytes] of every rank to all [ranks, bytes] of rank 0, whose own is there already. */
static ra_status collect(const exchange *x, unsigned char *mine, size_t bytes, unsigned char *all) {
    if (x->comm->ranks == 1) return RA_OK;
    if (x->comm->rank == 0) return with_everyone(x, 0, all, bytes, bytes);
    return run_group(x, &(ra_message){0, 1, x->tags.collect, mine, bytes}, 1);
}

/* data [bytes] of rank 0 to that of everyone. */
static ra_status give(const exchange *x, unsigned char *data, size_t bytes) {
    if (x->comm->ranks == 1) return RA_OK;
    if (x->comm->rank == 0) return with_everyone(x, 1, data, 0, bytes);
    return run_group(x, &(ra_message){0, 0, x->tags.give, data, bytes}, 1);
}

/* The block that messages are in. */
static ra_status take_block(ra_comm *comm, size_t bytes, unsigned char **block_out) {
    *block_out = malloc(bytes);
    return *block_out ? RA_OK : ra_comm_lose(comm, ra_fail(RA_ERR_MEMORY, "no memory to exchange %zu bytes", bytes));
}

static void drop_block(const ra_comm *comm, unsigned char *block) {
    if (!comm->memory_held) free(block);
}

ra_status ra_comm_allgather(ra_comm *comm, const void *mine, size_t bytes, void *all_out, double timeout_seconds) {
    RA_TRY(ra_comm_check(comm));
    if (!bytes) return RA_OK;
    if (!mine || !all_out) return ra_refuse("mine or all_out is NULL");
    if (!(timeout_seconds >= 0) || isinf(timeout_seconds))
        return ra_refuse("timeout_seconds must be finite and not negative");
    if (bytes > SIZE_MAX / 2 / (size_t)comm->ranks) return ra_refuse("bytes is too large");
    exchange x = begin(comm, ALLGATHER, timeout_seconds);
    size_t total = bytes * (size_t)comm->ranks;
    unsigned char *all;
    RA_TRY(take_block(comm, total, &all));
    unsigned char *own = all + (size_t)comm->rank * bytes;
    memcpy(own, mine, bytes);
    ra_status status = collect(&x, own, bytes, all);
    if (status == RA_OK) status = give(&x, all, total);
    if (status == RA_OK) memcpy(all_out, all, total);
    drop_block(comm, all);
    return status;
}

/* block: everyone's bytes on rank 0 and this rank's own elsewhere, then the answer. */
ra_status ra_comm_judge(ra_comm *comm, const void *mine, size_t bytes, ra_judge judge, void *answer_out,
                        size_t answer_bytes, double timeout_seconds) {
    exchange x = begin(comm, AGREEMENT, timeout_seconds);
    size_t kept = comm->rank == 0 ? (size_t)comm->ranks * bytes : bytes;
    unsigned char *block;
    RA_TRY(take_block(comm, kept + answer_bytes, &block));
    unsigned char *answer = block + kept;
    memcpy(block, mine, bytes);
    ra_status status = collect(&x, block, bytes, block);
    if (status == RA_OK && comm->rank == 0) {
        judge(block, comm->ranks, answer_out);
        memcpy(answer, answer_out, answer_bytes);
    }
    if (status == RA_OK) status = give(&x, answer, answer_bytes);
    if (status == RA_OK) memcpy(answer_out, answer, answer_bytes);
    drop_block(comm, block);
    return status;
}

/* The bytes of rank `other` to the second half of rank 0's block `both` [2, bytes]. Every rank's own are in its first
 * half. */
static ra_status bring(const exchange *x, int other, unsigned char *both, size_t bytes) {
    int rank = x->comm->rank;
    if (rank == 0 && other == 0) memcpy(both + bytes, both, bytes);
    if (rank == 0 && other > 0) return run_group(x, &(ra_message){other, 0, x->tags.collect, both + bytes, bytes}, 1);
    if (rank > 0 && other == rank) return run_group(x, &(ra_message){0, 1, x->tags.collect, both, bytes}, 1);
    return RA_OK;
}

ra_status ra_comm_show(ra_comm *comm, int other, const void *mine, size_t bytes, void *both_out,
                       double timeout_seconds) {
    exchange x = begin(comm, AGREEMENT, timeout_seconds);
    unsigned char *both;
    if (other < 0 || other >= comm->ranks)
        return ra_comm_lose(comm,
                            ra_fail(RA_ERR_TRANSPORT, "rank %d: there is no rank %d to hear of", comm->rank, other));
    RA_TRY(take_block(comm, 2 * bytes, &both));
    memcpy(both, mine, bytes);
    ra_status status = bring(&x, other, both, bytes);
    if (status == RA_OK) status = give(&x, both, 2 * bytes);
    if (status == RA_OK) memcpy(both_out, both, 2 * bytes);
    drop_block(comm, both);
    return status;
}
