#include "core/rowset.h"

#include "base/status.h"

int64_t ra_head_sets(const ra_problem *p) {
    return p->branches ? p->heads_kv : 1;
}

ra_span ra_head_set(const ra_problem *p, int64_t i) {
    return p->branches ? (ra_span){i, 1, 1} : (ra_span){0, 1, p->heads_kv};
}

ra_head_range ra_head_set_queries(const ra_problem *p, int64_t i) {
    ra_span kv = ra_head_set(p, i);
    int64_t gqa_ratio = p->heads_q / p->heads_kv;
    return (ra_head_range){kv.first * gqa_ratio, (kv.first + kv.count) * gqa_ratio};
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

static ra_status push(ra_pool *pool, ra_rowset *set, ra_span span) {
    ra_span *item = ra_pool_append(pool, &set->spans, &set->count, &set->capacity, sizeof *item);
    if (!item) return ra_no_memory();
    *item = span;
    return RA_OK;
}

/* Appends rows that lie behind all others, to the last span where they continue it. A single row takes any
 * stride; so does the gap between two single ones. */
static ra_status append(ra_pool *pool, ra_rowset *set, ra_span span) {
    ra_span *last = set->count ? &set->spans[set->count - 1] : NULL;
    if (span.count == 0) return RA_OK;
    if (!last) return push(pool, set, span);
    int64_t gap = span.first - ra_span_last(*last);
    int fits_last = last->count == 1 || gap == last->stride, fits_span = span.count == 1 || gap == span.stride;
    if (!fits_last || !fits_span) return push(pool, set, span);
    last->stride = gap;
    last->count += span.count;
    return RA_OK;
}

/* ---- going through two sets at once ------------------------------------------------------------------------------ */

typedef struct cursor {
    const ra_rowset *set;
    int64_t span, index;
} cursor;

static int ended(const cursor *c) {
    return c->span == c->set->count;
}

static ra_span current(const cursor *c) {
    return c->set->spans[c->span];
}

static int64_t value(const cursor *c) {
    return ra_span_at(current(c), c->index);
}

/* The next `count` rows, all of the current span. */
static ra_span take(cursor *c, int64_t count) {
    ra_span rows = ra_span_slice(current(c), c->index, c->index + count);
    c->index += count;
    if (c->index == current(c).count) {
        c->span++;
        c->index = 0;
    }
    return rows;
}

static int64_t left(const cursor *c) {
    return current(c).count - c->index;
}

/* How many of the next rows of the current span lie before a row. */
static int64_t before(const cursor *c, int64_t row) {
    int64_t count = ra_ceil_div(row - value(c), current(c).stride);
    return count < 0 ? 0 : count > left(c) ? left(c) : count;
}

/* Of two cursors that stand on the same row: how many rows of b, from that one on, are rows of a before either span
 * ends. Where a's rows lie as close as b's or closer, all are; else the one they stand on is known to be. */
static int64_t shared(const cursor *a, const cursor *b) {
    if (current(b).stride % current(a).stride) return 1;
    int64_t count = (ra_span_last(current(a)) - value(a)) / current(b).stride + 1;
    return count < left(b) ? count : left(b);
}

/* Goes past `count` rows of b that are shared with a, in both: of a all up to the last of them. Returns how many. */
static int64_t go_past(cursor *a, cursor *b, int64_t count) {
    int64_t rows = count > 1 ? (count - 1) * (current(b).stride / current(a).stride) + 1 : 1;
    take(a, rows);
    take(b, count);
    return rows;
}

/* The cursors stand on the same row. What they have in common is gone past as one run of the closer rows. Where the
 * strides differ, its first row is appended by itself, since a row by itself may continue a span of any stride. */
static ra_status append_shared(ra_pool *pool, ra_rowset *set, cursor *x, cursor *y) {
    cursor *closer = current(x).stride <= current(y).stride ? x : y, *other = closer == x ? y : x;
    ra_span span = current(closer), head = ra_span_slice(current(x), x->index, x->index + 1);
    int alike = span.stride == current(other).stride;
    int64_t from = closer->index, rows = go_past(closer, other, shared(closer, other));
    if (alike) return append(pool, set, ra_span_slice(span, from, from + rows));
    RA_TRY(append(pool, set, head));
    return append(pool, set, ra_span_slice(span, from + 1, from + rows));
}

ra_status ra_rowset_union(ra_pool *pool, const ra_rowset *a, const ra_rowset *b, ra_rowset *set_out) {
    ra_rowset set = {0};
    cursor x = {a, 0, 0}, y = {b, 0, 0};
    while (!ended(&x) || !ended(&y)) {
        if (ended(&y) || (!ended(&x) && value(&x) < value(&y)))
            RA_TRY(append(pool, &set, take(&x, ended(&y) ? left(&x) : before(&x, value(&y)))));
        else if (ended(&x) || value(&y) < value(&x))
            RA_TRY(append(pool, &set, take(&y, ended(&x) ? left(&y) : before(&y, value(&x)))));
        else
            RA_TRY(append_shared(pool, &set, &x, &y));
    }
    *set_out = set;
    return RA_OK;
}

ra_status ra_rowset_minus(ra_pool *pool, const ra_rowset *a, const ra_rowset *b, ra_rowset *set_out) {
    ra_rowset set = {0};
    cursor x = {a, 0, 0}, y = {b, 0, 0};
    while (!ended(&x)) {
        if (ended(&y) || value(&x) < value(&y)) {
            RA_TRY(append(pool, &set, take(&x, ended(&y) ? left(&x) : before(&x, value(&y)))));
        } else if (value(&y) < value(&x)) {
            take(&y, before(&y, value(&x)));
        } else {
            go_past(&y, &x, shared(&y, &x));
        }
    }
    *set_out = set;
    return RA_OK;
}

int ra_rowset_within(const ra_rowset *a, const ra_rowset *b) {
    cursor x = {a, 0, 0}, y = {b, 0, 0};
    while (!ended(&x)) {
        if (ended(&y) || value(&x) < value(&y)) return 0;
        if (value(&y) < value(&x)) {
            take(&y, before(&y, value(&x)));
        } else {
            go_past(&y, &x, shared(&y, &x));
        }
    }
    return 1;
}

int64_t ra_rowset_rows(const ra_rowset *set) {
    int64_t rows = 0;
    for (int64_t i = 0; i < set->count; i++) rows += set->spans[i].count;
    return rows;
}

/* ---- what is needed ---------------------------------------------------------------------------------------------- */

/* Contacts come in rising runs, one per branch, head and span; each run becomes a set, and the sets are united. */
typedef struct need_loop {
    ra_pool *pool;
    ra_head_range heads; /* the query heads of the set */
    ra_rowset *sets;
    int64_t count, capacity;
    int64_t pairs; /* of sights, over those heads */
} need_loop;

/* Two runs of a rank's queries mostly see the same keys. */
static int is_within_run(ra_span rows, ra_span run) {
    return run.stride == 1 && rows.first >= run.first && ra_span_last(rows) <= ra_span_last(run);
}

static ra_status collect(need_loop *loop, ra_span heads, ra_span rows) {
    if (ra_span_clip(heads, loop->heads.from, loop->heads.to).count == 0) return RA_OK;
    ra_rowset *last = loop->count ? &loop->sets[loop->count - 1] : NULL;
    if (last && is_within_run(rows, last->spans[last->count - 1])) return RA_OK;
    int rises = last && rows.first > ra_span_last(last->spans[last->count - 1]);
    if (!rises) {
        last = ra_pool_append(loop->pool, &loop->sets, &loop->count, &loop->capacity, sizeof *last);
        if (!last) return ra_no_memory();
    }
    return append(loop->pool, last, rows);
}

static ra_status collect_contact(const ra_contact *contact, void *user) {
    return collect(user, contact->heads, contact->k_rows);
}

static ra_status collect_sight(const ra_sight *sight, void *user) {
    need_loop *loop = user;
    loop->pairs += sight->pairs * ra_span_clip(sight->heads, loop->heads.from, loop->heads.to).count;
    return collect(user, sight->heads, sight->keys);
}

static ra_status unite(need_loop *loop, ra_rowset *set_out) {
    for (int64_t n = loop->count; n > 1;
         n = (n + 1) / 2) /* two by two, so that no set is gone through more than log n times */
        for (int64_t j = 0; j < (n + 1) / 2; j++) {
            if (2 * j + 1 < n)
                RA_TRY(ra_rowset_union(loop->pool, &loop->sets[2 * j], &loop->sets[2 * j + 1], &loop->sets[j]));
            else
                loop->sets[j] = loop->sets[2 * j];
        }
    *set_out = loop->count ? loop->sets[0] : (ra_rowset){0};
    return RA_OK;
}

ra_status ra_rowset_needed(ra_pool *pool, const ra_cut_problem *cut, int q_rank, int k_rank, int64_t i,
                           ra_rowset *set_out) {
    need_loop loop = {.pool = pool, .heads = ra_head_set_queries(cut->problem, i)};
    RA_TRY(ra_pattern_contacts_of(cut, q_rank, k_rank, loop.heads, collect_contact, &loop));
    return unite(&loop, set_out);
}

ra_status ra_rowset_hinted(ra_pool *pool, const ra_cut_problem *cut, int from, int to, int k_rank, int64_t i,
                           ra_rowset *set_out) {
    need_loop loop = {.pool = pool, .heads = ra_head_set_queries(cut->problem, i)};
    RA_TRY(ra_pattern_hints(cut, from, to, k_rank, loop.heads, collect_sight, &loop));
    return unite(&loop, set_out);
}

ra_status ra_rowset_seen(ra_pool *pool, const ra_cut_problem *cut, int q_rank, int64_t i, ra_rowset *set_out,
                         int64_t *pairs_out) {
    need_loop loop = {.pool = pool, .heads = ra_head_set_queries(cut->problem, i)};
    RA_TRY(ra_pattern_sights(cut, q_rank, loop.heads, collect_sight, &loop));
    *pairs_out = loop.pairs;
    return unite(&loop, set_out);
}
