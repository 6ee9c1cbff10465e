/* Parcels: which rows go into a slot, and in which order. */
#include "schedule/builder.h"

#include <stdlib.h>

int64_t ra_record_elements(const ra_problem *problem) {
    return ra_cargo_record(problem, RA_CARGO_KV, RA_FORWARD);
}

int64_t ra_piece_records(const ra_piece *piece) {
    return piece->heads.count * piece->rows.count;
}

int64_t ra_piece_elements(const ra_problem *problem, const ra_piece *piece) {
    return ra_piece_records(piece) * ra_record_elements(problem);
}

int64_t ra_parcel_records(const ra_parcel *parcel, int64_t pieces) {
    int64_t records = 0;
    for (int64_t i = 0; i < pieces; i++) records += ra_piece_records(&parcel->pieces[i]);
    return records;
}

int64_t ra_parcel_offset(const ra_problem *problem, const ra_parcel *parcel, int64_t pieces) {
    return ra_parcel_records(parcel, pieces) * ra_record_elements(problem);
}

/* The rows of a rank that a segment has, or a run of its rows where that is less: a contact's keys are no more. */
static int64_t rows_in_segment(const ra_cut_problem *cut, int64_t segment) {
    int64_t tokens = cut->problem->seq_k;
    if (cut->layout == RA_LAYOUT_STRIPED) return (segment < tokens ? segment : tokens) / cut->ranks;
    int64_t run = tokens / (cut->layout == RA_LAYOUT_CONTIGUOUS ? cut->ranks : 2 * (int64_t)cut->ranks);
    return segment < run ? segment : run;
}

/* Spans are intersected with pieces: their strides should not be larger for being interleaved. */
enum { MOST_DISTANCE = 1 << 20 };

/* A branch's rows are asked for a segment at a time. */
static ra_distance_limit limit_of(const ra_cut_problem *cut, ra_branch branch) {
    int64_t distance = rows_in_segment(cut, branch.segment) / RA_SHORT_FRAGMENT;
    if (cut->layout == RA_LAYOUT_STRIPED) branch.rate /= ra_gcd(branch.rate, cut->ranks);
    return (ra_distance_limit){branch.rate, distance < MOST_DISTANCE ? distance : MOST_DISTANCE};
}

ra_status ra_rows_in_pieces(const ra_builder *b, ra_pool *pool, const ra_rowset *set, ra_span_list *list_out) {
    const ra_problem *p = b->cut->problem;
    if (p->branches == 0 || p->documents > 1) { /* short documents repeat themselves as well, and have few rows each */
        *list_out = (ra_span_list){set->spans, set->count, set->capacity};
        return RA_OK;
    }
    ra_distance_limit *limits = ra_pool_take(pool, p->branches, sizeof *limits);
    if (!limits) return ra_no_memory();
    for (int64_t i = 0; i < p->branches; i++) limits[i] = limit_of(b->cut, p->dilated[i]);
    return ra_rowset_interleave(pool, set, limits, p->branches, list_out);
}

/* lists: of each head set. */
static ra_status parcel_of_lists(ra_builder *b, int owner, const ra_span_list *lists, ra_parcel *parcel_out) {
    const ra_problem *problem = b->cut->problem;
    int64_t count = 0;
    for (int64_t i = 0; i < ra_head_sets(problem); i++) count += lists[i].count;
    ra_piece *pieces = ra_pool_take(b->scratch, count, sizeof *pieces), *piece = pieces;
    if (!pieces) return ra_no_memory();
    for (int64_t i = 0; i < ra_head_sets(problem); i++)
        for (int64_t j = 0; j < lists[i].count; j++) *piece++ = (ra_piece){lists[i].spans[j], ra_head_set(problem, i)};
    ra_parcel parcel = {.owner = owner, .pieces = pieces, .piece_count = count};
    parcel.elements = ra_parcel_offset(problem, &parcel, count);
    *parcel_out = parcel;
    return RA_OK;
}

ra_status ra_parcel_needed(ra_builder *b, int q_rank, int owner, ra_parcel *parcel_out) {
    ra_pool pool = {0};
    int64_t count = ra_head_sets(b->cut->problem);
    ra_span_list *lists = ra_pool_take(&pool, count, sizeof *lists);
    ra_status status = lists ? RA_OK : ra_no_memory();
    for (int64_t i = 0; i < count && status == RA_OK; i++) {
        ra_rowset set;
        status = ra_rowset_needed(&pool, b->cut, q_rank, owner, i, &set);
        if (status == RA_OK) status = ra_rows_in_pieces(b, &pool, &set, &lists[i]);
    }
    if (status == RA_OK) status = parcel_of_lists(b, owner, lists, parcel_out);
    ra_pool_free(&pool);
    return status;
}

ra_status ra_parcel_whole(ra_builder *b, int owner, ra_parcel *parcel_out) {
    const ra_problem *problem = b->cut->problem;
    ra_piece *piece = ra_pool_take(b->scratch, 1, sizeof *piece);
    if (!piece) return ra_no_memory();
    *piece = (ra_piece){{0, 1, ra_shard_of(b->cut->layout, problem->seq_k, b->ranks, owner).rows},
                        {0, 1, problem->heads_kv}};
    *parcel_out = (ra_parcel){owner, piece, piece->rows.count > 0, ra_piece_elements(problem, piece)};
    return RA_OK;
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

typedef struct run_loop {
    ra_pool *pool;
    ra_span *runs;
    int64_t count, capacity;
} run_loop;

/* From the contact's first query row that sees a key to its last: query a sees some key of `keys` when lo <= b - a <=
 * hi for some b in [0, keys). Rows mostly rise from contact to contact, so most runs join the last. */
static ra_status note_run(const ra_contact *contact, void *user) {
    run_loop *loop = user;
    int64_t from = contact->hi < 0 ? -contact->hi : 0, to = contact->k_rows.count - 1 - contact->lo;
    if (to > contact->q_rows.count - 1) to = contact->q_rows.count - 1;
    if (from > to) return RA_OK;
    int64_t first = ra_span_at(contact->q_rows, from), end = ra_span_at(contact->q_rows, to) + 1;
    ra_span *last = loop->count ? &loop->runs[loop->count - 1] : NULL;
    if (last && first >= last->first && first <= last->first + last->count) {
        if (end > last->first + last->count) last->count = end - last->first;
        return RA_OK;
    }
    ra_span *run = ra_pool_append(loop->pool, &loop->runs, &loop->count, &loop->capacity, sizeof *run);
    if (!run) return ra_no_memory();
    *run = (ra_span){first, 1, end - first};
    return RA_OK;
}

static int compare_runs(const void *x, const void *y) {
    const ra_span *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

/* Each run is a compute of its own at the rank that is visited; more than this travel as one, with the rows between. */
enum { MOST_RUNS = 8 };

/* Sorted, and those that touch made one. */
static int64_t join_runs(ra_span *runs, int64_t count) {
    int64_t joined = 0;
    if (count > 1) qsort(runs, (size_t)count, sizeof *runs, compare_runs);
    for (int64_t i = 0; i < count; i++) {
        ra_span *last = joined ? &runs[joined - 1] : NULL;
        int64_t end = runs[i].first + runs[i].count;
        if (!last || runs[i].first > last->first + last->count)
            runs[joined++] = runs[i];
        else if (end > last->first + last->count)
            last->count = end - last->first;
    }
    if (joined <= MOST_RUNS) return joined;
    runs[0].count = runs[joined - 1].first + runs[joined - 1].count - runs[0].first;
    return 1;
}

ra_status ra_parcel_queries(ra_builder *b, int q_rank, int k_rank, ra_parcel *parcel_out) {
    const ra_problem *problem = b->cut->problem;
    run_loop loop = {.pool = b->scratch};
    RA_TRY(ra_pattern_contacts(b->cut, q_rank, k_rank, note_run, &loop));
    int64_t count = join_runs(loop.runs, loop.count);
    ra_piece *pieces = ra_pool_take(b->scratch, count, sizeof *pieces);
    if (!pieces) return ra_no_memory();
    for (int64_t i = 0; i < count; i++) pieces[i] = (ra_piece){loop.runs[i], {0, 1, problem->heads_q}};
    ra_parcel parcel = {.owner = q_rank, .pieces = pieces, .piece_count = count};
    parcel.elements = ra_parcel_records(&parcel, count) * ra_cargo_record(problem, RA_CARGO_QUERY, b->pass);
    *parcel_out = parcel;
    return RA_OK;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

int ra_parcel_is(const ra_parcel *parcel, const ra_parcel *other) {
    if (parcel->piece_count != other->piece_count || parcel->owner != other->owner) return 0;
    for (int64_t i = 0; i < parcel->piece_count; i++)
        if (!ra_span_same(parcel->pieces[i].rows, other->pieces[i].rows) ||
            !ra_span_same(parcel->pieces[i].heads, other->pieces[i].heads))
            return 0;
    return 1;
}
