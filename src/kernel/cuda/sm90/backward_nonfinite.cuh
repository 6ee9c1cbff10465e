/* An item whose K has infinities or NaNs, or whose dK or dV end with one, pair by pair (backward_pairs.cuh), out of the
 * way of the main loop. By the consumers alone; K and V are in shared memory, the rest is read from device memory.
 *
 * dQ can only have been spoiled by K (a row of dQ is made of its own query, its own dO, and K). With an odd K the main
 * loop is not entered, and dQ is made here too, in its turn.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_NONFINITE_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_NONFINITE_CUH

#include "kernel/cuda/backward_pairs.cuh"
#include "kernel/cuda/sm90/backward_rounded.cuh"
#include "kernel/cuda/sm90/backward_softmax.cuh"

/* Queries at a time: their P and dS [SLOW_ROWS, KEYS], of f32, fit where dS is otherwise. */
enum { SLOW_ROWS = 32 };

/* Columns of dK and dV that a thread has, of one key. */
template <class S> constexpr int slow_columns = S::DIM *S::KEYS / 256;

/* K and V of the block, in panels of shared memory. */
template <class S> struct panel_keys {
    const unsigned char *base;
    __device__ __forceinline__ float k(int key, int d) const {
        return panel_element<typename S::T, S::KEYS>(base, key, d);
    }
    __device__ __forceinline__ float v(int key, int d) const {
        return panel_element<typename S::T, S::KEYS>(base + S::KEY_TILE, key, d);
    }
};

/* The turn of the item at a block of queries. */
template <class S>
__device__ __forceinline__ int slow_turn(const query_source<float> &s, int query_block, int key_block) {
    int queued = s.turns[query_block], a0 = query_block * S::ROWS;
    if (S::TURNS_TOGETHER == 1) return turn_of<S::ROWS, S::KEYS>(s, query_block, key_block);
    int group = turns_in_groups(queued) ? S::TURNS_TOGETHER : 1;
    return turns_before(queued) + turn_at_queries(key_block, a0, S::ROWS, S::KEYS, s.lo, s.hi, s.count, s.keys, group);
}

template <class S>
__device__ __noinline__ void slow_item(const gpu_backward &args, backward_memory<S> memory, bool with_dq) {
    using T = typename S::T;
    const gpu_problem &p = args.problem;
    const item_place &item = memory.plan().item;
    const panel_keys<S> keys = {memory.generic};
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
        int turn = with_dq ? slow_turn<S>(s, c.block, item.block) : 0;
        bool first = turn == 0 && args.overwrite_queries && (c.block + 1) * S::ROWS <= s.count;
        if (with_dq && thread == 0) {
            chain_wait(chain, 0, S::RELEASES * turn);
            global_proxies_meet();
        }
#pragma unroll 1
        for (int a0 = c.block * S::ROWS; a0 < (c.block + 1) * S::ROWS; a0 += SLOW_ROWS) {
            named_barrier(PAIRS_BARRIER, 256);
#pragma unroll 1
            for (int i = thread / S::KEYS; i < SLOW_ROWS; i += 256 / S::KEYS) {
                float2 x = slow_pair<T>(p, keys, s, a0 + i, key, b);
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
            if (with_dq) slow_dq<S, SLOW_ROWS, 256>(p, keys, pairs, pairs_ds, s, a0, thread, first);
        }
        if (!with_dq) continue;
        global_proxies_meet();
        __threadfence();
        named_barrier(PAIRS_BARRIER, 256);
        if (thread == 0) chain_release(chain, S::RELEASES);
    }
    const key_outputs &to = memory.plan().outputs;
    if (args.finish) {
        slow_round<T>(to.dv, b, to.count, dv, column0, p.dim_v, 1);
        slow_round<T>(to.dk, b, to.count, dk, column0, p.dim, (float)p.scale);
        return;
    }
    slow_write(to.dv, b, to.count, dv, column0, p.dim_v, 1, args.overwrite);
    slow_write(to.dk, b, to.count, dk, column0, p.dim, (float)p.scale, args.overwrite);
}

#endif
