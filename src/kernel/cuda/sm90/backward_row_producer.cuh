/* Who brings the backward kernel's operands and takes its dQ away where there are no tensor maps: rows are copied one
 * by one, by two warps, and a warp adds dQ with instructions of its own. The planner: backward_producer.cuh. */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_ROW_PRODUCER_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_ROW_PRODUCER_CUH

#include "kernel/cuda/sm90/backward_producer.cuh"
#include "kernel/cuda/sm90/row_panels.cuh"

/* ---- producers ------------------------------------------------------------------------------------------------------
 */

/* This thread's copies have landed, and products may read them. */
__device__ __forceinline__ void announce_copies(uint32_t full) {
    copies_wait();
    shared_writes_to_products();
    mbarrier_arrive(full);
}

template <class S>
__device__ __forceinline__ void copy_key_rows(const gpu_backward &args, const backward_memory<S> &memory, int thread) {
    using T = typename S::T;
    const item_place &item = memory.plan().item;
    int b0 = item.block * S::KEYS, count = item_tile(args, item).k_count;
    row_source k = item_rows<T, &ra_kv_rows::k>(args, item);
    copy_panels<T, S::DIM, S::KEYS, S::PRODUCERS>(memory.k(), k, b0, count, args.problem.dim, thread);
    row_source v = item_rows<T, &ra_kv_rows::v>(args, item);
    copy_panels<T, S::DIM, S::KEYS, S::PRODUCERS>(memory.v(), v, b0, count, args.problem.dim_v, thread);
}

/* By two warps. The step behind the last brings nothing. */
template <class S>
__device__ __forceinline__ void produce_query_rows(const gpu_backward &args, const backward_memory<S> &memory,
                                                   int thread) {
    using T = typename S::T;
    item_plan &plan = memory.plan();
    copy_key_rows<S>(args, memory, thread);
    announce_copies(memory.keys_full());
#pragma unroll 1
    for (int j = 0;; j++) {
        int stage = j % 2;
        const query_plan &step = plan.queries[j % QUERY_PLANS];
        mbarrier_wait(memory.planned(j), j / QUERY_PLANS % 2);
        if (j >= 2) {
            mbarrier_wait(memory.checked(), 0);
            if (plan.odd_keys) return;
            mbarrier_wait(memory.empty(stage), (j / 2 - 1) % 2);
        }
        if (step.block < 0) {
            mbarrier_arrive(memory.full(stage));
            return;
        }
        int left = step.count - step.a0;
        const query_rows &rows = memory.rows_of(j);
        copy_panels<T, S::DIM, S::ROWS, S::PRODUCERS>(memory.q(stage), rows.q, 0, left, args.problem.dim, thread);
        copy_panels<T, S::DIM, S::ROWS, S::PRODUCERS>(memory.dout(stage), rows.dout, 0, left, args.problem.dim_v,
                                                      thread);
        if (thread < 32) {
            sums_read<S::ROWS / 32> sums;
            read_sums<S>(args, step, thread, sums);
            bool odd = write_sums<S>(memory, stage, thread, sums);
            if (thread == 0) plan.masked[stage] = odd || !all_is_seen<S>(step, plan.item.block * S::KEYS);
        }
        announce_copies(memory.full(stage));
    }
}

/* ---- adder ----------------------------------------------------------------------------------------------------------
 */

/* *to += x in device memory, in one instruction each. */
__device__ __forceinline__ void add_four(float *to, float4 x) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z),
                 "f"(x.w)
                 : "memory");
}

__device__ __forceinline__ void add_one(float *to, float x) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;\n" ::"l"(to), "f"(x) : "memory");
}

/* A chunk of dQ; `left` elements of its row begin in it. Where `whole`, they are four and lie side by side on 16 bytes.
 */
__device__ __forceinline__ void add_chunk(float *to, int64_t each, float4 x, int left, bool whole) {
    if (whole) {
        if (left > 0) add_four(to, x);
        return;
    }
    if (left > 0) add_one(to, x.x);
    if (left > 1) add_one(to + each, x.y);
    if (left > 2) add_one(to + 2 * each, x.z);
    if (left > 3) add_one(to + 3 * each, x.w);
}

/* dQ of a stage, in panels of 32 columns with chunks of 4 swizzled as backward_softmax.cuh stores them. A lane has one
 * chunk of a row and of every STEP-th row after it. */
template <class S>
__device__ __forceinline__ void add_dq_rows(const backward_memory<S> &memory, int stage, const row_source &rows,
                                            int count, int dim, int lane) {
    constexpr int CHUNKS = S::DIM / 4, STEP = 32 / CHUNKS;
    int chunk = lane % CHUNKS, left = dim - chunk * 4;
    bool whole = rows.aligned && dim % 4 == 0;
    int64_t each = rows.dim, step = rows.step * STEP;
    const unsigned char *from = memory.generic + S::DQ_AT + stage * S::DQ_TILE + chunk / 8 * S::DQ_PANEL;
    const char *to = rows.base + rows.step * (lane / CHUNKS) + chunk * 4 * each * 4;
#pragma unroll 2
    for (int row = lane / CHUNKS; row < count; row += STEP, to += step)
        add_chunk((float *)to, each, *(const float4 *)(from + row * 128 + ((chunk % 8 ^ row % 8) << 4)), left, whole);
}

/* By a warp: adds dQ of each step when its turn has come (tile_cursor.cuh). */
template <class S>
__device__ __forceinline__ void add_query_rows(const gpu_backward &args, const backward_memory<S> &memory, int lane) {
    const item_plan &plan = memory.plan();
    mbarrier_wait(memory.checked(), 0);
    if (plan.odd_keys) return;
#pragma unroll 1
    for (int j = 0;; j++) {
        int stage = j % 2;
        const query_plan &step = plan.queries[j % QUERY_PLANS];
        mbarrier_wait(memory.planned(j), j / QUERY_PLANS % 2);
        if (step.block < 0) return;
        if (lane == 0) chain_wait(step.chain, chain_read(step.chain), step.turn);
        __syncwarp();
        mbarrier_wait(memory.dq_full(stage), j / 2 % 2);
        add_dq_rows<S>(memory, stage, memory.rows_of(j).dq, min(S::ROWS, step.count - step.a0), args.problem.dim, lane);
        __syncwarp();
        if (lane != 0) continue;
        mbarrier_arrive(memory.dq_empty(stage));
        chain_release(step.chain);
        mbarrier_arrive(memory.done(j));
    }
}

#endif
