/* How much a strategy sends, from the sets of needed rows alone. */
#include "core/load.h"
#include "schedule/builder.h"

/* Bytes of an element of keys and values. */
static int64_t kv_bytes(const ra_problem *p) {
    return (int64_t)ra_cargo_bytes(p, RA_CARGO_KV);
}

/* A piece travels as many hops as its last one is away. */
ra_status ra_ring_volume(ra_builder *b, int owner, int64_t *bytes_out) {
    ra_route route;
    int64_t elements = 0;
    RA_TRY(ra_route_make(b, owner, 1, &route));
    for (int64_t i = 0; i < route.parcel.piece_count; i++)
        elements += route.last[i] * ra_piece_elements(b->cut->problem, &route.parcel.pieces[i]);
    *bytes_out = elements * kv_bytes(b->cut->problem);
    return RA_OK;
}

/* Whether some of the ranks [from, to) may see a row of the owner. */
static ra_status may_see(ra_builder *b, int owner, int from, int to, int *may_out) {
    ra_pool pool = {0};
    ra_status status = RA_OK;
    *may_out = 0;
    for (int64_t i = 0; i < ra_head_sets(b->cut->problem) && status == RA_OK && !*may_out; i++) {
        ra_rowset set;
        status = ra_rowset_hinted(&pool, b->cut, from, to, owner, i, &set);
        if (status == RA_OK) *may_out = set.count > 0;
    }
    ra_pool_free(&pool);
    return status;
}

/* What the ranks [from, to) are sent of the owner's rows is added; those that cannot see any are not looked at. */
static ra_status add_pairwise(ra_builder *b, int owner, int from, int to, int64_t *elements) {
    int may = 1, middle = from + (to - from) / 2;
    if (to - from > 1) RA_TRY(may_see(b, owner, from, to, &may));
    if (!may || to <= from) return RA_OK;
    if (to - from > 1) {
        RA_TRY(add_pairwise(b, owner, from, middle, elements));
        return add_pairwise(b, owner, middle, to, elements);
    }
    ra_parcel parcel;
    RA_TRY(ra_parcel_needed(b, from, owner, &parcel));
    *elements += parcel.elements;
    return RA_OK;
}

ra_status ra_pairwise_volume(ra_builder *b, int owner, int64_t *bytes_out) {
    int64_t elements = 0;
    RA_TRY(add_pairwise(b, owner, 0, owner, &elements));
    RA_TRY(add_pairwise(b, owner, owner + 1, b->ranks, &elements));
    *bytes_out = elements * kv_bytes(b->cut->problem);
    return RA_OK;
}

ra_status ra_allgather_volume(ra_builder *b, int owner, int64_t *bytes_out) {
    const ra_problem *p = b->cut->problem;
    int64_t rows = ra_shard_of(b->cut->layout, p->seq_k, b->ranks, owner).rows;
    *bytes_out = (b->ranks - 1) * rows * p->heads_kv * ra_record_elements(p) * kv_bytes(p);
    return RA_OK;
}

/* Bytes of one (row, query head) that visits another rank and comes home. */
static int64_t visit_bytes(const ra_problem *p) {
    return ra_cargo_record(p, RA_CARGO_QUERY, RA_FORWARD) * (int64_t)ra_cargo_bytes(p, RA_CARGO_QUERY) +
           ra_cargo_record(p, RA_CARGO_STATE, RA_FORWARD) * (int64_t)ra_cargo_bytes(p, RA_CARGO_STATE);
}

ra_status ra_passq_volume(ra_builder *b, int owner, int64_t *bytes_out) {
    int64_t records = 0;
    for (int host = 0; host < b->ranks; host++) {
        ra_parcel parcel;
        if (host == owner) continue;
        RA_TRY(ra_parcel_queries(b, owner, host, &parcel));
        records += ra_parcel_records(&parcel, parcel.piece_count);
    }
    *bytes_out = records * visit_bytes(b->cut->problem);
    return RA_OK;
}

double ra_passq_most_bytes(const ra_problem *p, int ranks) {
    return (double)(ranks - 1) * (double)p->seq_q * (double)p->heads_q * (double)visit_bytes(p);
}

/* What the ranks are sent is what the others send. */
static ra_status pairwise_total(const ra_cut_problem *cut, int64_t *bytes_out) {
    int64_t records = 0;
    for (int rank = 0; rank < cut->ranks; rank++) {
        ra_load load;
        RA_TRY(ra_load_of(cut, rank, &load));
        records += load.records;
    }
    *bytes_out = records * ra_record_elements(cut->problem) * kv_bytes(cut->problem);
    return RA_OK;
}

ra_status ra_schedule_volume_of(const ra_cut_problem *cut, ra_strategy strategy, int owner, int64_t *bytes_out) {
    ra_pool pool = {0};
    ra_builder builder = {.cut = cut, .ranks = cut->ranks, .pool = &pool, .scratch = &pool};
    ra_status status = ra_strategy_find(strategy)->volume(&builder, owner, bytes_out);
    ra_pool_free(&pool);
    return status;
}

ra_status ra_schedule_volume(const ra_cut_problem *cut, ra_strategy strategy, int64_t *bytes_out) {
    int64_t total = 0;
    if (strategy == RA_STRATEGY_PAIRWISE) return pairwise_total(cut, bytes_out);
    for (int owner = 0; owner < cut->ranks; owner++) {
        int64_t bytes;
        RA_TRY(ra_schedule_volume_of(cut, strategy, owner, &bytes));
        total += bytes;
    }
    *bytes_out = total;
    return RA_OK;
}
