/* Products of bf16 by TDPBF16PS: a tile of 16 x 32 times one of 32 x 16 to one of 16 x 16, four at a time.
 *
 *                tmm6  tmm7      panels of B
 *   rows  tmm4   tmm0  tmm1
 *   of A  tmm5   tmm2  tmm3      sums
 */
#ifndef RA_KERNEL_AMX_PRODUCT_H
#define RA_KERNEL_AMX_PRODUCT_H

#include "kernel/cpu/body/bf16_product.h"

#include <immintrin.h>

#define NAME(stem) ra_amx_##stem

enum { TILE_ROWS = 16 };

/* Every tile has 16 rows of 64 bytes. A constant in memory: compilers take the instruction to read 8 bytes only, and
 * would not bother to write the rest of a local one. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

/* The configuration belongs to the thread. */
static inline void begin_products(void) {
    _tile_loadconfig(&tile_config);
}

static inline void end_products(void) {
    _tile_release();
}

/* (16 * tall) x (16 * wide) sums, tall and wide 1 or 2. Strides of tile loads are in bytes. */
static inline __attribute__((always_inline)) void tile_product(enum product_kind kind, int tall, int wide, float *c,
                                                               int64_t c_row, const half *a, int64_t a_row,
                                                               const half *b, int64_t b_panel, int64_t depth) {
    int64_t c_bytes = c_row * (int64_t)sizeof *c, a_bytes = a_row * (int64_t)sizeof *a;
    float *lower = c + TILE_ROWS * c_row;
    const half *a_below = a + TILE_ROWS * a_row, *b_beside = b + b_panel;
    if (kind == ADD) {
        _tile_loadd(0, c, c_bytes);
        if (wide == 2) _tile_loadd(1, c + COLUMNS, c_bytes);
        if (tall == 2) _tile_loadd(2, lower, c_bytes);
        if (tall == 2 && wide == 2) _tile_loadd(3, lower + COLUMNS, c_bytes);
    } else {
        _tile_zero(0);
        if (wide == 2) _tile_zero(1);
        if (tall == 2) _tile_zero(2);
        if (tall == 2 && wide == 2) _tile_zero(3);
    }
    for (int64_t k = 0; k < depth; k += DEPTH) {
        _tile_loadd(6, b + k * COLUMNS, 64);
        _tile_loadd(4, a + k, a_bytes);
        _tile_dpbf16ps(0, 4, 6);
        if (tall == 2) _tile_loadd(5, a_below + k, a_bytes);
        if (tall == 2) _tile_dpbf16ps(2, 5, 6);
        if (wide == 2) _tile_loadd(7, b_beside + k * COLUMNS, 64);
        if (wide == 2) _tile_dpbf16ps(1, 4, 7);
        if (tall == 2 && wide == 2) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_bytes);
    if (wide == 2) _tile_stored(1, c + COLUMNS, c_bytes);
    if (tall == 2) _tile_stored(2, lower, c_bytes);
    if (tall == 2 && wide == 2) _tile_stored(3, lower + COLUMNS, c_bytes);
}

static inline __attribute__((always_inline)) void
product_rows(enum product_kind kind, int tall, float *c, int64_t c_row, const half *a, int64_t a_row, bf16_panels b) {
    int64_t j = 0;
    for (; j + 2 * COLUMNS <= b.n; j += 2 * COLUMNS)
        tile_product(kind, tall, 2, c + j, c_row, a, a_row, b.data + j / COLUMNS * b.panel, b.panel, b.depth);
    if (j < b.n) tile_product(kind, tall, 1, c + j, c_row, a, a_row, b.data + j / COLUMNS * b.panel, b.panel, b.depth);
}

/* The compiler does not know that tiles are loaded from memory: the fence makes it write what it holds in registers. */
static inline __attribute__((always_inline)) void product(enum product_kind kind, float *c, int64_t c_row, int64_t m,
                                                          const half *a, int64_t a_row, bf16_panels b) {
    __asm__ volatile("" ::: "memory");
    int64_t i = 0;
    for (; i + 2 * TILE_ROWS <= m; i += 2 * TILE_ROWS)
        product_rows(kind, 2, c + i * c_row, c_row, a + i * a_row, a_row, b);
    if (i < m) product_rows(kind, 1, c + i * c_row, c_row, a + i * a_row, a_row, b);
}

#endif
