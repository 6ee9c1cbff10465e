/* dK and dV that a launch finishes: the outputs, of the inputs' type, of the rank, or where keys stay of each.
 *
 * They leave as sums do (backward_keys.cuh), but packed: a consumer rounds what it has in registers as store rounds it,
 * and a row in shared memory has half of the bytes. Rows whose elements are apart, or not at multiples of 16 bytes, are
 * taken from there element by element. That is a function of its own, and not a part of the main loop's, whose
 * registers are all in use.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_ROUNDED_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_ROUNDED_CUH

#include "kernel/cuda/sm90/backward_keys.cuh"

/* Rows are multiples of so many elements: 16 bytes. */
enum { ROUNDED_TOGETHER = 8 };

template <class T> __device__ __forceinline__ T rounded_to(float x);
template <> __device__ __forceinline__ __nv_bfloat16 rounded_to<__nv_bfloat16>(float x) {
    return __float2bfloat16(x);
}
template <> __device__ __forceinline__ __half rounded_to<__half>(float x) {
    return __float2half(x);
}

/* Bytes from one row to the next in shared memory, from where a warp's f32 rows would begin: an odd number of chunks,
 * so that those of eight rows are in different banks. */
template <class S> constexpr int rounded_row_pitch = S::DIM * 2 + 16;

/* from [WARP_ROWS], in shared memory, = by * x, rounded. Four 8 x 8 matrices at a time: lane l has the address of row
 * l % 16, in the matrices of columns 8 (l / 16) on. */
template <class S, int TILES>
__device__ __forceinline__ void put_rounded_rows(uint32_t from, const float (&x)[TILES][4], float by, int lane) {
    using E = element<typename S::T>;
    static_assert(TILES % 2 == 0, "two tiles of columns at a time");
    uint32_t at = from + lane % WARP_ROWS * rounded_row_pitch<S> + lane / WARP_ROWS * 16;
#pragma unroll
    for (int n = 0; n < TILES; n += 2) {
        uint32_t y[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *two = &x[n + i / 2][i % 2 * 2];
            y[i] = E::pack(__fmul_rn(by, two[0]), __fmul_rn(by, two[1]));
        }
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(at + n * 16), "r"(y[0]),
                     "r"(y[1]), "r"(y[2]), "r"(y[3])
                     : "memory");
    }
}

/* Rows of `to` = from, begun: a lane has a row. What the copy engine cannot take stays there for write_apart. */
template <class S> __device__ __forceinline__ void send_rounded_rows(const key_output &to, uint32_t from, int lane) {
    if (to.rows.aligned && lane < WARP_ROWS && to.first + lane < to.limit)
        write_row((char *)to.rows.base + row_offset<typename S::T>(to.rows, to.first + lane),
                  from + lane * rounded_row_pitch<S>, to.width * 2);
    bulk_commit();
}

/* Rows [first, first + WARP_ROWS) of `to`, as far as they are below limit, = from, in shared memory. By a warp. */
template <class S>
__device__ __forceinline__ void write_elements(const row_source &to, int first, int limit, int width,
                                               const unsigned char *from, int lane) {
    using T = typename S::T;
#pragma unroll 1
    for (int i = lane; i < WARP_ROWS * S::DIM; i += 32) {
        int row = i / S::DIM, d = i % S::DIM;
        if (first + row < limit && d < width)
            ((T *)(to.base + row_offset<T>(to, first + row)))[d * to.dim] =
                ((const T *)(from + row * rounded_row_pitch<S>))[d];
    }
}

/* What send_rounded_rows has left, of the warp whose rows of the block are WARP_ROWS from `row` on. */
template <class S>
__device__ __noinline__ void write_apart(const gpu_backward &args, backward_memory<S> memory, int row, int lane) {
    const key_outputs &to = memory.plan().outputs;
    int first = memory.plan().item.block * S::KEYS + row;
    const unsigned char *dv = memory.generic + (key_row_at<S>(memory, SUM_OF_DV, row) - memory.base);
    const unsigned char *dk = memory.generic + (key_row_at<S>(memory, SUM_OF_DK, row) - memory.base);
    if (!to.dv.aligned) write_elements<S>(to.dv, first, to.count, args.problem.dim_v, dv, lane);
    if (!to.dk.aligned) write_elements<S>(to.dk, first, to.count, args.problem.dim, dk, lane);
}

/* One key's columns of dK or dV, from column0 on: what slow_write does where they are sums. */
template <class T, int COLUMNS>
__device__ __forceinline__ void slow_round(const row_source &to, int row, int limit, const float (&sum)[COLUMNS],
                                           int column0, int width, float by) {
    if (row >= limit) return;
    T *at = (T *)(to.base + row_offset<T>(to, row)) + column0 * to.dim;
#pragma unroll
    for (int d = 0; d < COLUMNS; d++)
        if (column0 + d < width) at[d * to.dim] = rounded_to<T>(__fadd_rn(__fmul_rn(by, sum[d]), 0));
}

#endif
