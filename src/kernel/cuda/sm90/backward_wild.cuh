/* The products of a step whose operands have infinities or NaNs beside pairs that do not see them: what takes no part
 * (mma.cuh) makes nothing of what it meets. Seldom needed: slow, and out of the way of the accumulators. dV and dK are
 * added to device memory, where they belong to this thread in the end, and dQ goes to shared memory as always.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_WILD_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_WILD_CUH

#include "kernel/cuda/sm90/backward_pairs.cuh"

/* rows [first, first + 16) of `to` += by * A . B, or, fresh, = that: A [16 keys, ROWS] is in the warp's fragments, B
 * [ROWS, DIM] in panels. The elements are those that the thread has of an accumulator. */
template <class S>
__device__ __forceinline__ void add_those_seen(const row_source &to, int first, int limit, int width,
                                               const pair_fragments<S> &a, const unsigned char *b, float by,
                                               bool fresh) {
    using T = typename S::T;
    int lane = (int)threadIdx.x % 32;
    uint32_t copy[S::ROWS / 16 * 4];
#pragma unroll
    for (int i = 0; i < S::ROWS / 16 * 4; i++) copy[i] = a[i / 4][i % 4];
#pragma unroll 1
    for (int i = 0; i < S::DIM / 2; i++) {
        int r = i / 2 % 2, row = first + r * 8 + lane / 4, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        float sum = 0;
#pragma unroll 1
        for (int q = 0; q < S::ROWS; q++) {
            union {
                uint32_t pair;
                T element[2];
            } x;
            x.pair = __shfl_sync(~0u, copy[q / 16 * 4 + q / 8 % 2 * 2 + r], lane / 4 * 4 + q % 8 / 2);
            float weight = element<T>::widen(x.element[q % 2]);
            if (takes_part(weight)) sum += weight * panel_element<T, S::ROWS>(b, q, column);
        }
        if (row < limit && column < width) {
            float *at = (float *)(to.base + row_offset<float>(to, row)) + column * to.dim;
            __stcg(at, fmaf(by, sum, fresh ? 0 : __ldcg(at)));
        }
    }
}

/* dq, this warp's rows from row0 on and 64 columns from column0 on, = by * dS K. */
template <class S>
__device__ __forceinline__ void query_gradient_of_those_seen(const backward_room<S> &room, const unsigned char *ds,
                                                             int row0, int column0, float by) {
    using T = typename S::T;
    int lane = (int)threadIdx.x % 32;
#pragma unroll 1
    for (int i = 0; i < 32; i++) {
        int row = row0 + i / 2 % 2 * 8 + lane / 4, column = column0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
        float sum = 0;
#pragma unroll 1
        for (int key = 0; key < S::KEYS; key++) {
            float weight = panel_element<T, S::KEYS>(ds, key, row);
            if (takes_part(weight)) sum += weight * panel_element<T, S::KEYS>(room.k(), key, column);
        }
        *((float *)(room.dq() + row * S::DQ_PITCH) + column) = by * sum;
    }
}

#endif
