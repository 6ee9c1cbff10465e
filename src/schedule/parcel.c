/* Parcels: which rows go into a slot, and in which order. */
#include "schedule/builder.h"

int64_t ra_record_elements(const ra_problem *problem) {
    return problem->batch * (problem->dim + problem->dim_v);
}

int64_t ra_piece_elements(const ra_problem *problem, const ra_piece *piece) {
    return piece->heads.count * piece->rows.count * ra_record_elements(problem);
}

int64_t ra_parcel_offset(const ra_problem *problem, const ra_parcel *parcel, int64_t pieces) {
    int64_t elements = 0;
    for (int64_t i = 0; i < pieces; i++) elements += ra_piece_elements(problem, &parcel->pieces[i]);
    return elements;
}

ra_status ra_parcel_of(ra_builder *b, int owner, const ra_rowset *sets, ra_parcel *parcel_out) {
    const ra_problem *problem = b->cut->problem;
    int64_t count = 0;
    for (int64_t i = 0; i < ra_head_sets(problem); i++) count += sets[i].count;
    ra_piece *pieces = ra_pool_take(b->scratch, count, sizeof *pieces), *piece = pieces;
    if (!pieces) return ra_fail(RA_ERR_MEMORY, "no memory for a schedule");
    for (int64_t i = 0; i < ra_head_sets(problem); i++)
        for (int64_t j = 0; j < sets[i].count; j++) *piece++ = (ra_piece){sets[i].spans[j], ra_head_set(problem, i)};
    ra_parcel parcel = {.owner = owner, .pieces = pieces, .piece_count = count};
    parcel.elements = ra_parcel_offset(problem, &parcel, count);
    *parcel_out = parcel;
    return RA_OK;
}

ra_status ra_parcel_needed(ra_builder *b, int q_rank, int owner, ra_parcel *parcel_out) {
    ra_pool pool = {0};
    int64_t count = ra_head_sets(b->cut->problem);
    ra_rowset *sets = ra_pool_take(&pool, count, sizeof *sets);
    ra_status status = sets ? RA_OK : ra_fail(RA_ERR_MEMORY, "no memory for a schedule");
    for (int64_t i = 0; i < count && status == RA_OK; i++)
        status = ra_rowset_needed(&pool, b->cut, q_rank, owner, i, &sets[i]);
    if (status == RA_OK) status = ra_parcel_of(b, owner, sets, parcel_out);
    ra_pool_free(&pool);
    return status;
}

ra_status ra_parcel_whole(ra_builder *b, int owner, ra_parcel *parcel_out) {
    const ra_problem *problem = b->cut->problem;
    ra_piece *piece = ra_pool_take(b->scratch, 1, sizeof *piece);
    if (!piece) return ra_fail(RA_ERR_MEMORY, "no memory for a schedule");
    *piece = (ra_piece){{0, 1, ra_shard_of(b->cut->layout, problem->seq_k, b->ranks, owner).rows},
                        {0, 1, problem->heads_kv}};
    *parcel_out = (ra_parcel){owner, piece, piece->rows.count > 0, ra_piece_elements(problem, piece)};
    return RA_OK;
}

static int same_span(ra_span x, ra_span y) {
    return x.first == y.first && x.stride == y.stride && x.count == y.count;
}

int ra_parcel_is(const ra_parcel *parcel, const ra_parcel *other) {
    if (parcel->piece_count != other->piece_count || parcel->owner != other->owner) return 0;
    for (int64_t i = 0; i < parcel->piece_count; i++)
        if (!same_span(parcel->pieces[i].rows, other->pieces[i].rows) ||
            !same_span(parcel->pieces[i].heads, other->pieces[i].heads))
            return 0;
    return 1;
}
