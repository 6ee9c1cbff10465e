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

/* Spans that have no row in common, in any order. */
typedef struct ra_span_list {
    ra_span *spans;
    int64_t count, capacity;
} ra_span_list;

/* The rows of the set: its own spans where it does not repeat itself, or too seldom for that to make fewer of them. */
ra_status ra_rowset_interleave(ra_pool *pool, const ra_rowset *set, ra_span_list *list_out);

#endif
