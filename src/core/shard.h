/* Which positions a rank owns. A shard is at most two spans of positions, in increasing order; its rows are numbered
 * through them. All shards of a layout have one stride, queries and keys alike: tiles rely on it. */
#ifndef RA_CORE_SHARD_H
#define RA_CORE_SHARD_H

#include "core/span.h"

#include <ringattn/ringattn.h>

typedef struct ra_shard {
    ra_span spans[2];
    int64_t first_row[2]; /* the row of each span's first position */
    int span_count;       /* spans that are not empty */
    int64_t rows;
} ra_shard;

/* layout is one of the three, 0 <= rank < ranks. */
ra_shard ra_shard_of(ra_layout layout, int64_t n, int ranks, int rank);

/* The positions of the ranks [from, to), from < to, as if they were one shard; on stripes, where these are no spans,
 * all positions from the first to the last of them. */
ra_shard ra_shard_hull(ra_layout layout, int64_t n, int ranks, int from, int to);

/* The position of a row, 0 <= row < rows. */
int64_t ra_shard_position(const ra_shard *shard, int64_t row);

/* Where the i-th of `parts` runs of n starts; runs differ by at most one, the longer ones first. */
int64_t ra_cut(int64_t n, int64_t parts, int64_t i);

/* Which rank has a position, and in which of its rows. */
void ra_shard_locate(ra_layout layout, int64_t n, int ranks, int64_t position, int *rank_out, int64_t *row_out);

#endif
