/* The bodies for double in vectors of 32 bytes. */
#ifndef RA_KERNEL_AVX2_TYPE_H
#define RA_KERNEL_AVX2_TYPE_H

#include "kernel/row_io.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define REAL double
#define NAME(stem) ra_avx2_##stem##_f64
#define LOAD_ROW ra_row_load_f64

enum { LANES = 4, MICRO_ROWS = 6, MICRO_VECTORS = 2 };

typedef double vec __attribute__((vector_size(32), may_alias));

static inline vec splat(double x) {
    return (vec)_mm256_set1_pd(x);
}

static inline vec larger(vec x, vec y) {
    return (vec)_mm256_max_pd((__m256d)x, (__m256d)y);
}

/* e^x to 2 units in the last place for x in [-708, 709]; exactly 0 for x < -708, -inf included; NaN for NaN; not finite
 * for +inf. As for float, with the Taylor polynomial of degree 13: |r|^14 / 14! is under 2^-57. */
static inline vec vec_exp(vec x) {
    static const double c[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                               1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                               1.0 / 120,        1.0 / 24,        1.0 / 6,        0.5};
    __m256d lifted = _mm256_max_pd(_mm256_set1_pd(-708), (__m256d)x); /* NaN stays */
    const __m256d shift = _mm256_set1_pd(0x1.8p52);
    __m256d shifted = _mm256_fmadd_pd(lifted, _mm256_set1_pd(0x1.71547652b82fep+0), shift);
    __m256d n = _mm256_sub_pd(shifted, shift);
    __m256d r = _mm256_fnmadd_pd(n, _mm256_set1_pd(0x1.62e42fefa39efp-1), lifted);
    r = _mm256_fnmadd_pd(n, _mm256_set1_pd(0x1.abc9e3b39803fp-56), r);
    __m256d y = _mm256_set1_pd(c[0]);
    for (int i = 1; i < 12; i++) y = _mm256_fmadd_pd(y, r, _mm256_set1_pd(c[i]));
    y = _mm256_fmadd_pd(y, _mm256_mul_pd(r, r), r);
    y = _mm256_add_pd(y, _mm256_set1_pd(1));
    __m256i power = _mm256_slli_epi64(_mm256_castpd_si256(shifted), 52);
    power = _mm256_add_epi64(power, _mm256_set1_epi64x(1023ll << 52));
    __m256d stays = _mm256_cmp_pd((__m256d)x, _mm256_set1_pd(-708), _CMP_NLT_UQ);
    return (vec)_mm256_and_pd(_mm256_mul_pd(y, _mm256_castsi256_pd(power)), stays);
}

/* LANES elements of a row of dtype, from the one numbered `at`. */
static inline vec load_vec(ra_dtype dtype, const void *row, int64_t at) {
    (void)dtype;
    return (vec)_mm256_loadu_pd((const double *)row + at);
}

#endif
