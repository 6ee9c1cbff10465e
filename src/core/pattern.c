#include "core/pattern.h"

#include "base/status.h"
#include "core/selection.h"
#include "core/tile.h"

typedef struct contact_loop {
    const ra_cut_problem *cut;
    ra_shard queries, keys;
    ra_selection selection;
    ra_contact_emit emit;
    void *user;
} contact_loop;

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The rows at which positions, a part of one span of a shard, lie. */
static ra_span rows_of(const ra_shard *shard, int s, ra_span positions) {
    ra_span span = shard->spans[s];
    return (ra_span){shard->first_row[s] + (positions.first - span.first) / span.stride, positions.stride / span.stride,
                     positions.count};
}

/* q and k: positions of a query span and a key span. Their strides are equal, so the band on positions, lo <= j - i <=
 * hi, is a band on indices. */
static ra_status emit_contact(const contact_loop *loop, ra_span q, ra_span q_rows, ra_span k, int key_span, int64_t lo,
                              int64_t hi) {
    int64_t shift = k.first - q.first;
    ra_tile band = {.q_rows = q, .k_rows = k, .lo = ra_ceil_div(lo - shift, q.stride),
                    .hi = ra_floor_div(hi - shift, q.stride)};
    int64_t from, to;
    ra_tile_visible(&band, 0, q.count, &from, &to);
    if (from == to) return RA_OK;
    int64_t seen = to - from;
    ra_contact contact = {
        .branch = loop->selection.branch,
        .q_rows = q_rows,
        .k_rows = rows_of(&loop->keys, key_span, ra_span_slice(k, from, to)),
        .heads = loop->selection.heads,
        .lo = max64(band.lo - from, -q.count),
        .hi = min64(band.hi - from, seen),
    };
    return loop->emit(&contact, loop->user);
}

/* Queries and keys of a document, as positions, of which the rank's own are taken. */
static ra_status meet(const contact_loop *loop, int query_span, ra_document document, ra_span queries, ra_span keys) {
    int64_t lo, hi;
    ra_span q = ra_span_intersect(queries, loop->queries.spans[query_span]);
    if (q.count == 0) return RA_OK;
    ra_span q_rows = rows_of(&loop->queries, query_span, q);
    ra_problem_band(loop->cut->problem, document, &lo, &hi);
    for (int s = 0; s < loop->keys.span_count; s++) {
        ra_span k = ra_span_intersect(keys, loop->keys.spans[s]);
        if (k.count) RA_TRY(emit_contact(loop, q, q_rows, k, s, lo, hi));
    }
    return RA_OK;
}

/* One segment: the kept keys, and the queries whose aligned positions are kept. */
static ra_status segment_contacts(const contact_loop *loop, int query_span, ra_document document, int64_t segment) {
    const ra_selection *sel = &loop->selection;
    int64_t start = document.k0 + segment * sel->segment, end = min64(start + sel->segment, document.k1);
    int64_t first = start + sel->offset, shift = document.k1 - document.q1;
    if (first >= end) return RA_OK;
    ra_span kept = {first, sel->rate, (end - 1 - first) / sel->rate + 1};
    ra_span aligned = ra_span_clip((ra_span){first - shift, kept.stride, kept.count}, document.q0, document.q1);
    return meet(loop, query_span, document, aligned, kept);
}

/* The segments that hold the aligned positions of the span's queries; those before the first key are in none. */
static ra_status dilated_contacts(const contact_loop *loop, int query_span, ra_document document) {
    ra_span span = ra_span_clip(loop->queries.spans[query_span], document.q0, document.q1);
    int64_t to_local = document.k1 - document.q1 - document.k0;
    if (span.count == 0 || document.k0 == document.k1) return RA_OK;
    int64_t last = ra_span_at(span, span.count - 1) + to_local;
    if (last < 0) return RA_OK;
    int64_t from = max64(0, span.first + to_local) / loop->selection.segment, to = last / loop->selection.segment;
    for (int64_t segment = from; segment <= to; segment++)
        RA_TRY(segment_contacts(loop, query_span, document, segment));
    return RA_OK;
}

static ra_status document_contacts(const contact_loop *loop, int query_span, ra_document document) {
    if (loop->cut->problem->branches) return dilated_contacts(loop, query_span, document);
    return meet(loop, query_span, document, (ra_span){document.q0, 1, document.q1 - document.q0},
                (ra_span){document.k0, 1, document.k1 - document.k0});
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

static ra_status span_contacts(const contact_loop *loop, int query_span) {
    const ra_problem *problem = loop->cut->problem;
    ra_span span = loop->queries.spans[query_span];
    int64_t last = ra_span_at(span, span.count - 1);
    for (int64_t d = first_document(problem, span.first); d < problem->documents; d++) {
        ra_document document = ra_problem_document(problem, d);
        if (document.q0 > last) break;
        RA_TRY(document_contacts(loop, query_span, document));
    }
    return RA_OK;
}

ra_status ra_pattern_contacts(const ra_cut_problem *cut, int q_rank, int k_rank, ra_contact_emit emit, void *user) {
    const ra_problem *problem = cut->problem;
    ra_selection_cursor cursor = {0};
    contact_loop loop = {.cut = cut,
                         .queries = ra_shard_of(cut->layout, problem->seq_q, cut->ranks, q_rank),
                         .keys = ra_shard_of(cut->layout, problem->seq_k, cut->ranks, k_rank),
                         .emit = emit,
                         .user = user};
    while (ra_selection_next(problem, &cursor, &loop.selection))
        for (int s = 0; s < loop.queries.span_count; s++) RA_TRY(span_contacts(&loop, s));
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
