/* The bodies for double in vectors of 64 bytes. */
#ifndef RA_KERNEL_AVX512_TYPE_H
#define RA_KERNEL_AVX512_TYPE_H

#include "kernel/row_io.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define REAL double
#define NAME(stem) ra_avx512_##stem##_f64
#define LOAD_ROW ra_row_load_f64

enum { LANES = 8, MICRO_ROWS = 12, MICRO_VECTORS = 2 };

typedef double vec __attribute__((vector_size(64), may_alias));

static inline vec splat(double x) {
    return (vec)_mm512_set1_pd(x);
}

static inline vec larger(vec x, vec y) {
    return (vec)_mm512_max_pd((__m512d)x, (__m512d)y);
}

/* e^x to 2 units in the last place for x in [-708, 709]; exactly 0 for x < -708, -inf included; NaN for NaN; not finite
 * for +inf. As for float, with the Taylor polynomial of degree 13: |r|^14 / 14! is under 2^-57. */
static inline vec vec_exp(vec x) {
    static const double c[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                               1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                               1.0 / 120,        1.0 / 24,        1.0 / 6,        0.5};
    __m512d lifted = _mm512_max_pd(_mm512_set1_pd(-708), (__m512d)x); /* NaN stays */
    __m512d n = _mm512_roundscale_pd(_mm512_mul_pd(lifted, _mm512_set1_pd(0x1.71547652b82fep+0)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512d r = _mm512_fnmadd_pd(n, _mm512_set1_pd(0x1.62e42fefa39efp-1), lifted);
    r = _mm512_fnmadd_pd(n, _mm512_set1_pd(0x1.abc9e3b39803fp-56), r);
    __m512d y = _mm512_set1_pd(c[0]);
    for (int i = 1; i < 12; i++) y = _mm512_fmadd_pd(y, r, _mm512_set1_pd(c[i]));
    y = _mm512_fmadd_pd(y, _mm512_mul_pd(r, r), r);
    y = _mm512_add_pd(y, _mm512_set1_pd(1));
    __mmask8 stays = _mm512_cmp_pd_mask((__m512d)x, _mm512_set1_pd(-708), _CMP_NLT_UQ);
    return (vec)_mm512_maskz_scalef_pd(stays, y, n);
}

/* LANES elements of a row of dtype, from the one numbered `at`. */
static inline vec load_vec(ra_dtype dtype, const void *row, int64_t at) {
    (void)dtype;
    return (vec)_mm512_loadu_pd((const double *)row + at);
}

#endif
