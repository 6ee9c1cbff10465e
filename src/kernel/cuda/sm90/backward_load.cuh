/* The loader: two warps that bring K, V, then Q, dO, lse and delta of each step. */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_LOAD_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_LOAD_CUH

#include "kernel/cuda/sm90/backward_layout.cuh"

/* to, panels of ROWS rows = rows [first, first + ROWS) of the source, `width` elements each; zero beyond them and from
 * row `limit` on. A thread has one chunk of a row and of every STEP-th row after it, so that the swizzle of its chunks
 * takes two values at most. */
template <class T, int DIM, int ROWS, int THREADS>
__device__ __forceinline__ void copy_panels(unsigned char *to, const row_source &s, int first, int limit, int width,
                                            int thread) {
    constexpr int CHUNKS = DIM / 8, STEP = THREADS / CHUNKS;
    static_assert(STEP == 4 || STEP == 8, "rows whose swizzles differ in one bit");
    int row = thread / CHUNKS, chunk = thread % CHUNKS;
    /* Registers are few. What is beyond the rows is copied as zeros, from wherever. */
    int bytes = bytes_in_chunk<T>(width, chunk), left = bytes ? limit - first - row : 0;
    if (!s.aligned || bytes % 16) {
#pragma unroll 1
        for (int n = 0; n < ROWS; n += STEP)
            copy_part_of_chunk<T>(to + panel_chunk_at<ROWS>(row + n, chunk), s, first + row + n, chunk, bytes,
                                  n < left);
        return;
    }
    uint32_t even = shared_address(to) + panel_chunk_at<ROWS>(row, chunk), odd = even ^ STEP % 8 << 4;
    if (s.index) {
#pragma unroll 1
        for (int n = 0; n < ROWS; n += STEP) {
            const char *from = n < left ? s.base + row_offset<T>(s, first + row + n) + chunk * 16 : s.base;
            copy_16_or_zeros((n & 4 ? odd : even) + n * PANEL_ROW_BYTES, from, n < left);
        }
        return;
    }
    const char *from = s.base + s.step * (first + row) + chunk * 16;
    int64_t step = STEP * s.step;
#pragma unroll 1
    for (int n = 0; n < ROWS; n += 2 * STEP) {
        copy_16_or_zeros(even + n * PANEL_ROW_BYTES, from, n < left);
        from += step;
        copy_16_or_zeros(odd + (n + STEP) * PANEL_ROW_BYTES, from, n + STEP < left);
        from += step;
    }
}

template <class S>
__device__ __forceinline__ void load_keys(const gpu_backward &args, const backward_room<S> &room, int thread) {
    using T = typename S::T;
    const item_place &item = room.plan().item;
    const gpu_tile &t = args.problem.tiles[args.by_key[item.first]];
    const ra_kv_rows &part = part_of(args.problem, t.part);
    int64_t g = (item.g - part.heads.first) / part.heads.stride;
    int b0 = item.block * S::KEYS;
    row_source k = source_of<T>(part.k, item.b, g, t.k_first, t.k_stride, t.k_index);
    copy_panels<T, S::DIM, S::KEYS, S::LOADERS>(room.k(), k, b0, t.k_count, args.problem.dim, thread);
    row_source v = source_of<T>(part.v, item.b, g, t.k_first, t.k_stride, t.k_index);
    copy_panels<T, S::DIM, S::KEYS, S::LOADERS>(room.v(), v, b0, t.k_count, args.problem.dim_v, thread);
}

/* Rows beyond the last look as if they had seen nothing. */
template <class S>
__device__ __forceinline__ void load_queries(const gpu_problem &p, const backward_room<S> &room,
                                             const query_source<float> &s, int a0, int stage, int thread) {
    using T = typename S::T;
    copy_panels<T, S::DIM, S::ROWS, S::LOADERS>(room.q(stage), s.q, a0, s.count, p.dim, thread);
    copy_panels<T, S::DIM, S::ROWS, S::LOADERS>(room.dout(stage), s.dout, a0, s.count, p.dim_v, thread);
#pragma unroll
    for (int row = thread; row < S::ROWS; row += S::LOADERS) {
        int64_t at = (a0 + row) * s.each;
        if (a0 + row < s.count) {
            copy_4(shared_address(room.lse(stage) + row), s.lse + at);
            copy_4(shared_address(room.delta(stage) + row), s.delta + at);
        } else {
            room.lse(stage)[row] = -INFINITY;
            room.delta(stage)[row] = 0;
        }
    }
}

/* The step behind the last has a0 = -1 and nothing else. */
template <class S>
__device__ __forceinline__ void load_item(const gpu_backward &args, const backward_room<S> &room, int thread) {
    backward_plan &plan = room.plan();
    load_keys<S>(args, room, thread);
#pragma unroll 1
    for (int j = 0;; j++) {
        int stage = j % 2;
        const planned_queries &planned = plan.queries[j % PLANS];
        gate_wait(room.planned(j), j / PLANS % 2);
        if (j >= 2) gate_wait(room.empty(stage), (j / 2 - 1) % 2);
        if (planned.block >= 0)
            load_queries<S>(args.problem, room, planned.source, planned.block * S::ROWS, stage, thread);
        if (thread == 0) plan.steps[stage] = planned.step;
        copies_wait();
        shared_writes_to_products();
        gate_arrive(room.full(stage));
        if (planned.block < 0) break;
    }
}

#endif
