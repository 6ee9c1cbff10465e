/* An item whose K has infinities or NaNs, or whose dK or dV end with one: pair by pair, leaving out those that take no
 * part (score.cuh), so that nothing reaches what has no part in it. Seldom needed: slow, and out of the way of the main
 * loop. By the consumers alone; K and V are in shared memory, the rest is read from device memory.
 *
 * dQ can only have been spoiled by K (a row of dQ is made of its own query, its own dO, and K). With an odd K the main
 * loop is not entered, and dQ is made here too, in its turn.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_NONFINITE_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_NONFINITE_CUH

#include "kernel/cuda/sm90/backward_softmax.cuh"

/* Queries at a time: their P and dS [SLOW_ROWS, KEYS], of f32, fit where dS is otherwise. */
enum { SLOW_ROWS = 32 };

/* Columns of dK and dV that a thread has, of one key. */
template <class S> constexpr int slow_columns = S::DIM *S::KEYS / 256;

template <class T> __device__ __forceinline__ float element_of(const row_source &s, int row, int d) {
    return element<T>::widen(*((const T *)(s.base + row_offset<T>(s, row)) + d * s.dim));
}

/* p and ds of query a and key `key` of the block, whose index in the tile is b; p says whether the pair takes part. */
template <class S>
__device__ __forceinline__ float2 slow_pair(const gpu_problem &p, const unsigned char *k, const unsigned char *v,
                                            const query_source<float> &s, int a, int key, int b) {
    using T = typename S::T;
    const float2 none = make_float2(NO_PART, 0);
    if (a >= s.count || b >= s.keys || b - a < s.lo || b - a > s.hi) return none;
    float lse = counted_lse(s.lse[a * s.each]), score = 0, dp = 0;
    if (lse == -INFINITY) return none;
#pragma unroll 1
    for (int d = 0; d < p.dim; d++) score += element_of<T>(s.q, a, d) * panel_element<T, S::KEYS>(k, key, d);
    score = score_of({(float)p.scale}, score);
    if (score == -INFINITY) return none;
#pragma unroll 1
    for (int d = 0; d < p.dim_v; d++) dp += element_of<T>(s.dout, a, d) * panel_element<T, S::KEYS>(v, key, d);
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

/* dQ of the block's rows from a0 on, in the item's turn. */
template <class S>
__device__ __forceinline__ void slow_dq(const gpu_problem &p, const unsigned char *k, const float *pairs,
                                        const float *ds, const query_source<float> &s, int a0, int thread) {
    using T = typename S::T;
#pragma unroll 1
    for (int i = thread; i < SLOW_ROWS * S::DIM; i += 256) {
        int row = i / S::DIM, d = i % S::DIM;
        if (a0 + row >= s.count || d >= p.dim) continue;
        float sum = 0;
#pragma unroll 1
        for (int key = 0; key < S::KEYS; key++) {
            int pair = row * S::KEYS + key;
            if (takes_part(pairs[pair])) sum += ds[pair] * panel_element<T, S::KEYS>(k, key, d);
        }
        float *to = (float *)(s.dq.base + row_offset<float>(s.dq, a0 + row)) + d * s.dq.dim;
        __stcg(to, __ldcg(to) + (float)p.scale * sum);
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

template <class S>
__device__ __noinline__ void slow_item(const gpu_backward &args, backward_memory<S> memory, bool with_dq) {
    using T = typename S::T;
    const gpu_problem &p = args.problem;
    const item_place &item = memory.plan().item;
    const unsigned char *k = memory.generic, *v = k + S::KEY_TILE;
    float *pairs = (float *)(memory.generic + S::DS_AT), *pairs_ds = pairs + SLOW_ROWS * S::KEYS;
    int thread = (int)threadIdx.x - 128, key = thread % S::KEYS, column0 = thread / S::KEYS * slow_columns<S>;
    int b = item.block * S::KEYS + key;
    float dk[slow_columns<S>] = {}, dv[slow_columns<S>] = {};
    query_cursor c = first_queries<S::ROWS, S::KEYS>(args, item, item.first);
#pragma unroll 1
    for (; c.at < item.first + item.count; c = next_queries<S::ROWS, S::KEYS>(args, item, c)) {
        query_source<float> s;
        set_queries<T, float, S::ROWS>(&s, args, item.b, c.at, c.head);
        int *chain = s.chain + c.block;
        if (with_dq && thread == 0) {
            chain_wait(chain, 0, S::RELEASES * turn_of<S::ROWS, S::KEYS>(s, c.block, item.block));
            global_proxies_meet();
        }
#pragma unroll 1
        for (int a0 = c.block * S::ROWS; a0 < (c.block + 1) * S::ROWS; a0 += SLOW_ROWS) {
            named_barrier(PAIRS_BARRIER, 256);
#pragma unroll 1
            for (int i = thread / S::KEYS; i < SLOW_ROWS; i += 256 / S::KEYS) {
                float2 x = slow_pair<S>(p, k, v, s, a0 + i, key, b);
                pairs[i * S::KEYS + key] = x.x;
                pairs_ds[i * S::KEYS + key] = x.y;
            }
            named_barrier(PAIRS_BARRIER, 256);
#pragma unroll 1
            for (int i = 0; i < SLOW_ROWS; i++) {
                if (!takes_part(pairs[i * S::KEYS + key])) continue;
                slow_add<T>(dv, pairs[i * S::KEYS + key], s.dout, a0 + i, column0, p.dim_v);
                slow_add<T>(dk, pairs_ds[i * S::KEYS + key], s.q, a0 + i, column0, p.dim);
            }
            if (with_dq) slow_dq<S>(p, k, pairs, pairs_ds, s, a0, thread);
        }
        if (!with_dq) continue;
        global_proxies_meet();
        __threadfence();
        named_barrier(PAIRS_BARRIER, 256);
        if (thread == 0) chain_release(chain, S::RELEASES);
    }
    int limit = item_tile(args, item).k_count;
    slow_write<S>(item_rows<float, &ra_kv_rows::dv>(args, item), b, limit, dv, column0, p.dim_v, 1, args.overwrite);
    slow_write<S>(item_rows<float, &ra_kv_rows::dk>(args, item), b, limit, dk, column0, p.dim, (float)p.scale,
                  args.overwrite);
}

#endif
