/* The bodies for float in vectors of 32 bytes. */
#ifndef RA_KERNEL_AVX2_TYPE_H
#define RA_KERNEL_AVX2_TYPE_H

#include "kernel/row_io.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define REAL float
#define NAME(stem) ra_avx2_##stem##_f32
#define LOAD_ROW ra_row_load_f32

/* 12 of the 16 registers are sums. */
enum { LANES = 8, MICRO_ROWS = 6, MICRO_VECTORS = 2 };

typedef float vec __attribute__((vector_size(32), may_alias));

static inline vec splat(float x) {
    return (vec)_mm256_set1_ps(x);
}

/* x > y ? x : y, which is y where one is NaN. */
static inline vec larger(vec x, vec y) {
    return (vec)_mm256_max_ps((__m256)x, (__m256)y);
}

/* e^x to 2 units in the last place for x in [-87, 88]; exactly 0 for x < -87, -inf included; NaN for NaN; not finite
 * for +inf; without meaning between 88 and that.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial of degree 6 whose own error is 2^-28; n ln 2 is taken off in
 * two pieces. Adding 1.5 * 2^23 leaves no bit for a fraction, which rounds x / ln 2 to n, and n stands in the low bits
 * of the sum: 2^n by its exponent bits. -inf is lifted to -87: it would raise FE_INVALID. */
static inline vec vec_exp(vec x) {
    const __m256 shift = _mm256_set1_ps(0x1.8p23f);
    __m256 lifted = _mm256_max_ps(_mm256_set1_ps(-87), (__m256)x); /* NaN stays */
    __m256 shifted = _mm256_fmadd_ps(lifted, _mm256_set1_ps(0x1.715476p+0f), shift);
    __m256 n = _mm256_sub_ps(shifted, shift);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e43p-1f), lifted);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-0x1.05c61p-29f), r);
    __m256 y = _mm256_fmadd_ps(r, _mm256_set1_ps(0x1.6ac37p-10f), _mm256_set1_ps(0x1.123da6p-7f));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(0x1.555858p-5f));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(0x1.55548cp-3f));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(0x1.fffffcp-2f));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1));
    __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23), _mm256_set1_epi32(127 << 23));
    __m256 stays = _mm256_cmp_ps((__m256)x, _mm256_set1_ps(-87), _CMP_NLT_UQ);
    return (vec)_mm256_and_ps(_mm256_mul_ps(y, _mm256_castsi256_ps(power)), stays);
}

/* LANES elements of a row of dtype, from the one numbered `at`. */
static inline vec load_vec(ra_dtype dtype, const void *row, int64_t at) {
    if (dtype == RA_F32) return (vec)_mm256_loadu_ps((const float *)row + at);
    __m128i half = _mm_loadu_si128((const __m128i *)((const uint16_t *)row + at));
    if (dtype == RA_F16) return (vec)_mm256_cvtph_ps(half);
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
}

#endif
