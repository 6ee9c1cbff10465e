/* How much a strategy sends, from the sets of needed rows alone. */
#include "core/load.h"
#include "schedule/builder.h"

/* A piece travels as many hops as its last one is away. */
static ra_status ring_volume(ra_builder *b, int owner, int64_t *elements_out) {
    ra_route route;
    int64_t elements = 0;
    RA_TRY(ra_route_make(b, owner, 1, &route));
    for (int64_t i = 0; i < route.parcel.piece_count; i++)
        elements += route.last[i] * ra_piece_elements(b->cut->problem, &route.parcel.pieces[i]);
    *elements_out = elements;
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

static ra_status pairwise_volume(ra_builder *b, int owner, int64_t *elements_out) {
    int64_t elements = 0;
    RA_TRY(add_pairwise(b, owner, 0, owner, &elements));
    RA_TRY(add_pairwise(b, owner, owner + 1, b->ranks, &elements));
    *elements_out = elements;
    return RA_OK;
}

/* What the ranks are sent is what the others send. */
static ra_status pairwise_total(const ra_cut_problem *cut, int64_t *elements_out) {
    int64_t records = 0;
    for (int rank = 0; rank < cut->ranks; rank++) {
        ra_load load;
        RA_TRY(ra_load_of(cut, rank, &load));
        records += load.records;
    }
    *elements_out = records * ra_record_elements(cut->problem);
    return RA_OK;
}

ra_status ra_schedule_volume_of(const ra_cut_problem *cut, ra_strategy strategy, int owner, int64_t *elements_out) {
    const ra_problem *p = cut->problem;
    ra_pool pool = {0};
    ra_builder builder = {.cut = cut, .ranks = cut->ranks, .pool = &pool, .scratch = &pool};
    ra_status status = RA_OK;
    if (strategy == RA_STRATEGY_RING)
        status = ring_volume(&builder, owner, elements_out);
    else if (strategy == RA_STRATEGY_PAIRWISE)
        status = pairwise_volume(&builder, owner, elements_out);
    else
        *elements_out = (cut->ranks - 1) * p->heads_kv * ra_record_elements(p) *
                        ra_shard_of(cut->layout, p->seq_k, cut->ranks, owner).rows;
    ra_pool_free(&pool);
    return status;
}

ra_status ra_schedule_volume(const ra_cut_problem *cut, ra_strategy strategy, int64_t *elements_out) {
    int64_t total = 0;
    if (strategy == RA_STRATEGY_PAIRWISE) return pairwise_total(cut, elements_out);
    for (int owner = 0; owner < cut->ranks; owner++) {
        int64_t elements;
        RA_TRY(ra_schedule_volume_of(cut, strategy, owner, &elements));
        total += elements;
    }
    *elements_out = total;
    return RA_OK;
}
