#include "core/load.h"

#include "base/status.h"
#include "core/rowset.h"

typedef struct load_loop {
    ra_head_range heads; /* query heads of the set in hand */
    const ra_cut_problem *cut;
    int rank;
    ra_shard own;     /* keys of the rank, unless documents are dealt */
    int64_t document; /* where they are: the one looked at last */
    int64_t pairs, rows;
    size_t sets_bytes;
} load_loop;

/* How many of the keys other ranks have, where every document is dealt to all. Sets of keys are in rising order, so
 * that no document is looked for twice. */
static int64_t foreign_of_dealt(load_loop *loop, ra_span keys) {
    const ra_problem *p = loop->cut->problem;
    ra_sequence sequence = {p->seq_k, p->documents, p->cu_seqlens_k};
    int64_t rows = keys.count, last = ra_span_last(keys), d = loop->document;
    if (ra_problem_document(p, d).k0 > keys.first) d = 0;
    for (d = ra_sequence_document(&sequence, d, keys.first); d < p->documents; d++) {
        ra_document document = ra_problem_document(p, d);
        if (document.k0 > last) break;
        loop->document = d;
        ra_shard own = ra_shard_in_document(document.k0, document.k1, loop->cut->ranks, loop->rank, loop->rank + 1);
        for (int s = 0; s < 2; s++)
            if (own.spans[s].count) rows -= ra_span_intersect(keys, own.spans[s]).count;
    }
    return rows;
}

/* The same on any layout. */
static int64_t foreign(load_loop *loop, ra_span keys) {
    int64_t rows = keys.count;
    if (loop->cut->layout == RA_LAYOUT_DOCUMENTS) return rows ? foreign_of_dealt(loop, keys) : 0;
    for (int s = 0; s < loop->own.span_count; s++) rows -= ra_span_intersect(keys, loop->own.spans[s]).count;
    return rows;
}

static ra_status add_sight(const ra_sight *sight, void *user) {
    load_loop *loop = user;
    loop->pairs += sight->pairs * ra_span_clip(sight->heads, loop->heads.from, loop->heads.to).count;
    loop->rows += foreign(loop, sight->keys);
    return RA_OK;
}

/* Documents have their keys for themselves, and the sights of one document and span share none: only two spans or two
 * branches of a rank can see the same key. Elsewhere sights are counted as they come, and no set is made. */
static int sights_share_keys(const ra_cut_problem *cut, int rank) {
    const ra_problem *p = cut->problem;
    return p->branches > 0 || ra_shard_of(cut->layout, p->seq_q, cut->ranks, rank).span_count > 1;
}

/* The same where keys are seen more than once: rows are counted from the set. */
static ra_status count_rows(load_loop *loop, const ra_cut_problem *cut, int rank, int64_t set) {
    ra_pool pool = {0};
    ra_rowset seen;
    ra_status status = ra_rowset_seen(&pool, cut, rank, set, &seen, &loop->pairs);
    for (int64_t i = 0; status == RA_OK && i < seen.count; i++) loop->rows += foreign(loop, seen.spans[i]);
    loop->sets_bytes = pool.bytes;
    ra_pool_free(&pool);
    return status;
}

ra_status ra_load_of(const ra_cut_problem *cut, int rank, ra_load *load_out) {
    const ra_problem *p = cut->problem;
    int shared = sights_share_keys(cut, rank);
    ra_load load = {0};
    for (int64_t i = 0; i < ra_head_sets(p); i++) {
        load_loop loop = {.heads = ra_head_set_queries(p, i),
                          .cut = cut,
                          .rank = rank,
                          .own = ra_shard_of(cut->layout, p->seq_k, cut->ranks, rank)};
        if (shared)
            RA_TRY(count_rows(&loop, cut, rank, i));
        else
            RA_TRY(ra_pattern_sights(cut, rank, loop.heads, add_sight, &loop));
        load.pairs += loop.pairs * p->batch;
        load.records += loop.rows * ra_head_set(p, i).count;
        load.sets_bytes += loop.sets_bytes;
    }
    *load_out = load;
    return RA_OK;
}
