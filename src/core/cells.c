#include "core/cells.h"

#include "base/status.h"

#include <stdlib.h>

typedef struct span_list {
    ra_span *spans;
    int64_t count, capacity;
} span_list;

typedef struct adding {
    ra_pool *pool;
    ra_named_span *family;
    int64_t family_count;
    int64_t *ends;    /* [family_count]: the last row of a span or of one before it */
    int64_t *covered; /* [family_count]: rows of a span that cells have had before */
    int64_t left;     /* of the work that is allowed */
    ra_cell *cells;   /* those that come out */
    int64_t count, capacity;
    span_list rest, next; /* what is left of a cell, or of a span, before and after one more is taken out */
} adding;

/* ---- taking rows out of a span ----------------------------------------------------------------------------------- */

static ra_status put(ra_pool *pool, span_list *list, ra_span rows) {
    ra_span *item = ra_pool_append(pool, &list->spans, &list->count, &list->capacity, sizeof *item);
    if (!item) return ra_no_memory();
    *item = rows;
    return RA_OK;
}

/* The rows of s that are not in c, some of s's, to the list. c has every k-th row of s from its own first to its last:
 *
 *     s    0 1 2 3 4 5 6 7 8 9 ...        k = 4
 *     c        2       6                  left: 0 4, 1 5, 3 7 (before c and behind it to less than k rows), and 8 9 ...
 */
static ra_status put_rest(adding *a, ra_span s, ra_span c, span_list *list) {
    int64_t k = c.count > 1 ? c.stride / s.stride : 1, first = (c.first - s.first) / s.stride;
    int64_t last = first + (c.count - 1) * k;
    int64_t from = first < k ? 0 : first, to = s.count - 1 - last < k ? s.count : last + 1;
    a->left -= k + 1;
    if (a->left < 0) return RA_OK;
    if (from > 0) RA_TRY(put(a->pool, list, ra_span_slice(s, 0, from)));
    for (int64_t i = from; i < from + k && i < to; i++) {
        if ((i - first) % k == 0) continue;
        ra_span every = {ra_span_at(s, i), k * s.stride, (to - 1 - i) / k + 1};
        RA_TRY(put(a->pool, list, every));
    }
    return to < s.count ? put(a->pool, list, ra_span_slice(s, to, s.count)) : RA_OK;
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

static ra_status put_cell(adding *a, ra_span rows, const ra_cell_member *members) {
    ra_cell *cell = ra_pool_append(a->pool, &a->cells, &a->count, &a->capacity, sizeof *cell);
    if (!cell) return ra_no_memory();
    if (rows.count == 1) rows.stride = 1; /* one row has none */
    a->left--;
    *cell = (ra_cell){rows, members};
    return RA_OK;
}

/* rows, of a span of the family: a cell that is in that as well. */
static ra_status put_member(adding *a, int64_t span, ra_span rows, const ra_cell_member *before) {
    ra_cell_member *member = ra_pool_take(a->pool, 1, sizeof *member);
    if (!member) return ra_no_memory();
    *member = (ra_cell_member){a->family[span].name, before};
    a->covered[span] += rows.count;
    return put_cell(a, rows, member);
}

static void swap_rest(adding *a) {
    span_list rest = a->rest;
    a->rest = a->next;
    a->next = rest;
    a->next.count = 0;
}

/* The first span of the family that may have rows from `row` on. */
static int64_t first_behind(const adding *a, int64_t row) {
    int64_t from = 0, to = a->family_count;
    while (from < to) {
        int64_t mid = from + (to - from) / 2;
        if (a->ends[mid] < row)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

/* A cell becomes those of its rows that are in a span of the family, for each, and those that are in none. */
static ra_status divide(adding *a, const ra_cell *cell) {
    a->rest.count = 0;
    RA_TRY(put(a->pool, &a->rest, cell->rows));
    for (int64_t i = first_behind(a, cell->rows.first); i < a->family_count && a->rest.count > 0; i++) {
        ra_span rows = a->family[i].rows;
        if (a->left < 0 || rows.first > ra_span_last(cell->rows)) break;
        for (int64_t n = 0; n < a->rest.count && a->left >= 0; n++) {
            ra_span common = ra_span_intersect(a->rest.spans[n], rows);
            a->left--;
            if (common.count == 0) {
                RA_TRY(put(a->pool, &a->next, a->rest.spans[n]));
                continue;
            }
            RA_TRY(put_rest(a, a->rest.spans[n], common, &a->next));
            RA_TRY(put_member(a, i, common, cell->members));
        }
        swap_rest(a);
    }
    for (int64_t n = 0; n < a->rest.count && a->left >= 0; n++) RA_TRY(put_cell(a, a->rest.spans[n], cell->members));
    return RA_OK;
}

/* The rows of a span that none of the given cells has. */
static ra_status put_uncovered(adding *a, const ra_cells *cells, int64_t span) {
    a->rest.count = 0;
    RA_TRY(put(a->pool, &a->rest, a->family[span].rows));
    for (int64_t i = 0; i < cells->count && a->left >= 0; i++) {
        for (int64_t n = 0; n < a->rest.count && a->left >= 0; n++) {
            ra_span common = ra_span_intersect(a->rest.spans[n], cells->cells[i].rows);
            a->left--;
            if (common.count == 0)
                RA_TRY(put(a->pool, &a->next, a->rest.spans[n]));
            else
                RA_TRY(put_rest(a, a->rest.spans[n], common, &a->next));
        }
        swap_rest(a);
    }
    for (int64_t n = 0; n < a->rest.count && a->left >= 0; n++) RA_TRY(put_member(a, span, a->rest.spans[n], NULL));
    return RA_OK;
}

/* Nothing is left where two spans have rows in common. */
static void check_family(adding *a) {
    for (int64_t i = 0; i < a->family_count; i++)
        for (int64_t n = i + 1; n < a->family_count && a->left >= 0; n++) {
            if (a->family[n].rows.first > ra_span_last(a->family[i].rows)) break;
            a->left--;
            if (ra_span_intersect(a->family[i].rows, a->family[n].rows).count > 0) a->left = -1;
        }
}

/* Of cells and of named spans, which both begin with their rows. */
static int compare_rows(const void *x, const void *y) {
    const ra_span *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

ra_status ra_cells_add(ra_pool *pool, const ra_cells *cells, ra_named_span *spans, int64_t count, int64_t *work,
                       ra_cells *cells_out) {
    adding a = {.pool = pool, .family = spans, .family_count = count, .left = *work};
    a.ends = ra_pool_take(pool, count, sizeof *a.ends);
    a.covered = ra_pool_take(pool, count, sizeof *a.covered);
    if (!a.ends || !a.covered) return ra_no_memory();
    if (count > 1) qsort(spans, (size_t)count, sizeof *spans, compare_rows);
    for (int64_t i = 0; i < count; i++) {
        a.ends[i] = ra_span_last(spans[i].rows);
        if (i > 0 && a.ends[i - 1] > a.ends[i]) a.ends[i] = a.ends[i - 1];
    }
    check_family(&a);
    for (int64_t i = 0; i < cells->count && a.left >= 0; i++) RA_TRY(divide(&a, &cells->cells[i]));
    for (int64_t i = 0; i < count && a.left >= 0; i++)
        if (a.covered[i] < spans[i].rows.count) RA_TRY(put_uncovered(&a, cells, i));
    *work = a.left;
    if (a.left < 0) a.count = -1;
    if (a.count > 1) qsort(a.cells, (size_t)a.count, sizeof *a.cells, compare_rows);
    *cells_out = (ra_cells){a.cells, a.count};
    return RA_OK;
}
