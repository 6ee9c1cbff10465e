/* Cells: rows that several families of spans have in common.
 *
 * The spans of one family have no row in common, those of different families may. A cell is a span of rows that are all
 * in the same spans; every row of any span is in one cell:
 *
 *     family A   [0───────────7] [8──────────15]         spans a0, a1
 *     family B    0   4   8   12                         a span b0 of stride 4
 *     cells       0 4: a0 b0    1 5, 2 6, 3 7: a0    8 12: a1 b0    9 13, 10 14, 11 15: a1
 */
#ifndef RA_CORE_CELLS_H
#define RA_CORE_CELLS_H

#include "base/internal.h"
#include "base/pool.h"
#include "core/span.h"

/* A span that a cell's rows are in, and the one of the family before. Cells share the ends of their lists. */
typedef struct ra_cell_member {
    int64_t span; /* as its family calls it */
    const struct ra_cell_member *before;
} ra_cell_member;

typedef struct ra_cell {
    ra_span rows;
    const ra_cell_member *members; /* the last family's first */
} ra_cell;

typedef struct ra_cells {
    ra_cell *cells; /* by their first rows */
    int64_t count;
} ra_cells;

/* A span of a family, and what the family calls it. */
typedef struct ra_named_span {
    ra_span rows;
    int64_t name;
} ra_named_span;

/* The cells of one family more; those that are given stay as they are. spans: sorted here by their first rows; none is
 * empty. *work: how many cells there may be, and steps to find them; it becomes what is left. Where it is not enough,
 * or the family's spans have rows in common, *cells_out has a count of -1. */
ra_status ra_cells_add(ra_pool *pool, const ra_cells *cells, ra_named_span *spans, int64_t count, int64_t *work,
                       ra_cells *cells_out);

#endif
