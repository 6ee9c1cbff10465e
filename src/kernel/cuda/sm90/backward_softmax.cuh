/* Mask and softmax of the backward kernel's consumers, and where what they made is stored.
 *
 * S^T and dP^T are [keys, queries]: a thread has two keys, 8 apart, and in each n8 tile two neighbouring queries. So
 * lse and delta go along an accumulator's columns.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_SOFTMAX_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_SOFTMAX_CUH

#include "kernel/cuda/sm90/backward_pairs.cuh"
#include "kernel/cuda/sm90/backward_tma_layout.cuh"

/* The thread's number, which the compiler cannot know to be the same as before: what is computed from it is computed
 * where it is used, and not kept, for which there are no registers. */
__device__ __forceinline__ int thread_anew(void) {
    int thread = (int)threadIdx.x;
    asm volatile("" : "+r"(thread));
    return thread;
}

/* s becomes p where every pair is visible. lse: times log2 e; by: the scale, likewise. */
template <class S> __device__ __forceinline__ void exponentiate(pair_columns<S> &s, const float *lse, float by, int a) {
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++) {
        float2 l = two_of(lse, n, a);
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = exp2_fast(fmaf(s[n][e], by, e % 2 ? -l.y : -l.x));
    }
}

/* Where some pairs are not visible, or a query saw nothing (its lse is not finite): p = 0 there. */
template <class S>
__device__ __forceinline__ void exponentiate_seen(pair_columns<S> &s, const float *lse, float by,
                                                  const query_plan &plan, const pairs_place &at) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int b = at.b + r * 8, start = plan.a0 + at.a, first = b - plan.hi - start;
        int end = b < plan.keys ? min(b - plan.lo + 1, plan.count) - start : first;
#pragma unroll
        for (int n = 0; n < S::ROWS / 8; n++) {
            float2 l = two_of(lse, n, at.a);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[n][r * 2 + e], base = e ? l.y : l.x;
                bool seen = n * 8 + e >= first && n * 8 + e < end && !isinf(base);
                x = seen ? exp2_fast(fmaf(x, by, -base)) : 0;
            }
        }
    }
}

/* dp becomes ds, without the scale; 0 where p is, whatever dp is. */
template <class S>
__device__ __forceinline__ void differentiate_seen(const pair_columns<S> &p, pair_columns<S> &dp, const float *delta,
                                                   int a) {
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++) {
        float2 d = two_of(delta, n, a);
#pragma unroll
        for (int e = 0; e < 4; e++) dp[n][e] = p[n][e] == 0 ? 0 : p[n][e] * (dp[n][e] - (e % 2 ? d.y : d.x));
    }
}

/* tile [KEYS, ROWS] in panels; this warp's keys are from key0 on. Four 8 x 8 matrices at a time: lane l has the address
 * of row l % 8 of matrix l / 8. */
template <class S>
__device__ __forceinline__ void store_fragments(uint32_t tile, const pair_fragments<S> &x, int key0) {
    int lane = thread_anew() % 32, key = key0 + lane % 16;
#pragma unroll
    for (int k = 0; k < S::ROWS / 16; k++) {
        uint32_t to = tile + panel_chunk_at<S::KEYS>(key, 2 * k + lane / 16);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(x[k][0]),
                     "r"(x[k][1]), "r"(x[k][2]), "r"(x[k][3])
                     : "memory");
    }
}

/* The warpgroup's part of dQ, 64 rows from row0 on and 64 columns from column0 on, into panels of f32. Lanes of odd
 * rows store the tile 16 columns further on first, and meet other banks than those of even rows. */
template <class S>
__device__ __forceinline__ void store_dq(uint32_t tile, const float (&dq)[8][4], int row0, int column0, float scale) {
    int thread = thread_anew(), lane = thread % 32, row = row0 + thread / 32 % 4 * 16 + lane / 4;
    bool odd = row & 1;
    int swizzle = (row & 7) ^ (odd ? 4 : 0);
    uint32_t at = tile + column0 / 32 * S::DQ_PANEL + row * 128 + lane % 2 * 8;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float x = odd ? dq[n ^ 2][r * 2] : dq[n][r * 2], y = odd ? dq[n ^ 2][r * 2 + 1] : dq[n][r * 2 + 1];
            uint32_t to = at + n / 4 * S::DQ_PANEL + r * 8 * 128 + (((n % 4 * 2 + lane % 4 / 2) ^ swizzle) << 4);
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(to), "f"(scale * x), "f"(scale * y) : "memory");
        }
}

#endif
