/* How much a strategy sends, from the sets of needed rows alone. */
#include "schedule/builder.h"

static ra_status ring_volume(ra_builder *b, int64_t *elements) {
    for (int owner = 0; owner < b->ranks; owner++) {
        ra_route route;
        RA_TRY(ra_route_make(b, owner, &route));
        /* A piece travels as many hops as its last one is away. */
        for (int64_t i = 0; i < route.parcel.piece_count; i++)
            *elements += route.last[i] * ra_piece_elements(b->cut->problem, &route.parcel.pieces[i]);
    }
    return RA_OK;
}

static ra_status pairwise_volume(ra_builder *b, int64_t *elements) {
    for (int owner = 0; owner < b->ranks; owner++)
        for (int q_rank = 0; q_rank < b->ranks; q_rank++) {
            ra_parcel parcel;
            if (q_rank == owner) continue;
            RA_TRY(ra_parcel_needed(b, q_rank, owner, &parcel));
            *elements += parcel.elements;
        }
    return RA_OK;
}

int64_t ra_schedule_volume(const ra_cut_problem *cut, ra_strategy strategy) {
    const ra_problem *p = cut->problem;
    if (strategy == RA_STRATEGY_ALLGATHER)
        return (cut->ranks - 1) * p->batch * p->seq_k * p->heads_kv * (p->dim + p->dim_v);
    ra_pool pool = {0};
    ra_builder builder = {.cut = cut, .ranks = cut->ranks, .pool = &pool, .scratch = &pool};
    int64_t elements = 0;
    ra_status status = strategy == RA_STRATEGY_RING ? ring_volume(&builder, &elements)
                                                    : pairwise_volume(&builder, &elements);
    ra_pool_free(&pool);
    return status == RA_OK ? elements : -1;
}
