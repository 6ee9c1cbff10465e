/* Products on the FMA units, for f32 and f64: 256 threads as 16 x 16, each with a few rows and columns of the result.
 *
 *   thread (y, x), y = 2 warp + lane / 16, x = lane % 16
 *   rows y + 16 i;  columns x + 16 j, or in chunks of 16 bytes (WIDE elements): WIDE (x + 16 j) on
 *
 * Operands are tiles of shared memory, swizzled as in async_copy.cuh. Chunks are read along a row, which is the summed
 * index of A and of a B that is used transposed; 16 rows a pitch apart, or 16 chunks of one row, meet all banks.
 */
#ifndef RA_KERNEL_CUDA_FMA_PRODUCTS_CUH
#define RA_KERNEL_CUDA_FMA_PRODUCTS_CUH

#include "kernel/cuda/async_copy.cuh"

template <class REAL> struct chunk_of;

template <> struct chunk_of<float> { using type = float4; };

template <> struct chunk_of<double> { using type = double2; };

/* 16 bytes of elements. */
template <class REAL> union chunk {
    static constexpr int WIDE = 16 / (int)sizeof(REAL);
    typename chunk_of<REAL>::type whole;
    REAL e[WIDE];
};

__device__ __forceinline__ int thread_x(void) {
    return (int)threadIdx.x % 16;
}

__device__ __forceinline__ int thread_y(void) {
    return (int)threadIdx.x / 16;
}

template <class REAL, int PITCH> __device__ __forceinline__ chunk<REAL> load_chunk(const REAL *tile, int row, int at) {
    chunk<REAL> c;
    c.whole = *(const typename chunk_of<REAL>::type *)((const char *)tile + chunk_bytes_at<PITCH, REAL>(row, at));
    return c;
}

template <class REAL, int PITCH> __device__ __forceinline__ REAL &element_of(REAL *tile, int row, int column) {
    constexpr int WIDE = 16 / (int)sizeof(REAL);
    return *(REAL *)((char *)tile + chunk_bytes_at<PITCH, REAL>(row, column / WIDE) +
                     column % WIDE * (int)sizeof(REAL));
}

/* acc [rows, columns x + 16 j] += A [16 M, DEPTH] . B [16 N, DEPTH]^T. */
template <int DEPTH, int PITCH, class REAL, int M, int N>
__device__ __forceinline__ void add_rows_by_rows(REAL (&acc)[M][N], const REAL *a, const REAL *b) {
    constexpr int WIDE = chunk<REAL>::WIDE;
#pragma unroll 2
    for (int k = 0; k < DEPTH / WIDE; k++) {
        chunk<REAL> x[M], y[N];
#pragma unroll
        for (int i = 0; i < M; i++) x[i] = load_chunk<REAL, PITCH>(a, thread_y() + 16 * i, k);
#pragma unroll
        for (int j = 0; j < N; j++) y[j] = load_chunk<REAL, PITCH>(b, thread_x() + 16 * j, k);
#pragma unroll
        for (int e = 0; e < WIDE; e++)
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < N; j++) acc[i][j] = fma(x[i].e[e], y[j].e[e], acc[i][j]);
    }
}

/* acc [rows, chunks x + 16 j] += A [16 M, DEPTH] . B [DEPTH, B_PITCH]. SKIP: a 0 in A makes nothing of what it meets in
 * B, be it an infinity or a NaN. */
template <int DEPTH, int A_PITCH, int B_PITCH, bool SKIP, class REAL, int M, int N>
__device__ __forceinline__ void add_rows_by_columns(chunk<REAL> (&acc)[M][N], const REAL *a, const REAL *b) {
    constexpr int WIDE = chunk<REAL>::WIDE;
#pragma unroll(SKIP ? 1 : 2)
    for (int k = 0; k < DEPTH / WIDE; k++) {
        chunk<REAL> x[M];
#pragma unroll
        for (int i = 0; i < M; i++) x[i] = load_chunk<REAL, A_PITCH>(a, thread_y() + 16 * i, k);
#pragma unroll
        for (int e = 0; e < WIDE; e++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                chunk<REAL> y = load_chunk<REAL, B_PITCH>(b, k * WIDE + e, thread_x() + 16 * j);
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int d = 0; d < WIDE; d++)
                        if (!SKIP || x[i].e[e] != 0) acc[i][j].e[d] = fma(x[i].e[e], y.e[d], acc[i][j].e[d]);
            }
    }
}

/* x [rows i, chunks j] = those of a view's rows [first, ...), 0 beyond limit and width. Past the first-level cache:
 * other multiprocessors may have written them. */
template <class REAL, int M, int N>
__device__ __forceinline__ void read_chunks(chunk<REAL> (&x)[M][N], const row_source &from, int first, int limit,
                                            int width) {
    constexpr int WIDE = chunk<REAL>::WIDE;
#pragma unroll
    for (int i = 0; i < M; i++) {
        int row = first + thread_y() + 16 * i;
        const REAL *data = (const REAL *)from.base;
        if (row < limit) data = (const REAL *)(from.base + row_offset<REAL>(from, row));
#pragma unroll
        for (int j = 0; j < N; j++) {
            int d = (thread_x() + 16 * j) * WIDE;
            bool whole = from.aligned && d + WIDE <= width && row < limit;
            if (whole) x[i][j].whole = __ldcg((const typename chunk_of<REAL>::type *)(data + d));
#pragma unroll
            for (int e = 0; e < WIDE; e++)
                if (!whole) x[i][j].e[e] = row < limit && d + e < width ? __ldcg(data + (d + e) * from.dim) : (REAL)0;
        }
    }
}

template <class REAL, int M, int N>
__device__ __forceinline__ void write_chunks(const chunk<REAL> (&x)[M][N], const row_source &to, int first, int limit,
                                             int width) {
    constexpr int WIDE = chunk<REAL>::WIDE;
#pragma unroll
    for (int i = 0; i < M; i++) {
        int row = first + thread_y() + 16 * i;
        if (row >= limit) continue;
        REAL *data = (REAL *)(to.base + row_offset<REAL>(to, row));
#pragma unroll
        for (int j = 0; j < N; j++) {
            int d = (thread_x() + 16 * j) * WIDE;
            bool whole = to.aligned && d + WIDE <= width;
            if (whole) __stcg((typename chunk_of<REAL>::type *)(data + d), x[i][j].whole);
#pragma unroll
            for (int e = 0; e < WIDE; e++)
                if (!whole && d + e < width) __stcg(data + (d + e) * to.dim, x[i][j].e[e]);
        }
    }
}

/* to += by * x. */
template <class REAL, int M, int N>
__device__ __forceinline__ void add_scaled(chunk<REAL> (&to)[M][N], const chunk<REAL> (&x)[M][N], REAL by) {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < chunk<REAL>::WIDE; e++) to[i][j].e[e] = fma(by, x[i][j].e[e], to[i][j].e[e]);
}

/* e^x, 0 for -inf. */
__device__ __forceinline__ float exp_of(float x) {
    return exp2f(x * 1.44269504088896341f);
}

__device__ __forceinline__ double exp_of(double x) {
    return exp(x);
}

#endif
