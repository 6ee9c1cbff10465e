#include "core/pattern.h"

#include "core/tile.h"

typedef struct contact_loop {
    const ra_cut_problem *cut;
    ra_shard keys;
    ra_contact_emit emit;
    void *user;
} contact_loop;

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* q: the positions of the queries of one document in one span, at rows q_first_row...; k: likewise the keys. Their
 * strides are equal, so the band on positions, lo <= j - i <= hi, is a band on indices. */
static ra_status emit_contact(const contact_loop *loop, ra_span q, int64_t q_first_row, ra_span k, int64_t k_first_row,
                              int64_t lo, int64_t hi) {
    int64_t shift = k.first - q.first;
    ra_tile band = {.q_rows = q, .k_rows = k, .lo = ra_ceil_div(lo - shift, q.stride),
                    .hi = ra_floor_div(hi - shift, q.stride)};
    int64_t from, to;
    ra_tile_visible(&band, 0, q.count, &from, &to);
    if (from == to) return RA_OK;
    int64_t seen = to - from;
    ra_contact contact = {
        .q_rows = {q_first_row, 1, q.count},
        .k_rows = {k_first_row + from, 1, seen},
        .heads = {0, 1, loop->cut->problem->heads_q},
        .lo = max64(band.lo - from, -q.count),
        .hi = min64(band.hi - from, seen),
    };
    return loop->emit(&contact, loop->user);
}

static ra_status document_contacts(const contact_loop *loop, ra_span q_span, int64_t q_first_row, ra_document document) {
    int64_t from, to, lo, hi;
    ra_span_indices(q_span, document.q0, document.q1, &from, &to);
    if (from == to) return RA_OK;
    ra_span q = ra_span_slice(q_span, from, to);
    ra_problem_band(loop->cut->problem, document, &lo, &hi);
    for (int s = 0; s < loop->keys.span_count; s++) {
        int64_t k_from, k_to;
        ra_span_indices(loop->keys.spans[s], document.k0, document.k1, &k_from, &k_to);
        if (k_from == k_to) continue;
        ra_status status = emit_contact(loop, q, q_first_row + from, ra_span_slice(loop->keys.spans[s], k_from, k_to),
                                        loop->keys.first_row[s] + k_from, lo, hi);
        if (status != RA_OK) return status;
    }
    return RA_OK;
}

/* The first document whose queries end behind a position. */
static int64_t first_document(const ra_problem *problem, int64_t position) {
    int64_t lo = 0, hi = problem->documents;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (ra_problem_document(problem, mid).q1 > position) hi = mid;
        else lo = mid + 1;
    }
    return lo;
}

ra_status ra_pattern_contacts(const ra_cut_problem *cut, int q_rank, int k_rank, ra_contact_emit emit, void *user) {
    const ra_problem *problem = cut->problem;
    ra_shard queries = ra_shard_of(cut->layout, problem->seq_q, cut->ranks, q_rank);
    contact_loop loop = {cut, ra_shard_of(cut->layout, problem->seq_k, cut->ranks, k_rank), emit, user};
    for (int s = 0; s < queries.span_count; s++) {
        ra_span span = queries.spans[s];
        int64_t last = ra_span_at(span, span.count - 1);
        for (int64_t d = first_document(problem, span.first); d < problem->documents; d++) {
            ra_document document = ra_problem_document(problem, d);
            if (document.q0 > last) break;
            ra_status status = document_contacts(&loop, span, queries.first_row[s], document);
            if (status != RA_OK) return status;
        }
    }
    return RA_OK;
}

static ra_status count_pairs(const ra_contact *contact, void *user) {
    ra_tile tile = {.q_rows = contact->q_rows, .k_rows = contact->k_rows, .lo = contact->lo, .hi = contact->hi};
    *(int64_t *)user += ra_tile_pairs(&tile) * contact->heads.count;
    return RA_OK;
}

int64_t ra_pattern_pairs(const ra_cut_problem *cut, int q_rank, int k_rank) {
    int64_t pairs = 0;
    ra_pattern_contacts(cut, q_rank, k_rank, count_pairs, &pairs);
    return pairs * cut->problem->batch;
}
