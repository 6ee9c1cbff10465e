/* dQ of a step of the backward kernel for 16-bit elements: dQ^T = K^T dS^T, added to device memory in the item's turn.
 *
 * Reductions are of whole lines of memory. Where they take one element, four lanes exchange what they have; where they
 * take four (compute capability 9.0 and up) and nothing but dQ reads K in shared memory, its columns lie there such
 * that a lane's are neighbours.
 */
#ifndef RA_KERNEL_CUDA_SM80_BACKWARD_HALF_QUERIES_CUH
#define RA_KERNEL_CUDA_SM80_BACKWARD_HALF_QUERIES_CUH

#include "kernel/cuda/sm80/backward_half_layout.cuh"

/* How far ahead of their products fragments are read. */
enum { AHEAD = 4 };

/* Whether K's columns are interleaved in shared memory, so that lanes have neighbours of dQ^T: where nothing else reads
 * K there, and reductions of several neighbours are to be had. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
template <class S> static constexpr bool interleaved = S::ROLES == 2 || S::HOLDS_KEYS;
#else
template <class S> static constexpr bool interleaved = false;
#endif

/* dQ^T, [columns, rows], in blocks of 16 columns and 8 rows: lane l has columns l / 4 and l / 4 + 8, and
 * rows 2 (l % 4) and the one after. */
template <class S> using query_sums = float[S::Q_MT][S::Q_NT][4];

/* Which of a step's dQ are a warp's: rows from `row` on, 32 columns from `wide` on, and where it has 48 columns, 16
 * from `narrow` on. */
struct query_sums_place {
    int row, wide, narrow;
};

template <class S> __device__ __forceinline__ query_sums_place query_sums_of_warp(void) {
    static_assert(S::Q_MT == 2 || (S::Q_MT == 3 && S::DIM == 96), "32 columns, or 48");
    int warp = (int)threadIdx.x / 32, group = warp / S::Q_WARPS;
    return {warp % S::Q_WARPS * S::Q_NT * 8, group * (S::Q_MT == 2 ? 32 : 64), 32 + group * 16};
}

/* K^T, as the A operand. */
template <class S> struct fragment_key_columns {
    fragment_a<S::PITCH, false> wide, narrow;
    __device__ __forceinline__ fragment_key_columns(uint32_t tile, const query_sums_place &at)
        : wide(tile, at.wide, lane_anew()), narrow(tile, at.narrow, lane_anew()) {
    }
    __device__ __forceinline__ void load(uint32_t (&x)[4], int m, int k) const {
        if (m < 2)
            wide.load(x, m, k);
        else
            narrow.load(x, 0, k);
    }
};

/* Of 32 columns of a key, number 4 i + c stands at i of chunk c; of 16 that are a warp's narrow ones 2 i + c does. A
 * lane has four neighbours of dQ^T then, or two. */
template <class S> __device__ __forceinline__ void interleave_columns(unsigned char *keys) {
    constexpr int GROUPS = S::PITCH / 32;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < S::KEYS * GROUPS; i += S::THREADS) {
        bool narrow = S::Q_MT == 3 && i % GROUPS == 1;
        uint4 *at[4], old[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            at[c] = (uint4 *)(keys + chunk_bytes_at<S::PITCH, typename S::T>(i / GROUPS, i % GROUPS * 4 + c));
            old[c] = *at[c];
        }
#pragma unroll
        for (int c = 0; c < 4; c++) {
            uint32_t x[4], which = c % 2 ? 0x7632 : 0x5410; /* the upper elements of two words, or the lower ones */
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const uint4 &four = old[n], &two = old[c / 2 * 2 + n / 2];
                if (narrow)
                    x[n] = n % 2 ? __byte_perm(two.z, two.w, which) : __byte_perm(two.x, two.y, which);
                else
                    x[n] = c / 2 ? __byte_perm(four.y, four.w, which) : __byte_perm(four.x, four.z, which);
            }
            *at[c] = make_uint4(x[0], x[1], x[2], x[3]);
        }
    }
}

/* x[c] of lane i of four and x[i] of lane c change places. */
__device__ __forceinline__ void transpose_in_quad(float (&x)[4]) {
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
        bool upper = threadIdx.x & bit;
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int i = bit == 1 ? 2 * n : n;
            float other = __shfl_xor_sync(~0u, upper ? x[i] : x[i + bit], bit);
            x[i] = upper ? other : x[i];
            x[i + bit] = upper ? x[i + bit] : other;
        }
    }
}

/* In the item's turn: nobody else adds to it meanwhile, so the order of sums is always the same. */
__device__ __forceinline__ void add_to_memory(char *to, float x) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;\n" ::"l"(to), "f"(x) : "memory");
}

__device__ __forceinline__ void add_two_to_memory(char *to, float x, float y) {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};\n" ::"l"(to), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ void add_four_to_memory(char *to, const float (&x)[4]) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(to), "f"(x[0]), "f"(x[1]),
                 "f"(x[2]), "f"(x[3])
                 : "memory");
}

/* The column of element i of query_sums, where not all of a block's rows and columns are there. */
template <class S> __device__ __forceinline__ int column_of(const query_sums_place &at, int i) {
    int of8 = (int)threadIdx.x % 32 / 4, m = i / (S::Q_NT * 4), half = i % 4 / 2;
    if (m == 2) return at.narrow + (interleaved<S> ? of8 * 2 + half : half * 8 + of8);
    return at.wide + (interleaved<S> ? of8 * 4 + m * 2 + half : m * 16 + half * 8 + of8);
}

/* A block that is not whole; first: its row of dq's first. Not inline, and on a copy in local memory: seldom needed. */
template <class S>
__device__ __noinline__ void add_odd_rows(const float *dq, const row_source *to, int first, int limit, int width) {
    query_sums_place at = query_sums_of_warp<S>();
#pragma unroll 1
    for (int i = 0; i < S::Q_MT * S::Q_NT * 4; i++) {
        int row = first + (int)threadIdx.x % 4 * 2 + i / 4 % S::Q_NT * 8 + i % 2, d = column_of<S>(at, i);
        if (row < limit && d < width)
            add_to_memory((char *)to->base + row_offset<float>(*to, row) + d * to->dim * 4, dq[i]);
    }
}

/* Rows from `at` on. Reductions are of whole lines of memory, or halves: a lane has four neighbours, or two, of four
 * rows of 8 at a time. */
template <class S>
__device__ __forceinline__ void add_interleaved_rows(const query_sums<S> &dq, char *at, int64_t step, float scale) {
    query_sums_place place = query_sums_of_warp<S>();
    int lane = (int)threadIdx.x % 32;
    at += lane % 4 * 2 * step;
    char *wide = at + (place.wide + lane / 4 * 4) * 4, *narrow = at + (place.narrow + lane / 4 * 2) * 4;
#pragma unroll
    for (int i = 0; i < S::Q_NT * 2; i++) {
        int n = i / 2, e = i % 2;
        float x[4];
#pragma unroll
        for (int c = 0; c < 4; c++) x[c] = scale * dq[c / 2][n][c % 2 * 2 + e];
        add_four_to_memory(wide + (n * 8 + e) * step, x);
        if constexpr (S::Q_MT == 3)
            add_two_to_memory(narrow + (n * 8 + e) * step, scale * dq[2][n][e], scale * dq[2][n][2 + e]);
    }
}

/* The same by reductions of one element: 32 lanes have 32 neighbours of a row, or 16 of two. */
template <class S>
__device__ __forceinline__ void add_whole_rows(const query_sums<S> &dq, char *at, int64_t step, float scale) {
    query_sums_place place = query_sums_of_warp<S>();
    int lane = (int)threadIdx.x % 32, quad = lane % 4;
    char *wide = at + (place.wide + quad * 8 + lane / 4) * 4;
    char *narrow = at + quad % 2 * step + (place.narrow + quad / 2 * 8 + lane / 4) * 4;
#pragma unroll
    for (int n = 0; n < S::Q_NT; n++) {
        float x[2][4];
#pragma unroll
        for (int e = 0; e < 2; e++) {
#pragma unroll
            for (int c = 0; c < 4; c++) x[e][c] = scale * dq[c / 2][n][c % 2 * 2 + e];
            transpose_in_quad(x[e]);
        }
#pragma unroll
        for (int i = 0; i < 8; i++, wide += step) add_to_memory(wide, x[i % 2][i / 2]);
        if constexpr (S::Q_MT == 3) {
            float y[4];
#pragma unroll
            for (int i = 0; i < 4; i++) y[i] = scale * dq[2][n][i];
            transpose_in_quad(y);
#pragma unroll
            for (int i = 0; i < 4; i++, narrow += 2 * step) add_to_memory(narrow, y[i]);
        }
    }
}

/* dQ of step j. */
template <class S>
__device__ __forceinline__ void add_query_gradient(const gpu_problem &p, const half_memory<S> &memory, int j) {
    const planned_queries &step = memory.plan().steps[j % PLANNED];
    const query_source<float> &to = memory.plan().sources[step.source];
    query_sums_place at = query_sums_of_warp<S>();
    query_sums<S> dq = {};
    add_product<typename S::T, S::KEYS / 16, AHEAD>(dq, fragment_key_columns<S>(shared_address(memory.k()), at),
                                                    fragment_ds<S::ROWS>(shared_address(memory.ds()), at.row));
    float scale = (float)p.scale;
    int first = step.block * S::ROWS + at.row;
    if (step.whole) {
        char *rows = (char *)to.dq.base + to.dq.step * first;
        if constexpr (interleaved<S>)
            add_interleaved_rows<S>(dq, rows, to.dq.step, scale);
        else
            add_whole_rows<S>(dq, rows, to.dq.step, scale);
        return;
    }
    float copy[S::Q_MT * S::Q_NT * 4];
#pragma unroll
    for (int i = 0; i < S::Q_MT * S::Q_NT * 4; i++) copy[i] = scale * dq[i / (S::Q_NT * 4)][i / 4 % S::Q_NT][i % 4];
    add_odd_rows<S>(copy, &to.dq, first, to.count, p.dim);
}

#endif
