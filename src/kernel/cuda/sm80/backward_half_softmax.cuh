/* Mask and softmax of the backward kernel for 16-bit elements.
 *
 * S^T and dP^T are [keys, queries]: a thread has keys that are 8 apart, and in each n8 tile two neighbouring queries.
 * So lse and delta go along an accumulator's columns.
 */
#ifndef RA_KERNEL_CUDA_SM80_BACKWARD_HALF_SOFTMAX_CUH
#define RA_KERNEL_CUDA_SM80_BACKWARD_HALF_SOFTMAX_CUH

#include "kernel/cuda/sm80/backward_half_layout.cuh"

template <class S> using pair_columns = float[S::KEY_MT][S::NT][4];

/* P or dS as the A operand of products along the queries. */
template <class S> using pair_operand = uint32_t[S::KEY_MT][S::DEPTH][4];

/* Where this thread's elements are: keys b, b + 8, b + 16, ... of the tile; queries a + 8 n and a + 8 n + 1 of the
 * tile, whose lse and delta are at 8 n and 8 n + 1 of the pointers. */
struct pair_columns_place {
    int a, b;
    const float *lse, *delta;
};

/* s becomes p where every pair is visible. */
template <class S>
__device__ __forceinline__ void make_p(pair_columns<S> &s, const gpu_score<float> &score,
                                       const pair_columns_place &at) {
#pragma unroll
    for (int n = 0; n < S::NT; n++) {
        float2 lse = *(const float2 *)(at.lse + n * 8);
#pragma unroll
        for (int i = 0; i < S::KEY_MT * 4; i++)
            s[i / 4][n][i % 4] = score_weight_of(score, s[i / 4][n][i % 4], i % 2 ? lse.y : lse.x);
    }
}

/* The same where some are not, or where a query saw nothing (its lse is -inf), or a score is -inf, which counts as
 * unseen, or where scores are large, or pairs count several times. */
template <class S>
__device__ __forceinline__ void make_p_masked(pair_columns<S> &s, const gpu_score<float> &params,
                                              const query_source<float> &from, const pair_columns_place &at) {
#pragma unroll
    for (int r = 0; r < 2 * S::KEY_MT; r++) {
        int b = at.b + r * 8, first = b - from.hi - at.a, end = b < from.keys ? b - from.lo + 1 - at.a : first;
#pragma unroll
        for (int n = 0; n < S::NT; n++) {
            float2 lse = *(const float2 *)(at.lse + n * 8);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[r / 2][n][r % 2 * 2 + e], base = counted_lse(e ? lse.y : lse.x);
                float score = score_of(params, x);
                bool part = n * 8 + e >= first && n * 8 + e < end && base != -INFINITY && score != -INFINITY;
                x = part ? score_weight_to_one(score, base) * (float)from.times : NO_PART;
            }
        }
    }
}

/* dp becomes ds, without the scale. MASKED: some pairs may take no part. */
template <class S, bool MASKED>
__device__ __forceinline__ void make_ds(const pair_columns<S> &p, pair_columns<S> &dp, const pair_columns_place &at) {
#pragma unroll
    for (int n = 0; n < S::NT; n++) {
        float2 delta = *(const float2 *)(at.delta + n * 8);
#pragma unroll
        for (int i = 0; i < S::KEY_MT * 4; i++) {
            float x = p[i / 4][n][i % 4], &y = dp[i / 4][n][i % 4];
            y = MASKED && !takes_part(x) ? NO_PART : score_slope(x, y, i % 2 ? delta.y : delta.x);
        }
    }
}

template <class S> __device__ __forceinline__ void pack_pairs(pair_operand<S> &to, const pair_columns<S> &x) {
#pragma unroll
    for (int m = 0; m < S::KEY_MT; m++)
#pragma unroll
        for (int k = 0; k < S::DEPTH; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[m][k][i] =
                    element<typename S::T>::pack(x[m][2 * k + i / 2][i % 2 * 2], x[m][2 * k + i / 2][i % 2 * 2 + 1]);
}

/* dS^T [KEYS, ROWS]: the warp's keys from key0 on, queries from chunk0 * 8 on. */
template <class S>
__device__ __forceinline__ void store_pairs(unsigned char *tile, const pair_operand<S> &x, int key0, int chunk0) {
    int lane = lane_anew(), key = key0 + lane / 4, swizzle = pair_swizzle<S::ROWS>(lane / 4);
    unsigned char *row = tile + key * S::ROWS * 2 + lane % 4 * 4;
#pragma unroll
    for (int m = 0; m < S::KEY_MT; m++)
#pragma unroll
        for (int k = 0; k < S::DEPTH; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                *(uint32_t *)(row + (m * 16 + i % 2 * 8) * S::ROWS * 2 + ((chunk0 + 2 * k + i / 2) ^ swizzle) * 16) =
                    x[m][k][i];
}

/* The same back, of all queries. */
template <class S> __device__ __forceinline__ void load_pairs(pair_operand<S> &x, const unsigned char *tile, int key0) {
    int lane = lane_anew(), key = key0 + (lane & 15), swizzle = pair_swizzle<S::ROWS>(lane & 7);
    uint32_t row = shared_address(tile) + key * S::ROWS * 2;
#pragma unroll
    for (int m = 0; m < S::KEY_MT; m++)
#pragma unroll
        for (int k = 0; k < S::DEPTH; k++)
            load_matrices<false>(x[m][k], row + m * 16 * S::ROWS * 2 + (((2 * k + (lane >> 4)) ^ swizzle) << 4));
}

#endif
