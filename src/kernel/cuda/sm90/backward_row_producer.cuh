/* Who brings the backward kernel's operands and takes its dQ away where there are no tensor maps: rows are copied one
 * by one, by two warps, and a warp adds dQ with instructions of its own. The planner: backward_producer.cuh. */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_ROW_PRODUCER_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_ROW_PRODUCER_CUH

#include "kernel/cuda/sm90/backward_bulk_rows.cuh"
#include "kernel/cuda/sm90/backward_producer.cuh"
#include "kernel/cuda/sm90/row_panels.cuh"

/* ---- producers --------------------------------------------------------------------------------------------------- */

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
__device__ __forceinline__ void produce_query_rows(const folded_backward &args, const backward_memory<S> &memory,
                                                   int thread) {
    using T = typename S::T;
    item_plan &plan = memory.plan();
    copy_key_rows<S>(args, memory, thread);
    announce_copies(memory.keys_full());
    mbarrier_arrive(memory.values_full());
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
            bring_no_more<S>(memory, stage, thread);
            return;
        }
        int left = step.count - step.a0;
        const query_rows &rows = memory.rows_of(j);
        copy_panels<T, S::DIM, S::ROWS, S::PRODUCERS>(memory.q(stage), rows.q, 0, left, args.problem.dim, thread);
        copy_panels<T, S::DIM, S::ROWS, S::PRODUCERS>(memory.dout(stage), rows.dout, 0, left, args.problem.dim_v,
                                                      thread);
        if (thread < 32) {
            sums_read<S::ROWS / 32> sums;
            read_sums<S>(args, plan.item.b, step, thread, sums);
            write_sums<S>(args, memory, step, stage, thread, sums);
        }
        announce_copies(memory.full(stage));
    }
}

/* ---- adder ------------------------------------------------------------------------------------------------------- */

/* Whatever the strides. */
template <class S>
__device__ __forceinline__ void add_elements(const backward_memory<S> &memory, const row_source &to, int count, int dim,
                                             bool first, int lane) {
#pragma unroll 1
    for (int row = 0; row < count; row++) {
        float *out = (float *)(to.base + row_offset<float>(to, row));
        const float *in = (const float *)(memory.generic + S::DQ_AT + row * S::DQ_PITCH);
        for (int d = lane; d < dim; d += 32) __stcg(out + d * to.dim, first ? in[d] : __ldcg(out + d * to.dim) + in[d]);
    }
}

template <class S>
__device__ __forceinline__ void add_dq_rows(const backward_memory<S> &memory, const row_source &to, int count, int dim,
                                            bool first, int lane) {
    if (to.aligned && dim % 4 == 0)
        for (int row = lane; row < count; row += 32) {
            float *out = (float *)(to.base + row_offset<float>(to, row));
            if (first)
                write_row(out, memory.dq(0) + row * S::DQ_PITCH, dim * 4);
            else
                add_row(out, memory.dq(0) + row * S::DQ_PITCH, dim * 4);
        }
    else
        add_elements<S>(memory, to, count, dim, first, lane);
    bulk_commit();
}

/* By a warp: adds dQ of each step when its turn has come (tile_cursor.cuh). The turn is handed over with the next step,
 * whose own count is read while the sums go to memory. If its turn has come by then, the fence in chain_release is the
 * one that chain_wait would make. */
template <class S>
__device__ __forceinline__ void add_query_rows(const gpu_backward &args, const backward_memory<S> &memory, int lane) {
    const item_plan &plan = memory.plan();
    int *before = NULL; /* the counter of the step before */
    mbarrier_wait(memory.checked(), 0);
    if (plan.odd_keys) return;
#pragma unroll 1
    for (int j = 0;; j++) {
        const query_plan &step = plan.queries[j % QUERY_PLANS];
        mbarrier_wait(memory.planned(j), j / QUERY_PLANS % 2);
        int seen = 0, turn = 0;
        if (lane == 0 && step.block >= 0) {
            turn = turn_of_step<S>(step, plan.item.block);
            seen = chain_read(step.chain);
        }
        if (j > 0) {
            bulk_wait_read<0>();
            __syncwarp();
            if (lane == 0) mbarrier_arrive(memory.dq_empty(j - 1));
            bulk_wait<0>();
            global_proxies_meet();
            __syncwarp();
            if (lane == 0) {
                chain_release(before);
                mbarrier_arrive(memory.done(j - 1));
            }
        }
        if (step.block < 0) return;
        if (lane == 0 && (j == 0 || seen < turn)) chain_wait(step.chain, seen, turn);
        before = step.chain;
        mbarrier_wait(memory.dq_full(j), j % 2);
        bool first = __shfl_sync(~0u, is_first<S>(args, turn, step.a0, step.count), 0); /* lane 0 knows the turn */
        global_proxies_meet();
        add_dq_rows<S>(memory, memory.rows_of(j).dq, min(S::ROWS, step.count - step.a0), args.problem.dim, first, lane);
        __syncwarp();
    }
}

#endif
