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

/* Looks for what repeats itself from span `from` on; returns whether it pays. */
static int find_repetition(const ra_rowset *set, int64_t from, repetition *found_out) {
    const ra_span *spans = &set->spans[from];
    int64_t left = set->count - from, rows = 0;
    for (int64_t n = 1; 2 * n <= left; n++) {
        rows += spans[n - 1].count;
        if (rows > MOST_ROWS) return 0;
        repetition r = {n, rows, spans[n].first - spans[0].first, n};
        while (r.all < left && is_moved(spans[r.all - n], spans[r.all], r.distance)) r.all++;
        *found_out = r;
        if (pays(&r)) return 1;
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

ra_status ra_rowset_interleave(ra_pool *pool, const ra_rowset *set, ra_span_list *list_out) {
    ra_span_list list = {0};
    repetition r;
    for (int64_t i = 0; i < set->count;) {
        if (find_repetition(set, i, &r)) {
            RA_TRY(push_repetition(pool, &set->spans[i], &r, &list));
            i += r.all;
        } else {
            RA_TRY(push(pool, &list, set->spans[i++]));
        }
    }
    *list_out = list;
    return RA_OK;
}
