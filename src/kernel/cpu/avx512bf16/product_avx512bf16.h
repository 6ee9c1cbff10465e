/* Products of bf16 by VDPBF16PS. */
#ifndef RA_KERNEL_AVX512BF16_PRODUCT_H
#define RA_KERNEL_AVX512BF16_PRODUCT_H

#include "kernel/cpu/body/bf16_product.h"

#include <immintrin.h>

#define NAME(stem) ra_avx512bf16_##stem

/* 24 of the 32 registers are sums. */
enum { MICRO_ROWS = 8, MICRO_PANELS = 3 };

/* What a thread does before and after its products: nothing. */
static inline void begin_products(void) {
}

static inline void end_products(void) {
}

/* MICRO_ROWS x (panels * COLUMNS) sums held in registers over the whole depth, then put into C. */
static inline __attribute__((always_inline)) void micro_product(enum product_kind kind, int panels, float *c,
                                                                int64_t c_row, const half *a, int64_t a_row,
                                                                const half *b, int64_t b_panel, int64_t depth) {
    __m512 sum[MICRO_ROWS][MICRO_PANELS];
#pragma GCC unroll 16
    for (int i = 0; i < MICRO_ROWS; i++)
#pragma GCC unroll 16
        for (int j = 0; j < panels; j++) sum[i][j] = _mm512_setzero_ps();
    for (int64_t k = 0; k < depth; k += 2) {
        __m512i y[MICRO_PANELS];
#pragma GCC unroll 16
        for (int j = 0; j < panels; j++) y[j] = _mm512_load_si512(b + j * b_panel + k * COLUMNS);
#pragma GCC unroll 16
        for (int i = 0; i < MICRO_ROWS; i++) {
            int32_t two;
            __builtin_memcpy(&two, a + i * a_row + k, sizeof two);
            __m512i x = _mm512_set1_epi32(two);
#pragma GCC unroll 16
            for (int j = 0; j < panels; j++) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], (__m512bh)x, (__m512bh)y[j]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < MICRO_ROWS; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < panels; j++) {
            float *to = c + i * c_row + j * COLUMNS;
            if (kind == ADD) sum[i][j] = _mm512_add_ps(sum[i][j], _mm512_loadu_ps(to));
            _mm512_storeu_ps(to, sum[i][j]);
        }
    }
}

static inline __attribute__((always_inline)) void product_columns(enum product_kind kind, int panels, float *c,
                                                                  int64_t c_row, int64_t m, const half *a,
                                                                  int64_t a_row, bf16_panels b, int64_t j) {
    for (int64_t i = 0; i < m; i += MICRO_ROWS)
        micro_product(kind, panels, c + i * c_row + j, c_row, a + i * a_row, a_row, b.data + j / COLUMNS * b.panel,
                      b.panel, b.depth);
}

static inline __attribute__((always_inline)) void product(enum product_kind kind, float *c, int64_t c_row, int64_t m,
                                                          const half *a, int64_t a_row, bf16_panels b) {
    int64_t j = 0;
    for (; j + MICRO_PANELS * COLUMNS <= b.n; j += MICRO_PANELS * COLUMNS)
        product_columns(kind, MICRO_PANELS, c, c_row, m, a, a_row, b, j);
    if (b.n - j == 2 * COLUMNS) product_columns(kind, 2, c, c_row, m, a, a_row, b, j);
    if (b.n - j == COLUMNS) product_columns(kind, 1, c, c_row, m, a, a_row, b, j);
}

#endif
