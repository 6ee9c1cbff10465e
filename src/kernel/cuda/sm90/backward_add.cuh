/* The adder: one warp that adds dQ of each step to device memory when its turn has come (walk_tiles.cuh).
 *
 * Rows that 16-byte chunks fit are added by the copy engine, which reads no old values into the multiprocessor. It is
 * exact and deterministic: turns fix the order, and a turn ends only when its sums are in memory.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_ADD_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_ADD_CUH

#include "kernel/cuda/sm90/backward_layout.cuh"

/* to [bytes / 4] += from, in shared memory; both at multiples of 16. */
__device__ __forceinline__ void bulk_add(float *to, uint32_t from, int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void bulk_commit(void) {
    asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

/* Until what this thread gave to the copy engine has been read from shared memory. */
__device__ __forceinline__ void bulk_wait_read(void) {
    asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory");
}

/* Until it is in device memory. */
__device__ __forceinline__ void bulk_wait(void) {
    asm volatile("cp.async.bulk.wait_group 0;\n" ::: "memory");
}

/* Orders plain accesses to device memory and those of the copy engine. */
__device__ __forceinline__ void global_proxies_meet(void) {
    asm volatile("fence.proxy.async.global;\n" ::: "memory");
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

/* Whose turn it is at a block of dq, as one lane knows it. */
struct adder_turn {
    int *chain;
    int turn, seen;
};

template <class S>
__device__ __forceinline__ adder_turn read_turn(const query_source<float> &to, int query_block, int key_block) {
    int *chain = to.chain + query_block;
    return {chain, turn_of<S::ROWS, S::KEYS>(to, query_block, key_block), chain_read(chain)};
}

/* The next step's count is read while the sums of this one go to memory. If its turn has come by then, the fence in
 * chain_pass is the one that chain_wait would make. */
template <class S>
__device__ __forceinline__ void add_item(const gpu_backward &args, const backward_room<S> &room, int lane) {
    const item_place &item = room.plan().item;
    query_source<float> &to = room.plan().adder.source;
    query_cursor c = first_queries<S::ROWS, S::KEYS>(args, item, item.first);
    adder_turn now = {NULL, 0, 0};
    bool fresh = true;
#pragma unroll 1
    for (int j = -1;; j++) {
        int end = item.first + item.count;
        if (fresh && lane == 0 && c.at < end)
            set_queries<typename S::T, float, S::ROWS>(&to, args, item.b, c.at, c.head);
        __syncwarp();
        adder_turn next = now;
        if (lane == 0 && c.at < end) next = read_turn<S>(to, c.block, item.block);
        if (j >= 0) {
            bulk_wait_read();
            __syncwarp();
            if (lane == 0) gate_arrive(room.dq_empty());
            bulk_wait();
            global_proxies_meet();
            __syncwarp();
            if (lane == 0) chain_pass(now.chain);
        }
        if (c.at >= end) break;
        if (lane == 0 && (j < 0 || next.seen < next.turn)) chain_wait(next.chain, next.seen, next.turn);
        now = next;
        gate_wait(room.dq_full(), (j + 1) % 2);
        __syncwarp();
        global_proxies_meet();
        int a0 = c.block * S::ROWS;
        add_rows<S>(room, to.dq, a0, min(S::ROWS, to.count - a0), args.problem.dim, lane);
        query_cursor before = c;
        c = next_queries<S::ROWS, S::KEYS>(args, item, before);
        fresh = c.at != before.at || c.head != before.head;
        __syncwarp();
    }
}

#endif
