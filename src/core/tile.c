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

/* Sum over a in [0, rows) of clamp(a + shift, 0, keys): nothing, then a rising line, then keys. */
static int64_t staircase(int64_t rows, int64_t keys, int64_t shift) {
    int64_t start = clamp(-shift, 0, rows);             /* the first a with a + shift >= 0 */
    int64_t level = clamp(keys - shift, start, rows);   /* the first a with a + shift >= keys */
    int64_t n = level - start;
    return n * (start + shift) + n * (n - 1) / 2 + (rows - level) * keys;
}

int64_t ra_tile_pairs(const ra_tile *tile) {
    if (tile->hi < tile->lo) return 0;
    int64_t rows = tile->q_rows.count, keys = tile->k_rows.count;
    /* Row a sees keys up to clamp(a + hi + 1) and from clamp(a + lo); the former is never below the latter. */
    return staircase(rows, keys, tile->hi + 1) - staircase(rows, keys, tile->lo);
}
