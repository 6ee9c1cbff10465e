#include "core/reach.h"

#include "base/status.h"

/* The document in hand. The key at position j is seen by the queries [max(q0, j - hi), min(q1 - 1, j - lo)]. */
typedef struct reach_loop {
    const ra_cut_problem *cut;
    int owner;
    ra_document document;
    int64_t lo, hi;
    ra_runs runs; /* of query positions, which ranks have one or two of each; unused on stripes */
    ra_reach_emit emit;
    void *user;
} reach_loop;

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The hops of a ring from the farthest inwards meet the ranks owner - 1, ..., 0, ranks - 1, ..., owner + 1: of each of
 * the two stretches the highest rank is farthest. */
static int hop_to(const reach_loop *loop, int64_t rank) {
    return (int)(rank < loop->owner ? rank - loop->owner + loop->cut->ranks : rank - loop->owner);
}

/* ---- where ranks have runs --------------------------------------------------------------------------------------- */

static int64_t start_of(const reach_loop *loop, int64_t run) {
    return ra_runs_start(&loop->runs, run);
}

/* The highest of the ranks [from, to) that has a query in the positions [first, last]; -1: none has. Lower runs rise
 * with the ranks, upper ones, where there are any, fall; some may be empty, so positions are what is compared. */
static int64_t highest(const reach_loop *loop, int64_t from, int64_t to, int64_t first, int64_t last) {
    int64_t count = loop->runs.count, rank = -1;
    int64_t lower = min64(last, start_of(loop, to) - 1);
    if (lower >= max64(first, start_of(loop, from))) rank = ra_runs_find(&loop->runs, lower);
    if (count == loop->cut->ranks) return rank;
    int64_t upper = max64(first, start_of(loop, count - to));
    if (upper > min64(last, start_of(loop, count - from) - 1)) return rank;
    return max64(rank, count - 1 - ra_runs_find(&loop->runs, upper));
}

/* The last hop, 0 for none. */
static int last_of_runs(const reach_loop *loop, int64_t first, int64_t last) {
    int64_t rank = highest(loop, 0, loop->owner, first, last);
    if (rank < 0) rank = highest(loop, loop->owner + 1, loop->cut->ranks, first, last);
    return rank < 0 ? 0 : hop_to(loop, rank);
}

/* The first key position whose first or last query lies in another run. */
static int64_t end_of_runs(const reach_loop *loop, int64_t first, int64_t last) {
    int64_t behind_first = start_of(loop, ra_runs_find(&loop->runs, first) + 1);
    int64_t behind_last = start_of(loop, ra_runs_find(&loop->runs, last) + 1);
    int64_t end = behind_first + loop->hi;
    return behind_last < loop->document.q1 ? min64(end, behind_last + loop->lo) : end;
}

/* ---- on stripes -------------------------------------------------------------------------------------------------- */

/* Queries that follow one another are of ranks that do. */
static int last_of_stripes(const reach_loop *loop, int64_t first, int64_t last) {
    int ranks = loop->cut->ranks;
    int64_t hop = hop_to(loop, first % ranks) + last - first;
    return (int)min64(hop, ranks - 1);
}

/* The first key position from which on the last hop may be another. Keys are as far from each other as there are ranks:
 * while as many queries see a key and they move along with it, they are of the same ranks. */
static int64_t end_of_stripes(const reach_loop *loop, int64_t key, int64_t first, int64_t last) {
    const ra_document *d = &loop->document;
    if (last - first + 1 >= loop->cut->ranks) return d->q1 + loop->hi - loop->cut->ranks + 1; /* all, for so long */
    if (first == key - loop->hi && last == key - loop->lo) return d->q1 + loop->lo;
    if (first == d->q0 && last == d->q1 - 1) return d->q0 + loop->hi + 1;
    return key + 1;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* Keys of one span, as positions; `row` is the first one's. */
static ra_status reach_span(const reach_loop *loop, ra_span keys, int64_t row) {
    const ra_document *d = &loop->document;
    int striped = loop->cut->layout == RA_LAYOUT_STRIPED;
    int64_t from, to; /* the keys that some query sees */
    if (d->q0 == d->q1) return RA_OK;
    ra_span_indices(keys, d->q0 + loop->lo, d->q1 + loop->hi, &from, &to);
    while (from < to) {
        int64_t key = ra_span_at(keys, from), end = key + 1, past = to;
        int64_t first = max64(d->q0, key - loop->hi), last = min64(d->q1 - 1, key - loop->lo);
        int hop = striped ? last_of_stripes(loop, first, last) : last_of_runs(loop, first, last);
        if (to - from > 1) {
            end = striped ? end_of_stripes(loop, key, first, last) : end_of_runs(loop, first, last);
            past = min64(to, from + ra_ceil_div(end - key, keys.stride));
        }
        ra_reach reach = {{row + from, 1, past - from}, hop};
        if (hop > 0) RA_TRY(loop->emit(&reach, loop->user));
        from = past;
    }
    return RA_OK;
}

/* The document in hand is that one. */
static void open_document(reach_loop *loop, int64_t d) {
    const ra_problem *p = loop->cut->problem;
    int64_t ranks = loop->cut->ranks;
    loop->document = ra_problem_document(p, d);
    ra_problem_band(p, loop->document, &loop->lo, &loop->hi);
    if (loop->cut->layout == RA_LAYOUT_DOCUMENTS)
        loop->runs = ra_runs_of(loop->document.q0, loop->document.q1, 2 * ranks);
}

/* Every document has keys of every rank. */
static ra_status reach_dealt(reach_loop *loop) {
    const ra_problem *p = loop->cut->problem;
    for (int64_t d = 0; d < p->documents; d++) {
        open_document(loop, d);
        ra_shard keys =
            ra_shard_in_document(loop->document.k0, loop->document.k1, loop->cut->ranks, loop->owner, loop->owner + 1);
        for (int s = 0; s < 2; s++)
            if (keys.spans[s].count) RA_TRY(reach_span(loop, keys.spans[s], keys.first_row[s]));
    }
    return RA_OK;
}

static ra_status reach_shard(reach_loop *loop) {
    const ra_problem *p = loop->cut->problem;
    int ranks = loop->cut->ranks, two_runs = loop->cut->layout == RA_LAYOUT_ZIGZAG;
    ra_shard keys = ra_shard_of(loop->cut->layout, p->seq_k, ranks, loop->owner);
    ra_sequence sequence = {p->seq_k, p->documents, p->cu_seqlens_k};
    loop->runs = ra_runs_of(0, p->seq_q, two_runs ? 2 * (int64_t)ranks : ranks);
    for (int s = 0; s < keys.span_count; s++) {
        ra_span span = keys.spans[s];
        int64_t from = 0, to;
        for (int64_t d = ra_sequence_document(&sequence, 0, span.first); from < span.count; d++, from = to) {
            open_document(loop, d);
            ra_span_indices(span, loop->document.k0, loop->document.k1, &from, &to);
            RA_TRY(reach_span(loop, ra_span_slice(span, from, to), keys.first_row[s] + from));
        }
    }
    return RA_OK;
}

ra_status ra_reach_of(const ra_cut_problem *cut, int owner, ra_reach_emit emit, void *user) {
    reach_loop loop = {.cut = cut, .owner = owner, .emit = emit, .user = user};
    return cut->layout == RA_LAYOUT_DOCUMENTS ? reach_dealt(&loop) : reach_shard(&loop);
}
