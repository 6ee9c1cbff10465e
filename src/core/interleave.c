#include "core/interleave.h"

#include "base/status.h"

/* A repetition has no more rows than this, so that looking for one takes few steps from any span. Rows of rates 3, 5
 * and 7 repeat every 105, and are 57 of these. */
enum { MOST_ROWS = 64 };

/* Some spans of a set that the following ones repeat, so many rows further on each time. */
typedef struct repetition {
    int64_t spans, rows; /* that are repeated */
    int64_t distance;
    int64_t all; /* spans of all times; the last time may be of fewer spans */
} repetition;

/* Whether span y is span x, so many rows further on. A row by itself has no stride. */
static int is_moved(ra_span x, ra_span y, int64_t distance) {
    return y.first - x.first == distance && x.count == y.count && (x.count == 1 || x.stride == y.stride);
}

/* Whether making a span of each row of a repetition leaves half of the spans, or fewer. */
static int pays(const repetition *r) {
    return 2 * r->rows <= r->all;
}

/* A set, and what its spans are for. */
typedef struct limited_set {
    const ra_rowset *set;
    const ra_distance_limit *limits;
    int64_t limit_count;
    int64_t widest; /* the greatest distance of all limits */
} limited_set;

/* Of the rows of a rate that a repetition could have, other sets may have taken this much away. */
enum { TAKEN_AWAY = 4 };

/* Whether rows of all rates that may be in the repetition, as many rows as it has, may be that far apart. */
static int is_near(const limited_set *s, const repetition *r) {
    for (int64_t i = 0; i < s->limit_count; i++) {
        const ra_distance_limit *limit = &s->limits[i];
        if (r->distance > limit->distance && limit->rate >= r->distance / (TAKEN_AWAY * r->rows)) return 0;
    }
    return 1;
}

/* Looks for what repeats itself from span `from` on; returns whether spans are to be made of it. *all_out: how many
 * spans it is, or need not be looked at again. */
static int find_repetition(const limited_set *s, int64_t from, repetition *found_out, int64_t *all_out) {
    const ra_span *spans = &s->set->spans[from];
    int64_t left = s->set->count - from, rows = 0;
    *all_out = 1;
    for (int64_t n = 1; 2 * n <= left; n++) {
        rows += spans[n - 1].count;
        repetition r = {n, rows, spans[n].first - spans[0].first, n};
        if (rows > MOST_ROWS || r.distance > s->widest) return 0;
        while (r.all < left && is_moved(spans[r.all - n], spans[r.all], r.distance)) r.all++;
        if (!pays(&r)) continue;
        *found_out = r;
        *all_out = r.all;
        return is_near(s, &r);
    }
    return 0;
}

static ra_status push(ra_pool *pool, ra_span_list *list, ra_span span) {
    ra_span *item = ra_pool_append(pool, &list->spans, &list->count, &list->capacity, sizeof *item);
    if (!item) return ra_no_memory();
    *item = span;
    return RA_OK;
}

static ra_status push_repetition(ra_pool *pool, const ra_span *spans, const repetition *r, ra_span_list *list) {
    for (int64_t i = 0; i < r->spans; i++)
        for (int64_t n = 0; n < spans[i].count; n++) {
            int64_t times = r->all / r->spans + (i < r->all % r->spans);
            RA_TRY(push(pool, list, (ra_span){ra_span_at(spans[i], n), r->distance, times}));
        }
    return RA_OK;
}

/* How many spans to go on by when so many have been looked at in vain: each at first, fewer where nothing repeats
 * itself for long. */
static int64_t stride_after(int64_t failures) {
    return (int64_t)1 << (failures < 48 ? failures / 16 : 3);
}

/* The first span from which on something repeats itself; the number of spans where nothing does. */
static int64_t next_repetition(const limited_set *s, int64_t from, repetition *found_out) {
    for (int64_t failures = 0; from < s->set->count; failures++) {
        int64_t all = 0, stride = stride_after(failures);
        if (find_repetition(s, from, found_out, &all)) return from;
        from += all > stride ? all : stride;
    }
    return s->set->count;
}

ra_status ra_rowset_interleave(ra_pool *pool, const ra_rowset *set, const ra_distance_limit *limits,
                               int64_t limit_count, ra_span_list *list_out) {
    limited_set s = {set, limits, limit_count, 0};
    repetition r;
    ra_span_list list = {0};
    for (int64_t i = 0; i < limit_count; i++)
        if (limits[i].distance > s.widest) s.widest = limits[i].distance;
    int64_t at = 0, next = next_repetition(&s, 0, &r);
    if (next == set->count) {
        *list_out = (ra_span_list){set->spans, set->count, set->capacity};
        return RA_OK;
    }
    for (;;) {
        while (at < next) RA_TRY(push(pool, &list, set->spans[at++]));
        if (at == set->count) break;
        RA_TRY(push_repetition(pool, &set->spans[at], &r, &list));
        at += r.all;
        next = next_repetition(&s, at, &r);
    }
    *list_out = list;
    return RA_OK;
}
