/* Queries travel. In step s a rank computes with the queries of the rank s back and its own keys, sends the rank s + 1
 * further along those of its queries that see keys there, and receives the queries of the rank s + 1 back. What step s
 * made of them, partial states (m, l, O) or contributions to dQ, goes home in step s + 1, where its owner merges or
 * adds it, in the order of the steps. Keys, values and their gradients never leave their rank.
 *
 *     rank 2 of 4       step 0      step 1      step 2      step 3      step 4
 *     computes          own         rank 1's    rank 0's    rank 3's
 *     queries to        3           0           1
 *     queries from      1           0           3
 *     results to                                1           0           3
 *     results from                              3           0           1
 *
 * Slots. Queries: s mod 2 is computed with, the other is received into, slot 2 holds what is sent, and is packed anew
 * only when a peer needs other rows than the one before. Results: s mod 2 is computed into, the other is sent from,
 * slot 2 is received into.
 */
#include "schedule/builder.h"

enum { SENT = 2, ARRIVES = 2 };

static ra_cargo result_of(const ra_builder *b) {
    return b->pass == RA_FORWARD ? RA_CARGO_STATE : RA_CARGO_DQ;
}

static int64_t elements_of(const ra_builder *b, ra_cargo cargo, const ra_parcel *parcel) {
    return ra_parcel_records(parcel, parcel->piece_count) * ra_cargo_record(b->cut->problem, cargo, b->pass);
}

/* Own queries to a peer, a peer's queries from it: in the backward pass with what belongs to them. */
static ra_status exchange_queries(ra_builder *b, int s, ra_cargo cargo, const ra_parcel *sent, int pack, int to,
                                  const ra_parcel *arriving, int from) {
    if (pack) RA_TRY(ra_add_pack(b, s, cargo, SENT, sent));
    RA_TRY(ra_add_send(b, s, to, cargo, SENT, 0, elements_of(b, cargo, sent)));
    return ra_add_recv(b, s, from, cargo, (s + 1) % 2, elements_of(b, cargo, arriving), RA_COPIED);
}

/* packed: what is in slot SENT. */
static ra_status queries_step(ra_builder *b, int s, ra_parcel *packed) {
    if (s == 0) {
        RA_TRY(ra_add_compute_own(b, s));
    } else {
        ra_parcel here;
        RA_TRY(ra_parcel_queries(b, ra_rank_along(b, b->rank, -s), b->rank, &here));
        RA_TRY(ra_add_visits(b, s, s % 2, s % 2, &here));
    }
    if (s + 1 == b->ranks) return RA_OK;
    int to = ra_rank_along(b, b->rank, s + 1), from = ra_rank_along(b, b->rank, -s - 1);
    ra_parcel sent, arriving;
    RA_TRY(ra_parcel_queries(b, b->rank, to, &sent));
    RA_TRY(ra_parcel_queries(b, from, b->rank, &arriving));
    int pack = sent.elements > 0 && !ra_parcel_is(&sent, packed);
    if (pack) *packed = sent;
    RA_TRY(exchange_queries(b, s, RA_CARGO_QUERY, &sent, pack, to, &arriving, from));
    return b->pass == RA_FORWARD ? RA_OK : exchange_queries(b, s, RA_CARGO_STATS, &sent, pack, to, &arriving, from);
}

static ra_status results_step(ra_builder *b, int s) {
    ra_cargo cargo = result_of(b);
    int visitor = ra_rank_along(b, b->rank, 1 - s), host = ra_rank_along(b, b->rank, s - 1);
    ra_parcel sent, arriving;
    RA_TRY(ra_parcel_queries(b, visitor, b->rank, &sent));
    RA_TRY(ra_parcel_queries(b, b->rank, host, &arriving));
    RA_TRY(ra_add_send(b, s, visitor, cargo, (s - 1) % 2, 0, elements_of(b, cargo, &sent)));
    RA_TRY(ra_add_recv(b, s, host, cargo, ARRIVES, elements_of(b, cargo, &arriving), RA_COPIED));
    return ra_add_reduce(b, s, cargo, RA_OWN, ARRIVES, &arriving);
}

ra_status ra_make_passq(ra_builder *b) {
    ra_parcel packed = {0};
    for (int s = 0; s < b->schedule->step_count; s++) {
        if (s < b->ranks) RA_TRY(queries_step(b, s, &packed));
        if (s >= 2) RA_TRY(results_step(b, s));
    }
    return RA_OK;
}

ra_status ra_make_visits(ra_builder *b) {
    RA_TRY(ra_add_compute_own(b, 0));
    for (int s = 1; s < b->ranks; s++) {
        int owner = ra_rank_along(b, b->rank, -s);
        int64_t rows = ra_shard_of(b->cut->layout, b->cut->problem->seq_q, b->ranks, owner).rows;
        ra_piece all = {{0, 1, rows}, {0, 1, b->cut->problem->heads_q}};
        ra_parcel queries = {.owner = owner, .pieces = &all, .piece_count = 1};
        queries.elements = elements_of(b, RA_CARGO_QUERY, &queries);
        RA_TRY(ra_add_visits(b, s, 0, 0, &queries));
    }
    return RA_OK;
}
