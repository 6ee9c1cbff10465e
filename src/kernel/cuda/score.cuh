/* The score stage: what the product of a query and a key, the dot, becomes, and what the derivative of that is. Every
 * kernel calls these functions for the elements of its fragments, so that whatever else is done to scores is written
 * here and nowhere else.
 *
 *   forward    score = score_of(dot)   m = about the largest score of a row   P = score_weight(score, m)
 *   backward   P = score_weight(score, lse)   dS = score_slope(P, dP, delta): by the score; times the scale, by the dot
 *
 * Kernels take the maximum of a row's dots and make a score of it, which needs scores that rise with the dots: forward
 * kernels are given a scale above 0.
 *
 * A pair takes part when it is visible and its score is not -inf (docs/cuda.md has where that is not looked at). P and
 * dS of one that does not are NO_PART. P of a pair that counts several times (gpu_tile) is as many times as large, in
 * both passes. Where the logarithm of that is added to an exponent, the base has been subtracted before, or is no large
 * one: in a large score it would be lost.
 */
#ifndef RA_KERNEL_CUDA_SCORE_CUH
#define RA_KERNEL_CUDA_SCORE_CUH

#include <math.h>
#include <stdint.h>

static constexpr float LOG2_E = 1.44269504088896341f;

/* What the stage needs to know of a problem. REAL: the type of scores. */
template <class REAL> struct gpu_score { REAL scale; };

/* From this size on a score is rounded before anything is subtracted from it. Below, what is exponentiated is one
 * multiply-add, dot (scale log2 e) - m log2 e, whose factors have been rounded: off by 3 * 2^-24 of the score, 1e-4 at
 * most. At 1e9 that would be hundreds, and e^x of it an infinity, where the largest score of a row must be 0 after the
 * subtraction. */
static constexpr float LARGE_SCORE = 256;

__device__ __forceinline__ bool is_large(float base) {
    return !(fabsf(base) < LARGE_SCORE); /* a NaN is, too */
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* Not contracted with what is subtracted from it. */
__device__ __forceinline__ float score_of(const gpu_score<float> &s, float dot) {
    return __fmul_rn(dot, s.scale);
}

__device__ __forceinline__ double score_of(const gpu_score<double> &s, double dot) {
    return __dmul_rn(dot, s.scale);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* 2^x, 0 for -inf and for what would be subnormal, within 2 units in the last place. */
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

/* e^{score - base}, base being a maximum or an lse. */
__device__ __forceinline__ float score_weight(float score, float base) {
    return exp2_fast((score - base) * LOG2_E);
}

__device__ __forceinline__ double score_weight(double score, double base) {
    return exp(score - base);
}

/* The same of a dot, where the base is not large. */
__device__ __forceinline__ float score_weight_of(const gpu_score<float> &s, float dot, float base) {
    return exp2_fast(fmaf(dot, s.scale * LOG2_E, base * -LOG2_E));
}

/* Both of pairs that count several times: log2_times is the logarithm of how often. */
__device__ __forceinline__ float score_weight(float score, float base, float log2_times) {
    return exp2_fast(fmaf(score - base, LOG2_E, log2_times));
}

__device__ __forceinline__ float score_weight_of(const gpu_score<float> &s, float dot, float base, float log2_times) {
    return exp2_fast(fmaf(dot, s.scale * LOG2_E, fmaf(base, -LOG2_E, log2_times)));
}

/* The same in the backward pass, where it is no more than 1, whatever the last bits of a score are in one pass and in
 * the other; NaN for a score of +inf. */
__device__ __forceinline__ float score_weight_to_one(float score, float lse) {
    float x = score - lse;
    return exp2_fast((x > 0 ? x - x : x) * LOG2_E);
}

/* An lse of +inf, which the forward pass never gives, counts as NaN. */
template <class REAL> __device__ __forceinline__ REAL counted_lse(REAL lse) {
    return lse == (REAL)INFINITY ? (REAL)NAN : lse;
}

/* ---- derivative -------------------------------------------------------------------------------------------------- */

template <class REAL> __device__ __forceinline__ REAL score_slope(REAL p, REAL dp, REAL delta) {
    return p * (dp - delta);
}

/* ---- pairs that take no part ------------------------------------------------------------------------------------- */

/* -0, so that products which leave such pairs out can tell them from a weight that is 0 in its type, and times an
 * infinity or a NaN is NaN. */
static constexpr float NO_PART = -0.0f;

__device__ __forceinline__ bool takes_part(float weight) {
    return __float_as_uint(weight) != 0x80000000u;
}

__device__ __forceinline__ bool takes_part(double weight) {
    return weight != 0 || !signbit(weight);
}

#endif
