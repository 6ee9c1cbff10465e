/* Parcels: which rows go into a slot, and in which order. */
#include "schedule/builder.h"

int64_t ra_piece_elements(const ra_problem *problem, const ra_piece *piece) {
    return piece->heads.count * problem->batch * piece->rows.count * (problem->dim + problem->dim_v);
}

int64_t ra_parcel_offset(const ra_problem *problem, const ra_parcel *parcel, int64_t pieces) {
    int64_t elements = 0;
    for (int64_t i = 0; i < pieces; i++) elements += ra_piece_elements(problem, &parcel->pieces[i]);
    return elements;
}

ra_status ra_parcel_of(ra_builder *b, int owner, const ra_rowset *rows, ra_parcel *parcel_out) {
    const ra_problem *problem = b->cut->problem;
    ra_piece *pieces = ra_pool_take(b->pool, rows->count, sizeof *pieces);
    if (!pieces) return ra_fail(RA_ERR_MEMORY, "no memory for a schedule");
    for (int64_t i = 0; i < rows->count; i++)
        pieces[i] = (ra_piece){.rows = {rows->runs[i].from, 1, rows->runs[i].to - rows->runs[i].from},
                               .heads = {0, 1, problem->heads_kv}};
    ra_parcel parcel = {.owner = owner, .pieces = pieces, .piece_count = rows->count};
    parcel.elements = ra_parcel_offset(problem, &parcel, parcel.piece_count);
    *parcel_out = parcel;
    return RA_OK;
}

ra_status ra_parcel_needed(ra_builder *b, int q_rank, int owner, ra_parcel *parcel_out) {
    ra_rowset rows;
    RA_TRY(ra_rowset_needed(b->scratch, b->cut, q_rank, owner, &rows));
    return ra_parcel_of(b, owner, &rows, parcel_out);
}

ra_status ra_parcel_whole(ra_builder *b, int owner, ra_parcel *parcel_out) {
    ra_run all = {0, ra_shard_of(b->cut->layout, b->cut->problem->seq_k, b->ranks, owner).rows};
    ra_rowset rows = {.runs = &all, .count = all.to > 0};
    return ra_parcel_of(b, owner, &rows, parcel_out);
}
