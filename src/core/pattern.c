#include "core/pattern.h"

#include "base/status.h"
#include "core/selection.h"
#include "core/tile.h"

typedef struct contact_loop contact_loop;
struct contact_loop {
    const ra_cut_problem *cut;
    int q_from, q_to;            /* the ranks that have the queries */
    int k_rank;                  /* the rank that has the keys; -1: all keys */
    ra_shard queries, keys;      /* on RA_LAYOUT_DOCUMENTS those of the document in hand */
    int64_t key_first, key_last; /* no key outside these positions matters */
    ra_selection selection;
    /* What is done with queries and keys of a document, as positions, once both are known. */
    ra_status (*meet)(const contact_loop *loop, int query_span, ra_document document, ra_span queries, ra_span keys);
    ra_contact_emit emit;
    int key_span; /* of sights and hints, which take the key shard's spans one by one; -1: contacts, which take all */
    ra_sight_emit emit_sight;
    void *user;
};

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The rows of these positions, all of which lie in span s of the shard. */
static ra_span rows_of(const ra_shard *shard, int s, ra_span positions) {
    ra_span span = shard->spans[s];
    if (span.stride == 1)
        return (ra_span){shard->first_row[s] + positions.first - span.first, positions.stride, positions.count};
    return (ra_span){shard->first_row[s] + (positions.first - span.first) / span.stride, positions.stride / span.stride,
                     positions.count};
}

/* q and k: positions of a query span and a key span. Their strides are equal, so the band on positions, lo <= j - i <=
 * hi, is a band on indices. */
static ra_status emit_contact(const contact_loop *loop, ra_span q, ra_span q_rows, ra_span k, int key_span,
                              ra_document document) {
    int64_t lo, hi;
    ra_problem_band(loop->cut->problem, document, &lo, &hi);
    int64_t shift = k.first - q.first;
    int run = q.stride == 1; /* a division by 1 is slow all the same */
    ra_tile band = {.q_rows = q,
                    .k_rows = k,
                    .lo = run ? lo - shift : ra_ceil_div(lo - shift, q.stride),
                    .hi = run ? hi - shift : ra_floor_div(hi - shift, q.stride)};
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
        .positions = {q.first, q.stride, ra_span_at(k, from), q.stride, document.k1 - document.q1},
    };
    return loop->emit(&contact, loop->user);
}

/* Contacts: the rank's own of the queries with the owner's own of the keys. */
static ra_status meet_owner(const contact_loop *loop, int query_span, ra_document document, ra_span queries,
                            ra_span keys) {
    ra_span q = ra_span_intersect(queries, loop->queries.spans[query_span]);
    if (q.count == 0) return RA_OK;
    ra_span q_rows = rows_of(&loop->queries, query_span, q);
    for (int s = 0; s < loop->keys.span_count; s++) {
        ra_span k = ra_span_intersect(keys, loop->keys.spans[s]);
        if (k.count) RA_TRY(emit_contact(loop, q, q_rows, k, s, document));
    }
    return RA_OK;
}

static ra_status emit_sight(const contact_loop *loop, ra_span keys, int64_t pairs) {
    ra_span seen = ra_span_intersect(keys, loop->keys.spans[loop->key_span]);
    if (seen.count == 0) return RA_OK;
    ra_sight sight = {rows_of(&loop->keys, loop->key_span, seen), loop->selection.heads, pairs};
    return loop->emit_sight(&sight, loop->user);
}

/* Sights: the rank's own of the queries with all of the keys. The queries' stride is a multiple of the keys', so the
 * a-th query sees the b-th key when lo <= b - slope a <= hi. Where these runs touch each other, their union is a run;
 * else the first keys of all runs are one sight, the second ones another, or, where that is less, each run is one. */
static ra_status meet_everyone(const contact_loop *loop, int query_span, ra_document document, ra_span queries,
                               ra_span keys) {
    ra_span q = ra_span_intersect(queries, loop->queries.spans[query_span]);
    if (q.count == 0 || keys.count == 0) return RA_OK;
    int64_t lo, hi, shift = keys.first - q.first, slope = q.count > 1 ? q.stride / keys.stride : 1;
    int64_t first = keys.first, end = ra_span_last(keys) + 1;
    ra_problem_band(loop->cut->problem, document, &lo, &hi);
    lo = ra_ceil_div(lo - shift, keys.stride);
    hi = ra_floor_div(hi - shift, keys.stride);
    int64_t width = hi - lo + 1;
    if (width <= 0) return RA_OK;
    if (width >= slope) {
        int64_t from = max64(lo, 0), to = min64(hi + (q.count - 1) * slope + 1, keys.count);
        if (to <= from) return RA_OK;
        return emit_sight(loop, ra_span_slice(keys, from, to), ra_band_pairs(q.count, keys.count, slope, lo, hi));
    }
    int by_key = width < q.count;
    for (int64_t n = 0; n < (by_key ? width : q.count); n++) {
        ra_span seen = {ra_span_at(keys, lo + n * (by_key ? 1 : slope)), keys.stride * (by_key ? slope : 1),
                        by_key ? q.count : width};
        seen = ra_span_clip(seen, first, end);
        RA_TRY(emit_sight(loop, seen, seen.count));
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
    return loop->meet(loop, query_span, document, aligned, kept);
}

/* The segments that hold the aligned positions of the span's queries, where those before the first key are in none, and
 * keys that matter. */
static ra_status dilated_contacts(const contact_loop *loop, int query_span, ra_document document) {
    ra_span span = ra_span_clip(loop->queries.spans[query_span], document.q0, document.q1);
    int64_t to_local = document.k1 - document.q1 - document.k0;
    if (span.count == 0 || document.k0 == document.k1) return RA_OK;
    int64_t last = ra_span_last(span) + to_local;
    if (last < 0) return RA_OK;
    int64_t key_first = max64(loop->key_first - document.k0, 0), key_last = loop->key_last - document.k0;
    if (key_last < 0) return RA_OK;
    int64_t from = max64(key_first, span.first + to_local) / loop->selection.segment;
    int64_t to = min64(key_last, last) / loop->selection.segment;
    for (int64_t segment = from; segment <= to; segment++)
        RA_TRY(segment_contacts(loop, query_span, document, segment));
    return RA_OK;
}

static ra_status document_contacts(const contact_loop *loop, int query_span, ra_document document) {
    if (loop->cut->problem->branches) return dilated_contacts(loop, query_span, document);
    return loop->meet(loop, query_span, document, (ra_span){document.q0, 1, document.q1 - document.q0},
                      (ra_span){document.k0, 1, document.k1 - document.k0});
}

/* The first document from d on whose queries end behind a position and whose keys end behind another. */
static int64_t first_document(const ra_problem *problem, int64_t d, int64_t query, int64_t key) {
    int64_t lo = d, hi = problem->documents;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        ra_document document = ra_problem_document(problem, mid);
        if (document.q1 > query && document.k1 > key)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* The first position of the span from one on; beyond any where there is none. */
static int64_t next_in(ra_span span, int64_t position) {
    int64_t gap = position - span.first, i = gap <= 0 ? 0 : span.stride == 1 ? gap : ra_ceil_div(gap, span.stride);
    return i < span.count ? ra_span_at(span, i) : INT64_MAX;
}

/* The same of the keys that matter. */
static int64_t next_key(const contact_loop *loop, int64_t position) {
    int64_t nearest = INT64_MAX;
    for (int s = 0; s < loop->keys.span_count; s++)
        if (loop->key_span < 0 || loop->key_span == s) nearest = min64(nearest, next_in(loop->keys.spans[s], position));
    return nearest;
}

/* The first document from d on that has queries of the span and keys that matter, or as many as there are. Those that
 * have not, which on stripes may be most, are skipped: each leads to the next position of either side. */
static int64_t next_document(const contact_loop *loop, ra_span span, int64_t d) {
    const ra_problem *problem = loop->cut->problem;
    while (d < problem->documents) {
        ra_document document = ra_problem_document(problem, d);
        int64_t query = next_in(span, document.q0), key = next_key(loop, document.k0);
        if (query < document.q1 && key < document.k1) return d;
        d = first_document(problem, d + 1, query, key);
    }
    return d;
}

static ra_status span_contacts(const contact_loop *loop, int query_span) {
    const ra_problem *problem = loop->cut->problem;
    ra_span span = loop->queries.spans[query_span];
    int64_t d = next_document(loop, span, first_document(problem, 0, span.first, loop->key_first));
    for (; d < problem->documents; d = next_document(loop, span, d + 1))
        RA_TRY(document_contacts(loop, query_span, ra_problem_document(problem, d)));
    return RA_OK;
}

/* RA_LAYOUT_DOCUMENTS, nothing dilated: the runs are what meets. */
static ra_status meet_runs(const contact_loop *loop, int query_span, ra_document document) {
    ra_span q = loop->queries.spans[query_span];
    for (int s = 0; s < 2; s++)
        if (loop->keys.spans[s].count)
            RA_TRY(emit_contact(loop, q, rows_of(&loop->queries, query_span, q), loop->keys.spans[s], s, document));
    return RA_OK;
}

/* RA_LAYOUT_DOCUMENTS: every document has queries and keys of every rank, and is cut by itself. */
static ra_status dealt_contacts(contact_loop *loop) {
    const ra_problem *problem = loop->cut->problem;
    int ranks = loop->cut->ranks, runs = loop->meet == meet_owner && !problem->branches;
    for (int64_t d = 0; d < problem->documents; d++) {
        ra_document document = ra_problem_document(problem, d);
        loop->queries = ra_shard_in_document(document.q0, document.q1, ranks, loop->q_from, loop->q_to);
        if (loop->queries.rows == 0) continue;
        if (loop->k_rank >= 0)
            loop->keys = ra_shard_in_document(document.k0, document.k1, ranks, loop->k_rank, loop->k_rank + 1);
        for (int s = 0; s < 2; s++) {
            if (loop->queries.spans[s].count == 0) continue;
            if (runs)
                RA_TRY(meet_runs(loop, s, document));
            else
                RA_TRY(document_contacts(loop, s, document));
        }
    }
    return RA_OK;
}

static ra_status run_dealt(contact_loop *loop, ra_head_range heads) {
    ra_selection_cursor cursor = {0};
    loop->key_first = 0;
    loop->key_last = loop->cut->problem->seq_k - 1;
    while (ra_selection_next(loop->cut->problem, &cursor, &loop->selection)) {
        if (ra_span_clip(loop->selection.heads, heads.from, heads.to).count == 0) continue;
        RA_TRY(dealt_contacts(loop));
    }
    return RA_OK;
}

/* All that matters to the heads, selection by selection. */
static ra_status run_loop(contact_loop *loop, ra_head_range heads) {
    if (loop->cut->layout == RA_LAYOUT_DOCUMENTS) return run_dealt(loop, heads);
    ra_selection_cursor cursor = {0};
    while (ra_selection_next(loop->cut->problem, &cursor, &loop->selection)) {
        if (ra_span_clip(loop->selection.heads, heads.from, heads.to).count == 0) continue;
        for (int s = 0; s < loop->queries.span_count; s++) RA_TRY(span_contacts(loop, s));
    }
    return RA_OK;
}

ra_status ra_pattern_contacts_of(const ra_cut_problem *cut, int q_rank, int k_rank, ra_head_range heads,
                                 ra_contact_emit emit, void *user) {
    const ra_problem *problem = cut->problem;
    contact_loop loop = {.cut = cut,
                         .q_from = q_rank,
                         .q_to = q_rank + 1,
                         .k_rank = k_rank,
                         .queries = ra_shard_of(cut->layout, problem->seq_q, cut->ranks, q_rank),
                         .keys = ra_shard_of(cut->layout, problem->seq_k, cut->ranks, k_rank),
                         .meet = meet_owner,
                         .key_span = -1,
                         .emit = emit,
                         .user = user};
    if (loop.keys.rows == 0) return RA_OK;
    loop.key_first = loop.keys.spans[0].first;
    loop.key_last = ra_shard_position(&loop.keys, loop.keys.rows - 1);
    return run_loop(&loop, heads);
}

ra_status ra_pattern_contacts(const ra_cut_problem *cut, int q_rank, int k_rank, ra_contact_emit emit, void *user) {
    return ra_pattern_contacts_of(cut, q_rank, k_rank, (ra_head_range){0, cut->problem->heads_q}, emit, user);
}

/* Span by span of the keys, so that no document or segment between two of them is looked at. */
static ra_status run_sights(contact_loop *loop, ra_head_range heads) {
    loop->meet = meet_everyone;
    int key_spans = loop->cut->layout == RA_LAYOUT_DOCUMENTS && loop->k_rank >= 0 ? 2 : loop->keys.span_count;
    for (int s = 0; s < key_spans; s++) {
        loop->key_span = s;
        loop->key_first = loop->keys.spans[s].first;
        loop->key_last = ra_span_last(loop->keys.spans[s]);
        RA_TRY(run_loop(loop, heads));
    }
    return RA_OK;
}

ra_status ra_pattern_sights(const ra_cut_problem *cut, int q_rank, ra_head_range heads, ra_sight_emit emit,
                            void *user) {
    contact_loop loop = {.cut = cut,
                         .q_from = q_rank,
                         .q_to = q_rank + 1,
                         .k_rank = -1,
                         .queries = ra_shard_of(cut->layout, cut->problem->seq_q, cut->ranks, q_rank),
                         .keys = ra_shard_of(RA_LAYOUT_CONTIGUOUS, cut->problem->seq_k, 1, 0),
                         .emit_sight = emit,
                         .user = user};
    return run_sights(&loop, heads);
}

ra_status ra_pattern_hints(const ra_cut_problem *cut, int from, int to, int k_rank, ra_head_range heads,
                           ra_sight_emit emit, void *user) {
    contact_loop loop = {.cut = cut,
                         .q_from = from,
                         .q_to = to,
                         .k_rank = k_rank,
                         .queries = ra_shard_hull(cut->layout, cut->problem->seq_q, cut->ranks, from, to),
                         .keys = ra_shard_of(cut->layout, cut->problem->seq_k, cut->ranks, k_rank),
                         .emit_sight = emit,
                         .user = user};
    return run_sights(&loop, heads);
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
