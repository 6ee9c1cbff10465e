/* An item whose K has infinities or NaNs, or whose dK or dV end with one: pair by pair, leaving out those that take no
 * part (score.cuh), so that nothing reaches what has no part in it. Seldom needed: slow, and out of the way of the main
 * loop. All but P and dS is read from device memory.
 *
 * dQ can only have been spoiled by K: a row of dQ is made of its own query, its own dO, and K. With such a K the main
 * loop is not entered, and dQ is made here too, in its turn.
 */
#ifndef RA_KERNEL_CUDA_SM80_BACKWARD_HALF_NONFINITE_CUH
#define RA_KERNEL_CUDA_SM80_BACKWARD_HALF_NONFINITE_CUH

#include "kernel/cuda/sm80/backward_half_layout.cuh"

/* Queries at a time: their P and dS [SLOW_ROWS, KEYS], of f32, fit where Q, dO and dS are otherwise. */
enum { SLOW_ROWS = 16 };

/* Columns of dK and dV that a thread has, of one key. */
template <class S> constexpr int slow_columns = S::DIM *S::KEYS / S::THREADS;

template <class T> __device__ __forceinline__ float element_of(const row_source &s, int row, int d) {
    return element<T>::widen(*((const T *)(s.base + row_offset<T>(s, row)) + d * s.dim));
}

/* What the slow path reads of an item. */
struct slow_keys {
    row_source k, v;
    float *p, *ds; /* [SLOW_ROWS, KEYS] */
};

/* p and ds of query a and key b of the tile; p says whether the pair takes part. */
template <class T>
__device__ __forceinline__ float2 slow_pair(const gpu_problem &p, const slow_keys &keys, const query_source<float> &s,
                                            int a, int b) {
    const float2 none = make_float2(NO_PART, 0);
    if (a >= s.count || b >= s.keys || b - a < s.lo || b - a > s.hi) return none;
    float lse = counted_lse(s.lse[a * s.each]), score = 0, dp = 0;
    if (lse == -INFINITY) return none;
#pragma unroll 1
    for (int d = 0; d < p.dim; d++) score += element_of<T>(s.q, a, d) * element_of<T>(keys.k, b, d);
    score = score_of({(float)p.scale}, score);
    if (score == -INFINITY) return none;
#pragma unroll 1
    for (int d = 0; d < p.dim_v; d++) dp += element_of<T>(s.dout, a, d) * element_of<T>(keys.v, b, d);
    float x = score_weight_to_one(score, lse);
    return make_float2(x, score_slope(x, dp, s.delta[a * s.each]));
}

/* sum, columns from column0 on, += weight * the query's. */
template <class T, int COLUMNS>
__device__ __forceinline__ void slow_add(float (&sum)[COLUMNS], float weight, const row_source &from, int a,
                                         int column0, int width) {
#pragma unroll
    for (int d = 0; d < COLUMNS; d++)
        if (column0 + d < width) sum[d] += weight * element_of<T>(from, a, column0 + d);
}

/* dQ of SLOW_ROWS rows from a0 on, in the item's turn. b0: the block's first key. */
template <class S>
__device__ __forceinline__ void slow_dq(const gpu_problem &p, const slow_keys &keys, const query_source<float> &s,
                                        int a0, int b0) {
    using T = typename S::T;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < SLOW_ROWS * S::DIM; i += S::THREADS) {
        int row = i / S::DIM, d = i % S::DIM;
        if (a0 + row >= s.count || d >= p.dim) continue;
        float sum = 0;
#pragma unroll 1
        for (int key = 0; key < S::KEYS; key++) {
            int pair = row * S::KEYS + key;
            if (takes_part(keys.p[pair])) sum += keys.ds[pair] * element_of<T>(keys.k, b0 + key, d);
        }
        float *to = (float *)(s.dq.base + row_offset<float>(s.dq, a0 + row)) + d * s.dq.dim;
        __stcg(to, fmaf((float)p.scale, sum, __ldcg(to)));
    }
}

template <class S>
__device__ __forceinline__ void slow_write(const row_source &to, int row, int limit,
                                           const float (&sum)[slow_columns<S>], int column0, int width, float by,
                                           bool overwrite) {
    if (row >= limit) return;
    float *at = (float *)(to.base + row_offset<float>(to, row));
#pragma unroll
    for (int d = 0; d < slow_columns<S>; d++) {
        float *x = at + (column0 + d) * to.dim;
        if (column0 + d < width) __stcg(x, fmaf(by, sum[d], overwrite ? 0 : __ldcg(x)));
    }
}

/* By one block of queries: P and dS, dV and dK, and dQ where it is asked for. */
template <class S>
__device__ __forceinline__ void slow_queries(const gpu_problem &p, const slow_keys &keys, const query_source<float> &s,
                                             int a0, int b0, bool with_dq, float (&dk)[slow_columns<S>],
                                             float (&dv)[slow_columns<S>]) {
    using T = typename S::T;
    int thread = (int)threadIdx.x, key = thread % S::KEYS, column0 = thread / S::KEYS * slow_columns<S>;
    __syncthreads();
#pragma unroll 1
    for (int i = thread / S::KEYS; i < SLOW_ROWS; i += S::THREADS / S::KEYS) {
        float2 x = slow_pair<T>(p, keys, s, a0 + i, b0 + key);
        keys.p[i * S::KEYS + key] = x.x;
        keys.ds[i * S::KEYS + key] = x.y;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < SLOW_ROWS; i++) {
        if (!takes_part(keys.p[i * S::KEYS + key])) continue;
        slow_add<T>(dv, keys.p[i * S::KEYS + key], s.dout, a0 + i, column0, p.dim_v);
        slow_add<T>(dk, keys.ds[i * S::KEYS + key], s.q, a0 + i, column0, p.dim);
    }
    if (with_dq) slow_dq<S>(p, keys, s, a0, b0);
}

template <class S>
__device__ __noinline__ void slow_item(const gpu_backward &args, half_memory<S> memory, bool with_dq) {
    using T = typename S::T;
    static_assert(2 * SLOW_ROWS * S::KEYS * 4 <= S::LSE_AT - S::Q_AT, "P and dS fit");
    static_assert(S::ROWS % SLOW_ROWS == 0, "whole pieces of blocks");
    const item_place item = memory.plan().item;
    float *pairs = (float *)memory.q(0);
    slow_keys keys = {item_rows<T, &ra_kv_rows::k>(args, item), item_rows<T, &ra_kv_rows::v>(args, item), pairs,
                      pairs + SLOW_ROWS * S::KEYS};
    int thread = (int)threadIdx.x, b0 = item.block * S::KEYS;
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
            slow_queries<S>(args.problem, keys, s, a0, b0, with_dq, dk, dv);
        if (!with_dq) continue;
        __syncthreads();
        if (thread == 0) chain_release(chain);
    }
    int limit = item_tile(args, item).k_count, b = b0 + thread % S::KEYS;
    int column0 = thread / S::KEYS * slow_columns<S>;
    slow_write<S>(item_rows<float, &ra_kv_rows::dv>(args, item), b, limit, dv, column0, args.problem.dim_v, 1,
                  args.overwrite);
    slow_write<S>(item_rows<float, &ra_kv_rows::dk>(args, item), b, limit, dk, column0, args.problem.dim,
                  (float)args.problem.scale, args.overwrite);
}

#endif
