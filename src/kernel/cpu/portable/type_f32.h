/* The bodies for float in plain vectors of 16 bytes, which every 64-bit CPU has. */
#ifndef RA_KERNEL_PORTABLE_TYPE_H
#define RA_KERNEL_PORTABLE_TYPE_H

#include "kernel/row_io.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define REAL float
#define NAME(stem) ra_portable_##stem##_f32
#define LOAD_ROW ra_row_load_f32

enum { VECTOR_BYTES = 16, LANES = 4, MICRO_ROWS = 4, MICRO_VECTORS = 2 };

typedef float vec __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef int32_t mask_vec __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef uint32_t bits_vec __attribute__((vector_size(VECTOR_BYTES), may_alias));

static inline vec splat(float x) {
    return x - (vec){0};
}

static inline vec larger(vec x, vec y) {
    mask_vec first = x > y;
    return (vec)(((mask_vec)x & first) | ((mask_vec)y & ~first));
}

/* e^x to 2 units in the last place for x in [-87, 88]; exactly 0 for x < -87, -inf included; NaN for NaN; not finite
 * for +inf; without meaning between 88 and that.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial of degree 6 whose own error is 2^-28; 2^n by its exponent
 * bits. Adding 1.5 * 2^23 leaves no bit for a fraction, which rounds x / ln 2 to n, and n stands in the low bits of the
 * sum. n ln 2 is taken off in two pieces, the first short enough for its product to be exact. -inf is lifted to -87: it
 * would raise FE_INVALID. */
static inline vec vec_exp(vec x) {
    const float shift = 0x1.8p23f;
    vec lifted = larger(splat(-87), x); /* NaN stays */
    vec shifted = lifted * 0x1.715476p+0f + shift;
    vec n = shifted - shift;
    vec r = (lifted - n * 0x1.63p-1f) + n * 0x1.bd0106p-13f;
    vec y = r * 0x1.6ac37p-10f + 0x1.123da6p-7f;
    y = y * r + 0x1.555858p-5f;
    y = y * r + 0x1.55548cp-3f;
    y = y * r + 0x1.fffffcp-2f;
    y = y * (r * r) + r + 1;
    bits_vec power = ((bits_vec)shifted << 23) + (127u << 23);
    vec result = y * (vec)power;
    mask_vec vanishes = x < splat(-87);
    return (vec)((mask_vec)result & ~vanishes);
}

/* LANES elements of a row of dtype, from the one numbered `at`. */
static inline vec load_vec(ra_dtype dtype, const void *row, int64_t at) {
    vec x;
    if (dtype == RA_F32)
        memcpy(&x, (const float *)row + at, sizeof x);
    else
        ra_row_load_f32((float *)&x, dtype, (const uint16_t *)row + at, 1, LANES);
    return x;
}

#endif
