#include "core/tile.h"

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

void ra_tile_visible(const ra_tile *tile, int64_t a0, int64_t a1, int64_t *from_out, int64_t *to_out) {
    int64_t keys = tile->k_rows.count;
    int64_t from = clamp(a0 + tile->lo, 0, keys);
    int64_t to = clamp(a1 - 1 + tile->hi + 1, 0, keys);
    *from_out = from;
    *to_out = to > from && tile->hi >= tile->lo ? to : from;
}

void ra_tile_visible_among(const ra_tile *tile, int64_t a0, int64_t a1, int64_t b0, int64_t b1, int64_t *from_out,
                           int64_t *to_out) {
    int64_t from, to;
    ra_tile_visible(tile, a0, a1, &from, &to);
    *from_out = clamp(from, b0, b1);
    *to_out = clamp(to, *from_out, b1);
}

int ra_tile_is_full(const ra_tile *tile, int64_t a0, int64_t a1, int64_t b0, int64_t b1) {
    /* The corners of the block are its extremes of b - a. */
    return b0 - (a1 - 1) >= tile->lo && b1 - 1 - a0 <= tile->hi;
}

ra_tile ra_tile_slice(const ra_tile *tile, int64_t a0, int64_t a1, int64_t b0, int64_t b1) {
    ra_tile slice = *tile;
    slice.q_rows = ra_span_slice(tile->q_rows, a0, a1);
    slice.k_rows = ra_span_slice(tile->k_rows, b0, b1);
    slice.lo = clamp(tile->lo + a0 - b0, a0 - a1, b1 - b0);
    slice.hi = clamp(tile->hi + a0 - b0, a0 - a1, b1 - b0);
    if (tile->k_index) slice.k_index = tile->k_index + b0;
    slice.positions.query += a0 * tile->positions.query_stride;
    slice.positions.key += b0 * tile->positions.key_stride;
    return slice;
}

/* n (n - 1) / 2 modulo 2^64. */
static uint64_t triangle(uint64_t n) {
    return n % 2 ? n * ((n - 1) / 2) : n / 2 * (n - 1);
}

/* Sum over a in [0, rows) of clamp(slope a + shift, 0, keys), modulo 2^64: nothing, then a rising line, then keys. */
static uint64_t staircase(int64_t rows, int64_t keys, int64_t slope, int64_t shift) {
    int steep = slope > 1; /* a division by 1 is slow all the same */
    int64_t start = clamp(steep ? ra_ceil_div(-shift, slope) : -shift, 0, rows); /* the first a of the rising line */
    int64_t level = clamp(steep ? ra_ceil_div(keys - shift, slope) : keys - shift, start, rows); /* and of its end */
    uint64_t n = (uint64_t)(level - start), low = (uint64_t)start * (uint64_t)slope + (uint64_t)shift;
    return n * low + (uint64_t)slope * triangle(n) + (uint64_t)(rows - level) * (uint64_t)keys;
}

int64_t ra_band_pairs(int64_t rows, int64_t keys, int64_t slope, int64_t lo, int64_t hi) {
    if (hi < lo) return 0;
    /* Row a sees keys up to clamp(slope a + hi + 1) and from clamp(slope a + lo); the former is never below the latter.
     * Either sum may be beyond 64 bits in a long narrow band; their difference is not, and a multiple of 2^64 that both
     * have lost does not show in it. */
    return (int64_t)(staircase(rows, keys, slope, hi + 1) - staircase(rows, keys, slope, lo));
}

int64_t ra_tile_pairs(const ra_tile *tile) {
    return ra_band_pairs(tile->q_rows.count, tile->k_rows.count, 1, tile->lo, tile->hi);
}
