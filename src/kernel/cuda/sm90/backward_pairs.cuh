/* Mask and softmax of the Hopper backward kernel.
 *
 * S^T and dP^T are [keys, queries]: a thread has two keys, 8 apart, and in each n8 tile two neighbouring queries. So
 * lse and delta go along an accumulator's columns.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_PAIRS_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_PAIRS_CUH

#include "kernel/cuda/sm90/backward_layout.cuh"

template <class S> using pair_columns = float[S::ROWS / 8][4];
template <class S> using pair_fragments = uint32_t[S::ROWS / 16][4];

/* Where this thread's elements are: keys b and b + 8, queries a + 8 n and a + 8 n + 1. */
struct pairs_place {
    int a, b; /* a: in the block; b: of the tile */
};

__device__ __forceinline__ float2 two_of(const float *column, int n, int a) {
    return *(const float2 *)(column + n * 8 + a);
}

/* Whether some of a thread's scores, or dP, are not finite: 0 times such a value is no number, which costs less than a
 * comparison. */
template <class S> __device__ __forceinline__ bool some_are_not_finite(const pair_columns<S> &x) {
    float sum = 0;
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum = fmaf(x[n][e], 0, sum);
    return sum != 0;
}

/* Whether some lse are not finite, or they are large. The sum of their squares is above that of as many of LARGE_SCORE
 * before one of them is six times as large. */
template <class S> __device__ __forceinline__ bool lse_are_odd(const float *lse, const pairs_place &at) {
    constexpr float LARGE = LARGE_SCORE * LARGE_SCORE * (S::ROWS / 4);
    float squares = 0;
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++) {
        float2 l = two_of(lse, n, at.a);
        squares = fmaf(l.x, l.x, fmaf(l.y, l.y, squares));
    }
    return !(squares < LARGE);
}

/* s becomes p where every pair is visible. */
template <class S>
__device__ __forceinline__ void make_p(pair_columns<S> &s, const float *lse, const gpu_score<float> &score,
                                       const pairs_place &at) {
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++) {
        float2 l = two_of(lse, n, at.a);
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = score_weight_of(score, s[n][e], e % 2 ? l.y : l.x);
    }
}

/* dp becomes ds, without the scale. */
template <class S>
__device__ __forceinline__ void make_ds(const pair_columns<S> &p, pair_columns<S> &dp, const float *delta,
                                        const pairs_place &at) {
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++) {
        float2 d = two_of(delta, n, at.a);
#pragma unroll
        for (int e = 0; e < 4; e++) dp[n][e] = score_slope(p[n][e], dp[n][e], e % 2 ? d.y : d.x);
    }
}

/* The same where some pairs are not visible, or where a query saw nothing (its lse is -inf), or a score is -inf, which
 * counts as unseen, or where scores are large. */
template <class S>
__device__ __forceinline__ void make_p_masked(pair_columns<S> &s, const float *lse, const gpu_score<float> &params,
                                              const backward_step &step, const pairs_place &at) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int b = at.b + r * 8, start = step.a0 + at.a;
        int first = b - step.hi - start, end = b < step.keys ? b - step.lo + 1 - start : first;
#pragma unroll
        for (int n = 0; n < S::ROWS / 8; n++) {
            float2 l = two_of(lse, n, at.a);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float base = counted_lse(e ? l.y : l.x), score = score_of(params, s[n][r * 2 + e]);
                bool part = n * 8 + e >= first && n * 8 + e < end && base != -INFINITY && score != -INFINITY;
                s[n][r * 2 + e] = part ? score_weight_to_one(score, base) : NO_PART;
            }
        }
    }
}

template <class S>
__device__ __forceinline__ void make_ds_masked(const pair_columns<S> &p, pair_columns<S> &dp, const float *delta,
                                               const pairs_place &at) {
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++) {
        float2 d = two_of(delta, n, at.a);
#pragma unroll
        for (int e = 0; e < 4; e++)
            dp[n][e] = takes_part(p[n][e]) ? score_slope(p[n][e], dp[n][e], e % 2 ? d.y : d.x) : NO_PART;
    }
}

/* x as the A operand of products. */
template <class S> __device__ __forceinline__ void pack_pairs(pair_fragments<S> &to, const pair_columns<S> &x) {
#pragma unroll
    for (int k = 0; k < S::ROWS / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[k][i] = element<typename S::T>::pack(x[2 * k + i / 2][i % 2 * 2], x[2 * k + i / 2][i % 2 * 2 + 1]);
}

/* tile [KEYS, ROWS] in panels; this warp's keys are from key0 on. */
template <class S>
__device__ __forceinline__ void store_pairs(unsigned char *tile, const pair_fragments<S> &x, int key0) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < S::ROWS / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = key0 + i % 2 * 8 + lane / 4;
            *(uint32_t *)(tile + panel_chunk_at<S::KEYS>(key, 2 * k + i / 2) + lane % 4 * 4) = x[k][i];
        }
}

#endif
