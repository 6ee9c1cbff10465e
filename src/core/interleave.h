/* A set of rows in fewer spans, which lie between each other.
 *
 * A rowset's spans follow one another, so a set that repeats itself, as the rows of one rate without those of another
 * do, has a few short ones in every repetition. Here the rows that stand at the same place in all repetitions are one
 * span:
 *
 *     rowset        [4 8 12] [20 24 28] [36 40 44] ...          every 4th row without every 16th
 *     interleaved   [4 20 36 ...] [8 24 40 ...] [12 28 44 ...]
 *
 * Kernels and packs take spans, so what has long ones needs neither an index of rows nor many small pieces.
 */
#ifndef RA_CORE_INTERLEAVE_H
#define RA_CORE_INTERLEAVE_H

#include "core/rowset.h"

/* Spans that have no row in common, in any order; the set's own where nothing has been made of them. */
typedef struct ra_span_list {
    ra_span *spans;
    int64_t count, capacity;
} ra_span_list;

/* Rows that are `rate` apart are asked for so many at a time that rows of a span may be `distance` apart: whoever takes
 * the rows of a set between a first and a last one gets a span for each row of a repetition, and these should be worth
 * it. */
typedef struct ra_distance_limit {
    int64_t rate, distance;
} ra_distance_limit;

/* The rows of the set: its own spans where it does not repeat itself, too seldom for that to make fewer of them, or too
 * far apart for rows of one of the rates that may be in it, or of any rate. The spans of a repetition come one behind
 * the other, by their first rows, and so do repetitions and what is between them. */
ra_status ra_rowset_interleave(ra_pool *pool, const ra_rowset *set, const ra_distance_limit *limits,
                               int64_t limit_count, ra_span_list *list_out);

#endif
