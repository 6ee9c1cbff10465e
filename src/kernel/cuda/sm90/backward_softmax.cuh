/* Mask and softmax of the backward kernel's consumers, and where they store what they make.
 *
 * S^T and dP^T are [keys, queries]: a thread has two keys, 8 apart, and in each n8 tile two neighbouring queries. So
 * lse and delta go along an accumulator's columns.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_SOFTMAX_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_SOFTMAX_CUH

#include "kernel/cuda/sm90/backward_layout.cuh"
#include "kernel/cuda/sm90/backward_score.cuh"
#include "kernel/cuda/sm90/column_bits.cuh"

template <class S> using pair_columns = float[S::ROWS / 8][4];
template <class S> using pair_fragments = uint32_t[S::ROWS / 16][4];

/* Where this thread's elements are: keys b and b + 8, queries a + 8 n and a + 8 n + 1. */
struct pairs_place {
    int a, b; /* a: in the block; b: of the tile */
};

__device__ __forceinline__ float2 two_of(const float *column, int n, int a) {
    return *(const float2 *)(column + n * 8 + a);
}

/* s becomes p where every pair is visible. shift: what each query's lse adds to exponents. */
template <class S>
__device__ __forceinline__ void make_p(pair_columns<S> &s, const float *shift, const gpu_score<float> &score,
                                       const pairs_place &at) {
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++) {
        float2 x = two_of(shift, n, at.a);
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = score_weight_shifted(score, s[n][e], e % 2 ? x.y : x.x);
    }
}

/* dp = - delta: the product of V and dO is added to it. */
template <class S>
__device__ __forceinline__ void begin_dp(pair_columns<S> &dp, const float *minus_delta, const pairs_place &at) {
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++) {
        float2 x = two_of(minus_delta, n, at.a);
#pragma unroll
        for (int e = 0; e < 4; e++) dp[n][e] = e % 2 ? x.y : x.x;
    }
}

/* dp, less delta, becomes ds, without the scale. */
template <class S> __device__ __forceinline__ void make_ds(const pair_columns<S> &p, pair_columns<S> &dp) {
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) dp[n][e] = score_slope(p[n][e], dp[n][e]);
}

/* Queries [first, end) see a key, counted from the thread's first one. */
struct query_range {
    int first, end;
};

/* b: the key, of the tile. */
__device__ __forceinline__ query_range queries_of_key(const query_plan &step, const pairs_place &at, int b) {
    int start = step.a0 + at.a, first = b - step.hi - start;
    return {first, b < step.keys ? min(b - step.lo + 1, step.count) - start : first};
}

/* P of pairs that are not visible becomes NO_PART, whatever it was. */
template <class S>
__device__ __forceinline__ void mask_pairs(pair_columns<S> &p, const query_plan &step, const pairs_place &at) {
    constexpr int COLUMNS = S::ROWS / 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        query_range seen = queries_of_key(step, at, at.b + r * 8);
        int from = columns_below(seen.first), to = columns_below(seen.end);
#pragma unroll
        for (int first = 0; first < COLUMNS; first += 32) {
            uint32_t visible = column_bits(from, to, first);
#pragma unroll
            for (int i = first; i < min(first + 32, COLUMNS); i++)
                if (!(visible >> (i - first) & 1)) p[i / 2][r * 2 + i % 2] = NO_PART;
        }
    }
}

/* s becomes p where a query may have seen nothing (its lse is -inf), or a score be -inf, which counts as unseen, or
 * scores may be large; of pairs that are not visible, NO_PART. */
template <class S>
__device__ __forceinline__ void make_p_of_scores(pair_columns<S> &s, const float *lse, const gpu_score<float> &params,
                                                 const score_fold &fold, const query_plan &step,
                                                 const pairs_place &at) {
    float log2 = fold.log2 + step.log2_times;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        query_range seen = queries_of_key(step, at, at.b + r * 8);
#pragma unroll
        for (int n = 0; n < S::ROWS / 8; n++) {
            float2 l = two_of(lse, n, at.a);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float base = counted_lse(e ? l.y : l.x), score = score_of(params, s[n][r * 2 + e]);
                bool visible = n * 8 + e >= seen.first && n * 8 + e < seen.end;
                bool part = visible && base != -INFINITY && score != -INFINITY;
                s[n][r * 2 + e] = part ? score_weight_folded(log2, score, base) : NO_PART;
            }
        }
    }
}

/* dP of pairs that take no part becomes 0, whatever it was, so that their dS is NO_PART. */
template <class S> __device__ __forceinline__ void leave_pairs_out(const pair_columns<S> &p, pair_columns<S> &dp) {
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (!takes_part(p[n][e])) dp[n][e] = 0;
}

/* x as the A operand of products. */
template <class S> __device__ __forceinline__ void pack_pairs(pair_fragments<S> &to, const pair_columns<S> &x) {
#pragma unroll
    for (int k = 0; k < S::ROWS / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[k][i] = element<typename S::T>::pack(x[2 * k + i / 2][i % 2 * 2], x[2 * k + i / 2][i % 2 * 2 + 1]);
}

/* The thread's number, which the compiler cannot know to be the same as before: what is computed from it is computed
 * where it is used, and not kept, for which there are no registers. */
__device__ __forceinline__ uint32_t thread_anew(void) {
    uint32_t thread = threadIdx.x;
    asm volatile("" : "+r"(thread));
    return thread;
}

/* tile [KEYS, ROWS] in panels; this warp's keys are from key0 on. Four 8 x 8 matrices at a time: lane l has the address
 * of row l % 8 of matrix l / 8. */
template <class S>
__device__ __forceinline__ void store_fragments(uint32_t tile, const pair_fragments<S> &x, int key0) {
    constexpr int PANEL = S::KEYS * PANEL_ROW_BYTES;
    uint32_t lane = thread_anew() % 32, key = key0 + lane % 16;
    uint32_t first = tile + key * PANEL_ROW_BYTES + ((key % 8 ^ lane / 16) << 4);
#pragma unroll
    for (int k = 0; k < S::ROWS / 16; k++) {
        uint32_t to = (first ^ k % 4 * 32) + k / 4 * PANEL;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(x[k][0]),
                     "r"(x[k][1]), "r"(x[k][2]), "r"(x[k][3])
                     : "memory");
    }
}

/* The warpgroup's 64 rows from row0 on and 8 TILES columns from column0 on of dQ, or the first `columns` of them, into
 * panels of f32. Lanes of odd rows store the tile 16 columns further on first, and meet other banks than those of even
 * rows. */
template <class S, int TILES>
__device__ __forceinline__ void store_dq(uint32_t tile, const float (&dq)[TILES][4], int row0, int column0,
                                         int columns = 8 * TILES) {
    uint32_t thread = thread_anew(), lane = thread % 32, row = row0 + thread / 32 % 4 * 16 + lane / 4;
    bool odd = lane & 4;
    uint32_t swizzle = lane / 4 ^ lane & 4 ^ lane % 4 / 2;
    uint32_t first = tile + column0 / 32 * S::DQ_PANEL + row * 128 + (swizzle << 4) + lane % 2 * 8;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if (n / 4 * 32 >= columns) continue;
            float x = odd ? dq[n ^ 2][r * 2] : dq[n][r * 2], y = odd ? dq[n ^ 2][r * 2 + 1] : dq[n][r * 2 + 1];
            uint32_t to = (first ^ n % 4 * 32) + n / 4 * S::DQ_PANEL + r * 8 * 128;
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(to), "f"(x), "f"(y) : "memory");
        }
}

/* The same into rows. */
template <class S>
__device__ __forceinline__ void store_dq_rows(uint32_t tile, const float (&dq)[8][4], int row0, int column0) {
    uint32_t thread = thread_anew(), row = row0 + thread / 32 % 4 * 16 + thread % 32 / 4;
    uint32_t column = column0 + thread % 4 * 2;
    uint32_t at = tile + row * S::DQ_PITCH + column * 4;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(at + r * 8 * S::DQ_PITCH + n * 32),
                         "f"(dq[n][r * 2]), "f"(dq[n][r * 2 + 1])
                         : "memory");
}

#endif
