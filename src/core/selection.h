/* Selections: which heads keep which tokens. A dense problem has one, all heads and every token; a dilated one has one
 * per branch and offset, each for the span of heads that share the offset. */
#ifndef RA_CORE_SELECTION_H
#define RA_CORE_SELECTION_H

#include "core/problem.h"
#include "core/span.h"

typedef struct ra_selection {
    int branch;
    int64_t segment, rate, offset; /* of a document's keys u it keeps those with u mod segment mod rate = offset; not
                                    * set in a dense problem */
    ra_span heads;                 /* query heads, not empty */
} ra_selection;

/* The first selection, then each next one; 0 when there is none left. */
typedef struct ra_selection_cursor {
    int branch;
    int64_t offset;
} ra_selection_cursor;
int ra_selection_next(const ra_problem *normal, ra_selection_cursor *cursor, ra_selection *selection_out);

#endif
