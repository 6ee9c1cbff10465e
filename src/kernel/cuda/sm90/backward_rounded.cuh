/* dK and dV that a launch finishes: the outputs, of the inputs' type, of the rank, or where keys stay of each.
 *
 * A warp's rows of the sums are in shared memory, where they would leave from (backward_keys.cuh). Behind its last sum
 * the warp reads them again and writes them to device memory, rounded as store rounds them, 16 bytes a lane. That is a
 * function of its own, and not a part of the main loop's, whose registers are all in use.
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

/* The rows of the item's keys in dk or dv, where those are of the inputs' type, and how many the tile has. */
struct rounded_output {
    row_source rows;
    int limit;
};

template <class T, ra_view ra_kv_rows::*WHICH>
__device__ __forceinline__ rounded_output rounded_rows(const gpu_backward &args, const item_place &item) {
    return {item_rows<T, WHICH>(args, item), item_tile(args, item).k_count};
}

/* x = the floats there, in shared memory. */
__device__ __forceinline__ void read_floats(float (&x)[ROUNDED_TOGETHER], uint32_t from) {
#pragma unroll
    for (int e = 0; e < ROUNDED_TOGETHER; e += 4)
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                     : "=f"(x[e]), "=f"(x[e + 1]), "=f"(x[e + 2]), "=f"(x[e + 3])
                     : "r"(from + e * 4)
                     : "memory");
}

/* WARP_ROWS rows of `to`, from `first` on, = from, rounded: by 16 bytes, or whatever the strides. By a warp. */
template <class S>
__device__ __forceinline__ void round_rows(const rounded_output &to, int first, int width, uint32_t from, int lane) {
    using T = typename S::T;
    constexpr int CHUNKS = S::DIM / ROUNDED_TOGETHER;
#pragma unroll 4
    for (int i = lane; i < WARP_ROWS * CHUNKS; i += 32) {
        int row = i / CHUNKS, d = i % CHUNKS * ROUNDED_TOGETHER;
        if (first + row >= to.limit || d >= width) continue;
        float x[ROUNDED_TOGETHER];
        read_floats(x, from + row * key_row_pitch<S> + d * 4);
        T *at = (T *)(to.rows.base + row_offset<T>(to.rows, first + row)) + d * to.rows.dim;
        if (to.rows.aligned) {
            __stcg((uint4 *)at, make_uint4(element<T>::pack(x[0], x[1]), element<T>::pack(x[2], x[3]),
                                           element<T>::pack(x[4], x[5]), element<T>::pack(x[6], x[7])));
            continue;
        }
#pragma unroll
        for (int e = 0; e < ROUNDED_TOGETHER; e++) at[e * to.rows.dim] = rounded_to<T>(x[e]);
    }
}

/* Both, of the warp whose rows of the block are WARP_ROWS from `row` on. */
template <class S>
__device__ __noinline__ void round_keys(const gpu_backward &args, backward_memory<S> memory, int row, int lane) {
    using T = typename S::T;
    const item_place &item = memory.plan().item;
    int first = item.block * S::KEYS + row;
    __syncwarp();
    round_rows<S>(rounded_rows<T, &ra_kv_rows::dv>(args, item), first, args.problem.dim_v,
                  key_row_at<S>(memory, SUM_OF_DV, row), lane);
    round_rows<S>(rounded_rows<T, &ra_kv_rows::dk>(args, item), first, args.problem.dim,
                  key_row_at<S>(memory, SUM_OF_DK, row), lane);
}

/* One key's columns of dK or dV, from column0 on: what slow_write does where they are sums. */
template <class T, int COLUMNS>
__device__ __forceinline__ void slow_round(const rounded_output &to, int row, const float (&sum)[COLUMNS], int column0,
                                           int width, float by) {
    if (row >= to.limit) return;
    T *at = (T *)(to.rows.base + row_offset<T>(to.rows, row)) + column0 * to.rows.dim;
#pragma unroll
    for (int d = 0; d < COLUMNS; d++)
        if (column0 + d < width) at[d * to.rows.dim] = rounded_to<T>(__fadd_rn(__fmul_rn(by, sum[d]), 0));
}

#endif
