/* Rows of gradients in device memory: what a thread has of accumulators, read and added to. */
#ifndef RA_KERNEL_CUDA_SM80_BACKWARD_ROWS_CUH
#define RA_KERNEL_CUDA_SM80_BACKWARD_ROWS_CUH

#include "kernel/cuda/async_copy.cuh"

/* x = this thread's elements of rows [first, first + 16 MT) and columns [n0, n0 + 8 NT); 0 beyond limit and width. Past
 * the first-level cache: other multiprocessors write them. */
template <int MT, int NT>
__device__ __forceinline__ void read_rows(float (&x)[MT][NT][4], const row_source &to, int first, int limit, int n0,
                                          int width) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        int i = first + r / 2 * 16 + r % 2 * 8 + lane / 4;
        const float *row = (const float *)to.base;
        if (i < limit) row = (const float *)(to.base + row_offset<float>(to, i));
#pragma unroll
        for (int n = 0; n < NT; n++) {
            int d = n0 + n * 8 + lane % 4 * 2;
            float2 y = make_float2(0, 0);
            if (i < limit && to.aligned && d + 1 < width)
                y = __ldcg((const float2 *)(row + d));
            else if (i < limit) {
                if (d < width) y.x = __ldcg(row + d * to.dim);
                if (d + 1 < width) y.y = __ldcg(row + (d + 1) * to.dim);
            }
            x[r / 2][n][r % 2 * 2] = y.x;
            x[r / 2][n][r % 2 * 2 + 1] = y.y;
        }
    }
}

/* rows = old + by * x, of which tiles from `tile` on. */
template <int MT, int NT, int TILES>
__device__ __forceinline__ void write_rows(const float (&old)[MT][NT][4], const float (&x)[MT][TILES][4], float by,
                                           const row_source &to, int first, int limit, int n0, int width,
                                           int tile = 0) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        int i = first + r / 2 * 16 + r % 2 * 8 + lane / 4;
        if (i >= limit) continue;
        float *row = (float *)(to.base + row_offset<float>(to, i));
#pragma unroll
        for (int n = 0; n < NT; n++) {
            int d = n0 + n * 8 + lane % 4 * 2, e = r % 2 * 2;
            float2 y = make_float2(__fadd_rn(__fmul_rn(by, x[r / 2][tile + n][e]), old[r / 2][n][e]),
                                   __fadd_rn(__fmul_rn(by, x[r / 2][tile + n][e + 1]), old[r / 2][n][e + 1]));
            if (to.aligned && d + 1 < width)
                __stcg((float2 *)(row + d), y);
            else {
                if (d < width) __stcg(row + d * to.dim, y.x);
                if (d + 1 < width) __stcg(row + (d + 1) * to.dim, y.y);
            }
        }
    }
}

#endif
