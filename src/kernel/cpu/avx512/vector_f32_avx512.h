/* Floats in vectors of 64 bytes, and their exponential. */
#ifndef RA_KERNEL_AVX512_VECTOR_F32_H
#define RA_KERNEL_AVX512_VECTOR_F32_H

#include <immintrin.h>

enum { LANES = 16 };

typedef float vec __attribute__((vector_size(64), may_alias));

static inline vec splat(float x) {
    return (vec)_mm512_set1_ps(x);
}

/* x > y ? x : y, which is y where one is NaN. */
static inline vec larger(vec x, vec y) {
    return (vec)_mm512_max_ps((__m512)x, (__m512)y);
}

/* e^x to 2 units in the last place for x in [-87, 88]; exactly 0 for x < -87, -inf included; NaN for NaN; not finite
 * for +inf; without meaning between 88 and that.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial of degree 6 whose own error is 2^-28; n ln 2 is taken off in
 * two pieces. Adding 1.5 * 2^23 leaves no bit for a fraction, which rounds x / ln 2 to n. -inf is lifted to -87: it
 * would raise FE_INVALID.
 *
 * This one where a bit of `where` is set, and 0 elsewhere. */
static inline vec vec_exp_where(__mmask16 where, vec x) {
    const __m512 shift = _mm512_set1_ps(0x1.8p23f);
    __m512 lifted = _mm512_max_ps(_mm512_set1_ps(-87), (__m512)x); /* NaN stays */
    __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(lifted, _mm512_set1_ps(0x1.715476p+0f), shift), shift);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e43p-1f), lifted);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-0x1.05c61p-29f), r);
    __m512 y = _mm512_fmadd_ps(r, _mm512_set1_ps(0x1.6ac37p-10f), _mm512_set1_ps(0x1.123da6p-7f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0x1.555858p-5f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0x1.55548cp-3f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0x1.fffffcp-2f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1));
    __mmask16 stays = _mm512_mask_cmp_ps_mask(where, (__m512)x, _mm512_set1_ps(-87), _CMP_NLT_UQ);
    return (vec)_mm512_maskz_scalef_ps(stays, y, n);
}

static inline vec vec_exp(vec x) {
    return vec_exp_where(0xffff, x);
}

#endif
