/* The adder: one warp that adds dQ of each step to device memory when its turn has come (walk_tiles.cuh).
 *
 * Rows that 16-byte chunks fit are added by the copy engine, which reads no old values into the multiprocessor. It is
 * exact and deterministic: turns fix the order, and a turn ends only when its sums are in memory.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_ADD_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_ADD_CUH

#include "kernel/cuda/sm90/backward_layout.cuh"
#include "kernel/cuda/sm90/bulk_copy.cuh"

/* to [bytes / 4] += from, in shared memory; both at multiples of 16. */
__device__ __forceinline__ void bulk_add(float *to, uint32_t from, int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

/* Until what this thread gave to the copy engine has been read from shared memory. */
__device__ __forceinline__ void bulk_wait_read(void) {
    asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory");
}

/* Until it is in device memory. */
__device__ __forceinline__ void bulk_wait(void) {
    asm volatile("cp.async.bulk.wait_group 0;\n" ::: "memory");
}

/* Whatever the strides. */
template <class S>
__device__ __forceinline__ void add_elements(const backward_room<S> &room, const row_source &to, int a0, int rows,
                                             int dim, int lane) {
#pragma unroll 1
    for (int row = 0; row < rows; row++) {
        float *out = (float *)(to.base + row_offset<float>(to, a0 + row));
        const float *in = (const float *)(room.dq() + row * S::DQ_PITCH);
        for (int d = lane; d < dim; d += 32) __stcg(out + d * to.dim, __ldcg(out + d * to.dim) + in[d]);
    }
}

template <class S>
__device__ __forceinline__ void add_rows(const backward_room<S> &room, const row_source &to, int a0, int rows, int dim,
                                         int lane) {
    if (to.aligned && dim % 4 == 0) {
        uint32_t from = shared_address(room.dq());
        for (int row = lane; row < rows; row += 32)
            bulk_add((float *)(to.base + row_offset<float>(to, a0 + row)), from + row * S::DQ_PITCH, dim * 4);
    } else {
        add_elements<S>(room, to, a0, rows, dim, lane);
    }
    bulk_commit();
}

/* The next step's count is read while the sums of this one go to memory. If its turn has come by then, the fence in
 * chain_pass is the one that chain_wait would make. */
template <class S>
__device__ __forceinline__ void add_item(const gpu_backward &args, const backward_room<S> &room, int lane) {
    int *before = NULL; /* the counter of the step before */
#pragma unroll 1
    for (int j = 0;; j++) {
        const planned_queries &step = room.plan().queries[j % PLANS];
        gate_wait(room.planned(j), j / PLANS % 2);
        int *chain = step.source.chain + step.block, seen = 0;
        if (lane == 0 && step.block >= 0) seen = chain_read(chain);
        if (j > 0) {
            bulk_wait_read();
            __syncwarp();
            if (lane == 0) gate_arrive(room.dq_empty());
            bulk_wait();
            global_proxies_meet();
            __syncwarp();
            if (lane == 0) {
                chain_pass(before);
                gate_arrive(room.done(j - 1));
            }
        }
        if (step.block < 0) break;
        if (lane == 0 && (j == 0 || seen < step.turn)) chain_wait(chain, seen, step.turn);
        before = chain;
        gate_wait(room.dq_full(), j % 2);
        __syncwarp();
        global_proxies_meet();
        int a0 = step.block * S::ROWS;
        add_rows<S>(room, step.source.dq, a0, min(S::ROWS, step.source.count - a0), args.problem.dim, lane);
        __syncwarp();
    }
}

#endif
