/* The loader: two warps that walk an item's queries and bring K, V, then Q, dO, lse and delta of each step. */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_LOAD_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_LOAD_CUH

#include "kernel/cuda/sm90/backward_layout.cuh"

/* to = the chunk's elements of a row, one by one; 0 beyond the width. */
template <class T>
__device__ __forceinline__ void copy_elements(unsigned char *to, const row_source &s, int row, int chunk, int width,
                                              bool there) {
    union {
        T element[8];
        uint4 chunk;
    } x;
    x.chunk = make_uint4(0, 0, 0, 0);
    if (there) {
        const T *from = (const T *)(s.base + row_offset<T>(s, row));
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (chunk * 8 + e < width) x.element[e] = from[(chunk * 8 + e) * s.dim];
    }
    *(uint4 *)to = x.chunk;
}

/* to, panels of ROWS rows = rows [first, first + ROWS) of the source, `width` elements each; zero beyond them and from
 * row `limit` on. A thread has one chunk of a row and of every STEP-th row after it, so that the swizzle of its chunks
 * takes two values at most. */
template <class T, int DIM, int ROWS, int THREADS>
__device__ __forceinline__ void copy_panels(unsigned char *to, const row_source &s, int first, int limit, int width,
                                            int thread) {
    constexpr int CHUNKS = DIM / 8, STEP = THREADS / CHUNKS;
    static_assert(STEP == 4 || STEP == 8, "rows whose swizzles differ in one bit");
    int row = thread / CHUNKS, chunk = thread % CHUNKS;
    if (!s.aligned) {
#pragma unroll 1
        for (int n = 0; n < ROWS; n += STEP)
            copy_elements<T>(to + panel_chunk_at<ROWS>(row + n, chunk), s, first + row + n, chunk, width,
                             first + row + n < limit);
        return;
    }
    int bytes = max(0, min(16, (width - chunk * 8) * 2)), left = bytes ? limit - first - row : 0;
    uint32_t even = shared_address(to) + panel_chunk_at<ROWS>(row, chunk), odd = even ^ STEP % 8 << 4;
    if (s.index) {
#pragma unroll 2
        for (int n = 0; n < ROWS; n += STEP) {
            const char *from = n < left ? s.base + row_offset<T>(s, first + row + n) + chunk * 16 : s.base;
            copy_16((n & 4 ? odd : even) + n * PANEL_ROW_BYTES, from, n < left ? bytes : 0);
        }
        return;
    }
    const char *from = s.base + (left > 0 ? row_offset<T>(s, first + row) + chunk * 16 : 0);
    int64_t step = STEP * s.step;
#pragma unroll 4
    for (int n = 0; n < ROWS; n += STEP) {
        copy_16((n & 4 ? odd : even) + n * PANEL_ROW_BYTES, n < left ? from : s.base, n < left ? bytes : 0);
        from += step;
    }
}

template <class S>
__device__ __forceinline__ void load_keys(const gpu_backward &args, const backward_room<S> &room, int thread) {
    using T = typename S::T;
    const item_place &item = room.plan().item;
    const gpu_tile &t = args.problem.tiles[args.by_key[item.first]];
    const ra_kv_part &part = part_of(args.problem, t.part);
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

/* By one thread: the cursor's place becomes the loader's next step. */
template <class S>
__device__ __forceinline__ void plan_load(const gpu_backward &args, loader_plan &plan, const item_place &item,
                                          bool fresh) {
    bool there = plan.cursor.at < item.first + item.count;
    plan.block = there ? plan.cursor.block : -1;
    if (!there || !fresh) return;
    plan.source ^= 1;
    set_queries<typename S::T, float, S::ROWS>(&plan.sources[plan.source], args, item.b, plan.cursor.at,
                                               plan.cursor.head);
}

template <class S>
__device__ __forceinline__ void plan_next_load(const gpu_backward &args, loader_plan &plan, const item_place &item) {
    query_cursor before = plan.cursor;
    plan.cursor = next_queries<S::ROWS, S::KEYS>(args, item, before);
    plan_load<S>(args, plan, item, plan.cursor.at != before.at || plan.cursor.head != before.head);
}

__device__ __forceinline__ backward_step step_of(const query_source<float> &s, int a0, int rows, int b0, int keys) {
    bool full = b0 + keys <= s.keys && block_is_full(s.lo, s.hi, a0, a0 + rows, b0, b0 + keys);
    return {a0, s.lo, s.hi, s.keys, full};
}

/* The step behind the last has a0 = -1 and nothing else. */
template <class S>
__device__ __forceinline__ void load_item(const gpu_backward &args, const backward_room<S> &room, int thread) {
    backward_plan &plan = room.plan();
    loader_plan &loader = plan.loader;
    if (thread == 0) {
        loader.cursor = first_queries<S::ROWS, S::KEYS>(args, plan.item, plan.item.first);
        loader.source = 0;
        plan_load<S>(args, loader, plan.item, true);
    }
    load_keys<S>(args, room, thread);
#pragma unroll 1
    for (int j = 0;; j++) {
        int stage = j % 2;
        named_barrier(LOADERS_BARRIER, S::LOADERS);
        int block = loader.block;
        const query_source<float> &source = loader.sources[loader.source];
        named_barrier(LOADERS_BARRIER, S::LOADERS);
        if (j >= 2) gate_wait(room.empty(stage), (j / 2 - 1) % 2);
        if (block >= 0) load_queries<S>(args.problem, room, source, block * S::ROWS, stage, thread);
        if (thread == 0) {
            backward_step none = {-1, 0, 0, 0, 0};
            plan.steps[stage] =
                block < 0 ? none : step_of(source, block * S::ROWS, S::ROWS, plan.item.block * S::KEYS, S::KEYS);
        }
        copies_wait();
        shared_writes_to_products();
        gate_arrive(room.full(stage));
        if (block < 0) break;
        if (thread == 0) plan_next_load<S>(args, loader, plan.item); /* while the products are at this step */
    }
}

#endif
