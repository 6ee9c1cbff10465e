/* A tile: some queries against some keys for some heads, and which of the pairs are visible. This is all that a kernel
 * sees of layouts, documents, windows and ranks.
 *
 * Queries and keys of a tile are spans of positions with one common stride, so "key position - query position lies in
 * an interval" becomes a test on indices: the a-th query sees the b-th key when lo <= b - a <= hi. A row's visible keys
 * are then one run of b, and the runs move by one from row to row. Where every query sees every key the strides may
 * differ.
 *
 *            b ──►                     lo = -2, hi = 0 (a window of 2 to the left, causal)
 *        a   x . . . .
 *        │   x x . . .
 *        ▼   x x x . .
 *            . x x x .
 */
#ifndef RA_CORE_TILE_H
#define RA_CORE_TILE_H

#include "base/internal.h"
#include "core/span.h"

/* Where the queries and keys of a tile are in the sequence: query a at `query` + a * query_stride, key b at `key` + b *
 * key_stride. The band was made from these; kernels whose scores depend on positions read them, all others do not. A
 * query is aligned with the key `diagonal` further on, which is 0 where its document has as many queries as keys. */
typedef struct ra_positions {
    int64_t query, query_stride;
    int64_t key, key_stride; /* key_stride: query_stride, unless all pairs are visible */
    int64_t diagonal;
} ra_positions;

typedef struct ra_tile {
    ra_span q_rows;         /* rows of this rank's query shard */
    ra_span k_rows;         /* rows of the keys of `part` */
    ra_span heads;          /* query heads */
    int64_t lo, hi;         /* visible: lo <= b - a <= hi; within [-q_rows.count, k_rows.count] */
    int part;               /* which of the parts that come with the list */
    const int64_t *k_index; /* [k_rows.count]: the keys' rows where they are no span; else NULL */
    int queries;            /* which of the queries that come with the list, where they are several ranks' */
    int extra;              /* how often each pair counts beyond once: log(1 + extra) is added to its score. Other than
                             * 0 only in lists that have been joined (core/join_rounds.h) */
    ra_positions positions;
} ra_tile;

/* The row of the b-th key in its part. */
static inline int64_t ra_tile_key(const ra_tile *tile, int64_t b) {
    return tile->k_index ? tile->k_index[b] : ra_span_at(tile->k_rows, b);
}

/* Tiles that share their query rows and heads stand together as a group: a worker owns a block of a group's rows and
 * reads and writes their state once. */
typedef struct ra_tile_group {
    int64_t first, count; /* of tiles */
} ra_tile_group;

/* Groups of one round have disjoint (query row, head) sets, so workers need no locks; rounds follow one another. */
typedef struct ra_tile_round {
    int64_t first, count; /* of groups */
    int64_t state;        /* which of the states it accumulates into */
} ra_tile_round;

typedef struct ra_tile_list {
    const ra_tile *tiles;
    const ra_tile_group *groups;
    const ra_tile_round *rounds;
    int64_t tile_count, group_count, round_count;
} ra_tile_list;

/* The visible keys [*from_out, *to_out) of the queries with indices [a0, a1): their union; a1 > a0. None: from = to. */
RA_INTERNAL void ra_tile_visible(const ra_tile *tile, int64_t a0, int64_t a1, int64_t *from_out, int64_t *to_out);

/* The same among the keys [b0, b1). */
void ra_tile_visible_among(const ra_tile *tile, int64_t a0, int64_t a1, int64_t b0, int64_t b1, int64_t *from_out,
                           int64_t *to_out);

/* Whether every pair of queries [a0, a1) and keys [b0, b1) is visible. */
int ra_tile_is_full(const ra_tile *tile, int64_t a0, int64_t a1, int64_t b0, int64_t b1);

/* The tile of the queries [a0, a1) with the keys [b0, b1): none of them may be empty. */
ra_tile ra_tile_slice(const ra_tile *tile, int64_t a0, int64_t a1, int64_t b0, int64_t b1);

/* The pairs (a, b), 0 <= a < rows, 0 <= b < keys, with lo <= b - slope a <= hi. Right whenever that number fits in 63
 * bits, though rows * keys may not. */
int64_t ra_band_pairs(int64_t rows, int64_t keys, int64_t slope, int64_t lo, int64_t hi);

/* Visible pairs for one head. */
RA_INTERNAL int64_t ra_tile_pairs(const ra_tile *tile);

#endif
