/* What backward kernels do pair by pair for an item whose K has infinities or NaNs, or whose dK or dV end with one:
 * pairs that take no part (score.cuh) are left out, so that nothing reaches what has no part in it. Slow, and seldom
 * needed.
 *
 * KEYS says where the block's keys and values are read from: k(key, d) and v(key, d), elements of f32.
 */
#ifndef RA_KERNEL_CUDA_BACKWARD_PAIRS_CUH
#define RA_KERNEL_CUDA_BACKWARD_PAIRS_CUH

#include "kernel/cuda/score.cuh"
#include "kernel/cuda/sm80/mma.cuh"
#include "kernel/cuda/tile_cursor.cuh"

template <class T> __device__ __forceinline__ float element_of(const row_source &s, int row, int d) {
    return element<T>::widen(*((const T *)(s.base + row_offset<T>(s, row)) + d * s.dim));
}

/* p and ds of query a and key `key` of the block, whose index in the tile is b; p says whether the pair takes part. */
template <class T, class KEYS>
__device__ __forceinline__ float2 slow_pair(const gpu_problem &p, const KEYS &keys, const query_source<float> &s, int a,
                                            int key, int b) {
    const float2 none = make_float2(NO_PART, 0);
    if (a >= s.count || b >= s.keys || b - a < s.lo || b - a > s.hi) return none;
    float lse = counted_lse(s.lse[a * s.each]), score = 0, dp = 0;
    if (lse == -INFINITY) return none;
#pragma unroll 1
    for (int d = 0; d < p.dim; d++) score += element_of<T>(s.q, a, d) * keys.k(key, d);
    score = score_of({(float)p.scale}, score);
    if (score == -INFINITY) return none;
#pragma unroll 1
    for (int d = 0; d < p.dim_v; d++) dp += element_of<T>(s.dout, a, d) * keys.v(key, d);
    float x = score_weight_to_one(score, lse) * (float)s.times;
    return make_float2(x, score_slope(x, dp, s.delta[a * s.each]));
}

/* sum, columns from column0 on, += weight * the query's. */
template <class T, int COLUMNS>
__device__ __forceinline__ void slow_add(float (&sum)[COLUMNS], float weight, const row_source &from, int a,
                                         int column0, int width) {
#pragma unroll
    for (int d = 0; d < COLUMNS; d++)
        if (column0 + d < width) sum[d] += weight * element_of<T>(from, a, column0 + d);
}

/* dQ of ROWS rows from a0 on, in the item's turn, by THREADS threads. pairs, ds: [ROWS, S::KEYS]. first: nothing has
 * been added to them, and they hold nothing yet. */
template <class S, int ROWS, int THREADS, class KEYS>
__device__ __forceinline__ void slow_dq(const gpu_problem &p, const KEYS &keys, const float *pairs, const float *ds,
                                        const query_source<float> &s, int a0, int thread, bool first = false) {
#pragma unroll 1
    for (int i = thread; i < ROWS * S::DIM; i += THREADS) {
        int row = i / S::DIM, d = i % S::DIM;
        if (a0 + row >= s.count || d >= p.dim) continue;
        float sum = 0;
#pragma unroll 1
        for (int key = 0; key < S::KEYS; key++) {
            int pair = row * S::KEYS + key;
            if (takes_part(pairs[pair])) sum += ds[pair] * keys.k(key, d);
        }
        float *to = (float *)(s.dq.base + row_offset<float>(s.dq, a0 + row)) + d * s.dq.dim;
        __stcg(to, fmaf((float)p.scale, sum, first ? 0 : __ldcg(to)));
    }
}

/* One key's columns of dK or dV, from column0 on. */
template <int COLUMNS>
__device__ __forceinline__ void slow_write(const row_source &to, int row, int limit, const float (&sum)[COLUMNS],
                                           int column0, int width, float by, bool overwrite) {
    if (row >= limit) return;
    float *at = (float *)(to.base + row_offset<float>(to, row));
#pragma unroll
    for (int d = 0; d < COLUMNS; d++) {
        float *x = at + (column0 + d) * to.dim;
        if (column0 + d < width) __stcg(x, __fadd_rn(__fmul_rn(by, sum[d]), overwrite ? 0 : __ldcg(x)));
    }
}

#endif
