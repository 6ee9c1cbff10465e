/* The element types, one element at a time: bf16 and f16 to float and back, rounded to nearest even. Inline, so that
 * the row loops of the kernels vectorise.
 *
 *   f32   1 sign, 8 exponent, 23 fraction bits
 *   bf16  1       8            7                the upper half of an f32
 *   f16   1       5           10
 */
#ifndef RA_BASE_DTYPE_H
#define RA_BASE_DTYPE_H

#include <ringattn/ringattn.h>

#include <math.h>
#include <string.h>

static inline uint32_t ra_f32_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float ra_f32_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float ra_bf16_to_f32(uint16_t x) {
    return ra_f32_from_bits((uint32_t)x << 16);
}

/* Adding half of the last kept bit, or just under half where that bit is even, carries into it exactly when rounding
 * up is right; a carry out of the fraction raises the exponent, up to infinity. A NaN keeps its payload's top and is
 * made quiet, lest the truncation turn it into an infinity. */
static inline uint16_t ra_f32_to_bf16(float x) {
    uint32_t bits = ra_f32_bits(x);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* A normal f16 is moved to where f32 has its fields and gets the other bias; a denormal is a count of 2^-24, which is a
 * normal f32, so that nothing here depends on how the processor treats f32 denormals. */
static inline float ra_f16_to_f32(uint16_t x) {
    uint32_t magnitude = (uint32_t)(x & 0x7fffu) << 13;
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    uint32_t normal = magnitude + (112u << 23);
    uint32_t denormal = ra_f32_bits((float)(int32_t)(x & 0x3ffu) * 0x1p-24f);
    uint32_t result = (x & 0x7c00u) == 0 ? denormal : normal;
    return ra_f32_from_bits(sign | ((x & 0x7c00u) == 0x7c00u ? magnitude | 0x7f800000u : result));
}

/* Below 2^-14 the result is a multiple of 2^-24: adding 0.5, whose last bit is 2^-24, lets the addition round. Above,
 * as for bf16. From 65520 on, the half way point past the largest f16, the result is infinite. */
static inline uint16_t ra_f32_to_f16(float x) {
    uint32_t bits = ra_f32_bits(x);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t tiny = ra_f32_bits(ra_f32_from_bits(magnitude) + 0.5f) - ra_f32_bits(0.5f);
    uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    uint32_t result = magnitude < 0x38800000u ? tiny : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;
    result = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : result;
    return (uint16_t)(result | (bits >> 16 & 0x8000u));
}

/* To float, but a result that is not exact gets an odd last bit. Rounding that once more to a type at least two bits
 * shorter is the same as rounding x itself, where rounding twice to nearest is not. */
static inline float ra_f64_to_f32_odd(double x) {
    float y = (float)x;
    if ((double)y == x || x != x) return y;
    uint32_t bits = ra_f32_bits(y);
    if (fabs((double)y) > fabs(x)) bits -= 1;
    return ra_f32_from_bits(bits | 1u);
}

static inline uint16_t ra_f64_to_bf16(double x) {
    return ra_f32_to_bf16(ra_f64_to_f32_odd(x));
}

static inline uint16_t ra_f64_to_f16(double x) {
    return ra_f32_to_f16(ra_f64_to_f32_odd(x));
}

#endif
