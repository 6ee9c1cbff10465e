/* What the backward kernel's consumers make of scores (backward_pairs.cuh), and where they store it.
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

/* S of a step has come: s becomes P. masked: pairs need to be looked at one by one. */
template <class S>
__device__ __forceinline__ void weigh_pairs(pair_columns<S> &s, const float *lse, const gpu_score<float> &score,
                                            const query_plan &plan, const pairs_place &at, bool masked) {
    backward_step step = {plan.a0, plan.lo, plan.hi, plan.keys, 0};
    if (masked)
        make_p_masked<S>(s, lse, score, step, at);
    else
        make_p<S>(s, lse, score, at);
}

/* dP has come too: dp becomes dS, without the scale. */
template <class S>
__device__ __forceinline__ void differentiate_pairs(const pair_columns<S> &p, pair_columns<S> &dp, const float *delta,
                                                    const pairs_place &at, bool masked) {
    if (masked)
        make_ds_masked<S>(p, dp, delta, at);
    else
        make_ds<S>(p, dp, delta, at);
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
