/* Which positions a rank owns. A shard is at most two spans of positions, in increasing order, of the whole sequence
 * or, on RA_LAYOUT_DOCUMENTS, of each document; its rows are numbered through them. All shards of a layout have one
 * stride, queries and keys alike: tiles rely on it. */
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

/* layout is not AUTO, 0 <= rank < ranks. On RA_LAYOUT_DOCUMENTS the shard of one document of n positions; its `rows`
 * are right for any documents of n positions in all. */
ra_shard ra_shard_of(ra_layout layout, int64_t n, int ranks, int rank);

/* RA_LAYOUT_DOCUMENTS: the rows of the ranks [from, to) in the document of positions [first, end), as its lower and its
 * upper run, either of which may be empty (span_count is 2). Run i of 2p has as many rows as there are positions in
 * [first, end) that leave the remainder i when divided by 2p. So runs of a document differ by at most one row, all of a
 * rank's rows in all documents together by at most two, and how many a rank has of the documents before is known
 * without looking at them. first_row is right for a single rank: to = from + 1. */
ra_shard ra_shard_in_document(int64_t first, int64_t end, int ranks, int from, int to);

/* Positions [first, end) cut into `count` runs as a document's are: run i has as many of them as leave the remainder i
 * when divided by count. Of [0, n) these are the runs of ra_cut. */
typedef struct ra_runs {
    int64_t first, count;
    int64_t each;            /* positions of a run ... */
    int64_t from, to, extra; /* ... and `extra`, 1 or -1, more in the runs [from, to) */
} ra_runs;

ra_runs ra_runs_of(int64_t first, int64_t end, int64_t count);

/* Where run i starts, 0 <= i <= count, and the run that holds a position. */
int64_t ra_runs_start(const ra_runs *runs, int64_t i);
int64_t ra_runs_find(const ra_runs *runs, int64_t position);

/* Documents one after another: the d-th has positions [cu[d], cu[d + 1]). cu is NULL for one document of n. */
typedef struct ra_sequence {
    int64_t n, documents;
    const int64_t *cu; /* [documents + 1] or NULL */
} ra_sequence;

/* The document, from `from` on, that holds a position; there is one. */
int64_t ra_sequence_document(const ra_sequence *sequence, int64_t from, int64_t position);

/* The position of a rank's row on any layout, and the way back. */
int64_t ra_sequence_position(const ra_sequence *sequence, ra_layout layout, int ranks, int rank, int64_t row);
void ra_sequence_locate(const ra_sequence *sequence, ra_layout layout, int ranks, int64_t position, int *rank_out,
                        int64_t *row_out);

/* The positions of the ranks [from, to), from < to, as if they were one shard; on stripes, where these are no spans,
 * all positions from the first to the last of them. */
ra_shard ra_shard_hull(ra_layout layout, int64_t n, int ranks, int from, int to);

/* The position of a row, 0 <= row < rows. */
int64_t ra_shard_position(const ra_shard *shard, int64_t row);

/* Where the i-th of `count` runs of n starts; runs differ by at most one, the longer ones first. */
int64_t ra_cut(int64_t n, int64_t count, int64_t i);

/* Which rank has a position, and in which of its rows. */
void ra_shard_locate(ra_layout layout, int64_t n, int ranks, int64_t position, int *rank_out, int64_t *row_out);

#endif
