/* An item whose K has infinities or NaNs, or whose dK or dV end with one, pair by pair (backward_pairs.cuh), out of the
 * way of the main loop. All but P and dS is read from device memory.
 *
 * dQ can only have been spoiled by K: a row of dQ is made of its own query, its own dO, and K. With such a K the main
 * loop is not entered, and dQ is made here too, in its turn.
 */
#ifndef RA_KERNEL_CUDA_SM80_BACKWARD_HALF_NONFINITE_CUH
#define RA_KERNEL_CUDA_SM80_BACKWARD_HALF_NONFINITE_CUH

#include "kernel/cuda/backward_pairs.cuh"
#include "kernel/cuda/sm80/backward_half_layout.cuh"

/* Queries at a time: their P and dS [SLOW_ROWS, KEYS], of f32, fit where Q, dO and dS are otherwise. */
enum { SLOW_ROWS = 16 };

/* Columns of dK and dV that a thread has, of one key. */
template <class S> constexpr int slow_columns = S::DIM *S::KEYS / S::THREADS;

/* K and V of the block, in device memory. */
template <class T> struct slow_keys {
    row_source k_rows, v_rows;
    int b0; /* the block's first key */
    __device__ __forceinline__ float k(int key, int d) const {
        return element_of<T>(k_rows, b0 + key, d);
    }
    __device__ __forceinline__ float v(int key, int d) const {
        return element_of<T>(v_rows, b0 + key, d);
    }
};

/* By one block of queries: P and dS, dV and dK, and dQ where it is asked for. */
template <class S>
__device__ __forceinline__ void slow_queries(const gpu_problem &p, const slow_keys<typename S::T> &keys, float *pairs,
                                             const query_source<float> &s, int a0, bool with_dq,
                                             float (&dk)[slow_columns<S>], float (&dv)[slow_columns<S>]) {
    using T = typename S::T;
    int thread = (int)threadIdx.x, key = thread % S::KEYS, column0 = thread / S::KEYS * slow_columns<S>;
    float *ds = pairs + SLOW_ROWS * S::KEYS;
    __syncthreads();
#pragma unroll 1
    for (int i = thread / S::KEYS; i < SLOW_ROWS; i += S::THREADS / S::KEYS) {
        float2 x = slow_pair<T>(p, keys, s, a0 + i, key, keys.b0 + key);
        pairs[i * S::KEYS + key] = x.x;
        ds[i * S::KEYS + key] = x.y;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < SLOW_ROWS; i++) {
        if (!takes_part(pairs[i * S::KEYS + key])) continue;
        slow_add<T>(dv, pairs[i * S::KEYS + key], s.dout, a0 + i, column0, p.dim_v);
        slow_add<T>(dk, ds[i * S::KEYS + key], s.q, a0 + i, column0, p.dim);
    }
    if (with_dq) slow_dq<S, SLOW_ROWS, S::THREADS>(p, keys, pairs, ds, s, a0, thread);
}

template <class S>
__device__ __noinline__ void slow_item(const gpu_backward &args, half_memory<S> memory, bool with_dq) {
    using T = typename S::T;
    static_assert(2 * SLOW_ROWS * S::KEYS * 4 <= S::LSE_AT - S::Q_AT, "P and dS fit");
    static_assert(S::ROWS % SLOW_ROWS == 0, "whole pieces of blocks");
    const item_place item = memory.plan().item;
    float *pairs = (float *)memory.q(0);
    int thread = (int)threadIdx.x, b0 = item.block * S::KEYS;
    slow_keys<T> keys = {item_rows<T, &ra_kv_rows::k>(args, item), item_rows<T, &ra_kv_rows::v>(args, item), b0};
    float dk[slow_columns<S>] = {}, dv[slow_columns<S>] = {};
    query_cursor c = first_queries<S::ROWS, S::KEYS>(args, item, item.first);
#pragma unroll 1
    for (; c.at < item.first + item.count; c = next_queries<S::ROWS, S::KEYS>(args, item, c)) {
        query_source<float> s;
        set_queries<T, float, S::ROWS>(&s, args, item.b, c.at, c.head);
        int *chain = s.chain + c.block;
        if (with_dq && thread == 0) chain_wait(chain, 0, turn_of<S::ROWS, S::KEYS>(s, c.block, item.block));
#pragma unroll 1
        for (int a0 = c.block * S::ROWS; a0 < (c.block + 1) * S::ROWS; a0 += SLOW_ROWS)
            slow_queries<S>(args.problem, keys, pairs, s, a0, with_dq, dk, dv);
        if (!with_dq) continue;
        __syncthreads();
        if (thread == 0) chain_release(chain);
    }
    int limit = item_tile(args, item).k_count, b = b0 + thread % S::KEYS;
    int column0 = thread / S::KEYS * slow_columns<S>;
    slow_write(item_rows<float, &ra_kv_rows::dv>(args, item), b, limit, dv, column0, args.problem.dim_v, 1,
               args.overwrite);
    slow_write(item_rows<float, &ra_kv_rows::dk>(args, item), b, limit, dk, column0, args.problem.dim,
               (float)args.problem.scale, args.overwrite);
}

#endif
