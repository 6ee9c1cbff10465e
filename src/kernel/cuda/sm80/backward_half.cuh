/* Backward for 16-bit elements on mma.sync: a block of keys stays, with its dK and dV in registers, while the blocks of
 * queries that see it go by, the last one first.
 *
 *   S^T = K Q^T   P^T = e^{S^T - lse}   dP^T = V dO^T   dS^T = P^T (dP^T - delta)
 *   dV += P^T dO   dK += dS^T Q   dQ += dS K
 *
 * A warp has 16 or 32 keys. P^T and dS^T are its products' accumulators and, packed, their operands; its rows of V are
 * in registers too. Where both dK and dV do not fit, two warps have the same keys: the first, which holds rows of K,
 * makes P and sums dV; the second, which holds rows of V, gets P through shared memory, makes dS and sums dK.
 *
 * Only dQ, whose sum is over all keys, needs dS from all warps, through shared memory. No barrier of a step stops all
 * warps at one place. A warp arrives at one when it is done with something, and waits for the others behind a product
 * that it can do without them (split_barrier.cuh):
 *
 *   barrier        a warp has arrived when, in step j                          others wait for it before
 *   pairs_done     dS is stored, dO is read, and the turn of dQ has come       dQ of j, the copy of dO of j + 1
 *   queries_done   Q is read, and its copies of Q of j + 1 have come           S of j + 1, the copy of Q of j + 2
 *   sums_done      dS is read, dQ added, and its copies of dO of j + 1 have    dP of j + 1, storing dS of j + 1
 *                  come
 *
 *   all threads    │ S │ dP, P, dS, dV │ dK │ copy of dO of j + 1 begins │ dQ │ that of Q of j + 2 begins │ j + 1 ...
 *   waited for         ▲ sums_done, j - 1   ▲ pairs_done                      ▲ queries_done
 *   some threads   │ plans j + 2 │ hands over dQ of j - 1 │ waits for the turn of dQ of j │
 *
 * dQ is summed in device memory by one key block after the other (tile_cursor.cuh says how they take turns), so the
 * bits are the same every time. The sums are made where the memory is, without being read: nobody waits for them. Key
 * blocks are taken in rising order and all go through the queries the same way, so one follows the other a few steps
 * behind and seldom waits.
 *
 * Infinities and NaNs: backward_half_nonfinite.cuh. Where V has some, every pair is looked at, so that a score of -inf
 * does not meet them.
 */
#ifndef RA_KERNEL_CUDA_SM80_BACKWARD_HALF_CUH
#define RA_KERNEL_CUDA_SM80_BACKWARD_HALF_CUH

#include "kernel/cuda/sm80/backward_half_nonfinite.cuh"
#include "kernel/cuda/sm80/backward_half_plan.cuh"
#include "kernel/cuda/sm80/backward_half_softmax.cuh"
#include "kernel/cuda/sm80/backward_rows.cuh"

/* How far ahead of their products fragments are read. */
enum { AHEAD = 4 };

/* Threads of different warps, on different schedulers. The rows of lse are the last warps' affair. */
enum { RELEASER = 0, WAITER = 32, PLANNER = 64 };

/* What a thread has of its warp's keys: rows of V, or of K, as an operand; dV and dK, or one of them. */
template <class S> struct key_rows {
    uint32_t held[S::KEY_MT][S::DIM / 16][4];
    float sum[2 / S::ROLES][S::KEY_MT][S::DIM / 8][4];
};

/* Of this warp in the block. */
template <class S> __device__ __forceinline__ int warp_key0(void) {
    return (int)threadIdx.x / 32 % S::KEY_WARPS * 16 * S::KEY_MT;
}

template <class S> __device__ __forceinline__ bool second_role(void) {
    return S::ROLES == 2 && (int)threadIdx.x / 32 >= S::KEY_WARPS;
}

/* ---- dQ ---------------------------------------------------------------------------------------------------------- */

/* dQ^T, [columns, rows]: lane l has column l / 4 of 8, and rows 2 (l % 4) and the one after, of 8. */
template <class S> using query_sums = float[S::Q_MT][S::Q_NT][4];

/* x[c] of lane i of four and x[i] of lane c change places. */
__device__ __forceinline__ void transpose_in_quad(float (&x)[4]) {
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
        bool upper = threadIdx.x & bit;
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int i = bit == 1 ? 2 * n : n;
            float other = __shfl_xor_sync(~0u, upper ? x[i] : x[i + bit], bit);
            x[i] = upper ? other : x[i];
            x[i + bit] = upper ? x[i + bit] : other;
        }
    }
}

/* In the item's turn: nobody else adds to it meanwhile, so the order of sums is always the same. */
__device__ __forceinline__ void add_to_memory(float *to, float x) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;\n" ::"l"(to), "f"(x) : "memory");
}

/* A block that is not whole, from its first row on; row0, d0: the warp's rows and columns in it. Not inline, and on a
 * copy in local memory: seldom needed. */
template <class S>
__device__ __noinline__ void add_odd_rows(const float *dq, const row_source *to, int first, int limit, int row0, int d0,
                                          int width) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll 1
    for (int i = 0; i < S::Q_MT * S::Q_NT * 4; i++) {
        int row = first + row0 + lane % 4 * 2 + i / 4 % S::Q_NT * 8 + i % 2;
        int d = d0 + lane / 4 + i / (S::Q_NT * 4) * 16 + i % 4 / 2 * 8;
        if (row < limit && d < width)
            add_to_memory((float *)(to->base + row_offset<float>(*to, row)) + d * to->dim, dq[i]);
    }
}

/* The warp's rows, from `at` on; 32 lanes have 32 neighbours of a row, whole lines of memory. */
template <class S>
__device__ __forceinline__ void add_whole_rows(const query_sums<S> &dq, char *at, int64_t step, float scale) {
    static_assert(S::Q_MT == 2, "32 columns");
    int lane = (int)threadIdx.x % 32;
    at += (lane % 4 * 8 + lane / 4) * 4;
#pragma unroll
    for (int n = 0; n < S::Q_NT; n++) {
        float x[2][4];
#pragma unroll
        for (int e = 0; e < 2; e++) {
#pragma unroll
            for (int c = 0; c < 4; c++) x[e][c] = scale * dq[c / 2][n][c % 2 * 2 + e];
            transpose_in_quad(x[e]);
        }
#pragma unroll
        for (int i = 0; i < 8; i++, at += step) add_to_memory((float *)at, x[i % 2][i / 2]);
    }
}

/* dQ of step j. */
template <class S>
__device__ __forceinline__ void add_query_gradient(const gpu_problem &p, const half_memory<S> &memory, int j) {
    const planned_queries &step = memory.plan().steps[j % PLANNED];
    const query_source<float> &to = memory.plan().sources[step.source];
    int warp = (int)threadIdx.x / 32, row0 = warp % S::Q_WARPS * S::Q_NT * 8, d0 = warp / S::Q_WARPS * S::Q_MT * 16;
    if (d0 >= S::DIM) return;
    query_sums<S> dq = {};
    fragment_a<S::PITCH, false> keys(shared_address(memory.k()), d0, lane_anew());
    fragment_ds<S::ROWS> ds(shared_address(memory.ds()), row0);
    add_product<typename S::T, S::KEYS / 16, AHEAD>(dq, keys, ds);
    float scale = (float)p.scale;
    if (step.whole) {
        add_whole_rows<S>(dq, (char *)to.dq.base + to.dq.step * (step.block * S::ROWS + row0) + d0 * 4, to.dq.step,
                          scale);
        return;
    }
    float copy[S::Q_MT * S::Q_NT * 4];
#pragma unroll
    for (int i = 0; i < S::Q_MT * S::Q_NT * 4; i++) copy[i] = scale * dq[i / (S::Q_NT * 4)][i / 4 % S::Q_NT][i % 4];
    add_odd_rows<S>(copy, &to.dq, step.block * S::ROWS, to.count, row0, d0, p.dim);
}

/* ---- P and dS ---------------------------------------------------------------------------------------------------- */

/* Queries [from, from + AT_ONCE) of step j. */
template <class S>
__device__ __forceinline__ pair_columns_place pairs_of_thread(const half_memory<S> &memory, int j, int from) {
    const half_plan &plan = memory.plan();
    int lane = (int)threadIdx.x % 32, row = from + lane % 4 * 2;
    return {plan.steps[j % PLANNED].block * S::ROWS + row, plan.item.block * S::KEYS + warp_key0<S>() + lane / 4,
            memory.lse(j % 2) + row, memory.delta(j % 2) + row};
}

/* Until dO of step j has come, and dQ of the step before has been added and can be handed over. */
template <class S> __device__ __forceinline__ void dout_wait(const half_memory<S> &memory, int j) {
    if (j == 0) return;
    half_plan &plan = memory.plan();
    split_barrier_wait(&plan.sums_done, j - 1);
    if (threadIdx.x == RELEASER) chain_release(plan.steps[(j - 1) % PLANNED].chain);
}

/* x = rows that are held . queries^T, those from `from` on. */
template <class S>
__device__ __forceinline__ void multiply_held(pair_columns<S> &x, const key_rows<S> &keys, const unsigned char *queries,
                                              int from) {
    add_product<typename S::T, S::DIM / 16, AHEAD>(
        x, fragment_a_packed<S::KEY_MT, S::DIM / 16>(keys.held),
        fragment_b<S::PITCH, true>(shared_address(queries) + from * S::PITCH * 2, 0, lane_anew()));
}

template <class S>
__device__ __forceinline__ void weigh(pair_columns<S> &s, const half_memory<S> &memory, int j,
                                      const pair_columns_place &at, float scale, bool masked) {
    const half_plan &plan = memory.plan();
    if (masked)
        make_p_masked<S>(s, {scale}, plan.sources[plan.steps[j % PLANNED].source], at);
    else
        make_p<S>(s, {scale}, at);
}

template <class S>
__device__ __forceinline__ void differentiate(const pair_columns<S> &p, pair_columns<S> &dp,
                                              const pair_columns_place &at, bool masked) {
    if (masked)
        make_ds<S, true>(p, dp, at);
    else
        make_ds<S, false>(p, dp, at);
}

/* One role: both P and dS, as operands. dS goes to shared memory too. */
template <class S>
__device__ __forceinline__ void make_pairs(pair_operand<S> &p, pair_operand<S> &ds, const key_rows<S> &keys,
                                           const half_memory<S> &memory, int j, int from, float scale, bool masked) {
    int stage = j % 2;
    pair_columns_place at = pairs_of_thread<S>(memory, j, from);
    pair_columns<S> s = {}, dp = {};
    int skipped = from * S::PITCH * 2;
    fragment_a<S::PITCH, true> k(shared_address(memory.k()), warp_key0<S>(), lane_anew());
    fragment_b<S::PITCH, true> q(shared_address(memory.q(stage)) + skipped, 0, lane_anew());
    fragment_a_packed<S::KEY_MT, S::DIM / 16> v(keys.held);
    if (from == 0) {
        add_product<typename S::T, S::DIM / 16, AHEAD>(s, k, q);
        dout_wait<S>(memory, j);
    }
    fragment_b<S::PITCH, true> dout(shared_address(memory.dout()) + skipped, 0, lane_anew());
    if (from == 0)
        add_product<typename S::T, S::DIM / 16, AHEAD>(dp, v, dout);
    else
        add_products<typename S::T, S::DIM / 16, AHEAD>(s, k, q, dp, v, dout);
    weigh<S>(s, memory, j, at, scale, masked);
    differentiate<S>(s, dp, at, masked);
    pack_pairs<S>(p, s);
    pack_pairs<S>(ds, dp);
    store_pairs<S>(memory.ds(), ds, warp_key0<S>(), from / 8);
}

/* Two warps of the same keys, 64 threads: the second waits for what the first has put into shared memory. */
__device__ __forceinline__ void hand_over(int barrier) {
    asm volatile("bar.arrive %0, 64;\n" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void take_over(int barrier) {
    asm volatile("bar.sync %0, 64;\n" ::"r"(barrier) : "memory");
}

/* Two roles: the first makes P, and the second, to which it gives P, makes dS; x is what they have made. */
template <class S>
__device__ __forceinline__ void make_pairs_of_role(pair_operand<S> &x, const key_rows<S> &keys,
                                                   const half_memory<S> &memory, int j, int from, float scale,
                                                   bool masked) {
    constexpr int EACH = S::KEY_WARPS * 32;
    int stage = j % 2, number = (int)threadIdx.x % EACH, tile = from / S::AT_ONCE;
    int barrier = 1 + tile * S::KEY_WARPS + number / 32;
    bool second = second_role<S>();
    pair_columns_place at = pairs_of_thread<S>(memory, j, from);
    float4 *shared_p = memory.p(tile) + number;
    pair_columns<S> y = {};
    if (second && from == 0) dout_wait<S>(memory, j);
    multiply_held<S>(y, keys, second ? memory.dout() : memory.q(stage), from);
    if (!second) {
        weigh<S>(y, memory, j, at, scale, masked);
#pragma unroll
        for (int i = 0; i < S::KEY_MT * S::NT; i++) {
            const float(&z)[4] = y[i / S::NT][i % S::NT];
            shared_p[i * EACH] = make_float4(z[0], z[1], z[2], z[3]);
        }
        hand_over(barrier);
        pack_pairs<S>(x, y);
        if (from == 0) dout_wait<S>(memory, j);
    } else {
        pair_columns<S> p;
        take_over(barrier);
#pragma unroll
        for (int i = 0; i < S::KEY_MT * S::NT; i++) {
            float4 z = shared_p[i * EACH];
            float(&to)[4] = p[i / S::NT][i % S::NT];
            to[0] = z.x, to[1] = z.y, to[2] = z.z, to[3] = z.w;
        }
        differentiate<S>(p, y, at, masked);
        pack_pairs<S>(x, y);
        store_pairs<S>(memory.ds(), x, warp_key0<S>(), from / 8);
    }
}

/* ---- dK and dV --------------------------------------------------------------------------------------------------- */

/* sum += x . queries, those from `from` on. */
template <class S>
__device__ __forceinline__ void add_queries(float (&sum)[S::KEY_MT][S::DIM / 8][4], const pair_operand<S> &x,
                                            const unsigned char *queries, int from) {
    add_product<typename S::T, S::DEPTH, AHEAD>(
        sum, fragment_a_packed<S::KEY_MT, S::DEPTH>(x),
        fragment_b<S::PITCH, false>(shared_address(queries) + from * S::PITCH * 2, 0, lane_anew()));
}

/* dS of step j is there, dO has been read, and it is the item's turn to add to dQ. */
template <class S> __device__ __forceinline__ void pairs_arrive(const half_memory<S> &memory, int j) {
    half_plan &plan = memory.plan();
    if (threadIdx.x == WAITER) {
        const planned_queries &step = plan.steps[j % PLANNED];
        turn_wait(step.chain, turn_of<S::ROWS, S::KEYS>(plan.sources[step.source], step.block, plan.item.block));
    }
    split_barrier_arrive(&plan.pairs_done);
}

/* Step j but for dQ. */
template <class S>
__device__ __forceinline__ void do_step(key_rows<S> &keys, const gpu_problem &problem, const half_memory<S> &memory,
                                        int j, bool masked) {
    float scale = (float)problem.scale;
    int stage = j % 2;
#pragma unroll
    for (int from = 0; from < S::ROWS; from += S::AT_ONCE) {
        pair_operand<S> x, y;
        if constexpr (S::ROLES == 1)
            make_pairs<S>(x, y, keys, memory, j, from, scale, masked);
        else
            make_pairs_of_role<S>(x, keys, memory, j, from, scale, masked);
        bool last = from + S::AT_ONCE == S::ROWS;
        if constexpr (S::ROLES == 1) {
            add_queries<S>(keys.sum[0], x, memory.dout(), from);
            if (last) pairs_arrive<S>(memory, j);
            add_queries<S>(keys.sum[1], y, memory.q(stage), from);
        } else {
            bool second = second_role<S>();
            if (last && second) pairs_arrive<S>(memory, j);
            add_queries<S>(keys.sum[0], x, second ? memory.q(stage) : memory.dout(), from);
            if (last && !second) pairs_arrive<S>(memory, j);
        }
    }
}

/* Whether an element is not finite, of a key that there is. first: the thread's. */
template <int MT, int NT>
__device__ __forceinline__ bool sums_are_nonfinite(const float (&sum)[MT][NT][4], int first, int limit) {
    bool nonfinite = false;
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        float x = 0;
#pragma unroll
        for (int n = 0; n < NT; n++) x = fmaf(sum[r / 2][n][r % 2 * 2], 0, fmaf(sum[r / 2][n][r % 2 * 2 + 1], 0, x));
        nonfinite |= x != 0 && first + r * 8 < limit;
    }
    return nonfinite;
}

/* Rows of dk or dv, which are nobody else's in this launch. Where they are overwritten, they are not read. A few
 * columns at a time, for want of registers. */
template <class S>
__device__ __forceinline__ void write_sums(const row_source &to, const float (&sum)[S::KEY_MT][S::DIM / 8][4], float by,
                                           int first, int count, int width, bool overwrite) {
    constexpr int TILES = 4;
#pragma unroll
    for (int tile = 0; tile < S::DIM / 8; tile += TILES) {
        float old[S::KEY_MT][TILES][4];
        read_rows(old, to, first, overwrite ? 0 : count, tile * 8, width);
        write_rows(old, sum, by, to, first, count, tile * 8, width, tile);
    }
}

template <class S>
__device__ __forceinline__ void write_key_gradients(const gpu_backward &args, const item_place &item,
                                                    const key_rows<S> &keys, int first, int count) {
    if (!second_role<S>())
        write_sums<S>(item_rows<float, &ra_kv_rows::dv>(args, item), keys.sum[0], 1, first, count, args.problem.dim_v,
                      args.overwrite);
    if (S::ROLES == 1 || second_role<S>())
        write_sums<S>(item_rows<float, &ra_kv_rows::dk>(args, item), keys.sum[S::ROLES == 1], (float)args.problem.scale,
                      first, count, args.problem.dim, args.overwrite);
}

/* ---- main loop --------------------------------------------------------------------------------------------------- */

/* K and V have come; K is finite. The main loop and what follows it. Returns whether dk or dv are not finite, and have
 * not been written. */
template <class S>
__device__ __forceinline__ bool do_steps(const gpu_backward &args, const half_memory<S> &memory, key_rows<S> &keys,
                                         bool odd_values) {
    half_plan &plan = memory.plan();
    const gpu_problem &p = args.problem;
    int j = 0;
    if (plan.steps[1].block >= 0) copy_queries<S>(p, memory, 1);
#pragma unroll 1
    for (; plan.steps[j % PLANNED].block >= 0; j++) {
        const planned_queries &step = plan.steps[j % PLANNED];
        if (threadIdx.x == PLANNER) plan_queries<S>(args, plan, j + 2);
        do_step<S>(keys, p, memory, j, odd_values || step.masked);
        queries_wait<S>(memory, j + 1);
        split_barrier_arrive(&plan.queries_done);
        split_barrier_wait(&plan.pairs_done, j);
        if (plan.steps[(j + 1) % PLANNED].block >= 0) copy_dout<S>(p, memory, j + 1);
        add_query_gradient<S>(p, memory, j);
        copies_wait();
        split_barrier_arrive(&plan.sums_done);
        split_barrier_wait(&plan.queries_done, j);
        if (plan.steps[(j + 2) % PLANNED].block >= 0) copy_queries<S>(p, memory, j + 2);
    }
    int first = plan.item.block * S::KEYS + warp_key0<S>(), count = item_tile(args, plan.item).k_count;
    int row = first + (int)threadIdx.x % 32 / 4;
    bool nonfinite = false;
#pragma unroll
    for (int i = 0; i < 2 / S::ROLES; i++) nonfinite |= sums_are_nonfinite(keys.sum[i], row, count);
    nonfinite = __syncthreads_or(nonfinite); /* and dQ of the last step is written */
    if (threadIdx.x == RELEASER) chain_release(plan.steps[(j - 1) % PLANNED].chain);
    if (!nonfinite) write_key_gradients<S>(args, plan.item, keys, first, count);
    return nonfinite;
}

/* K and V of the item on their way to shared memory. */
template <class S> __device__ __forceinline__ void copy_keys(const gpu_backward &args, const half_memory<S> &memory) {
    using T = typename S::T;
    const item_place &item = memory.plan().item;
    int b0 = item.block * S::KEYS, count = item_tile(args, item).k_count;
    row_source k = item_rows<T, &ra_kv_rows::k>(args, item), v = item_rows<T, &ra_kv_rows::v>(args, item);
    copy_rows<T, S::PITCH, S::KEYS, S::THREADS>(memory.k(), k, b0, count, args.problem.dim);
    copy_rows<T, S::PITCH, S::KEYS, S::THREADS>(memory.v(), v, b0, count, args.problem.dim_v);
}

/* Whether an element that this thread copied is. */
template <class S> __device__ __forceinline__ bool copied_are_nonfinite(unsigned char *tile) {
    using T = typename S::T;
    bool nonfinite = false;
    visit_copied<T, S::PITCH, S::KEYS, S::THREADS>(tile, [&](const uint4 &x) {
        nonfinite |= either_is_nonfinite<T>(x.x) || either_is_nonfinite<T>(x.y) || either_is_nonfinite<T>(x.z) ||
                     either_is_nonfinite<T>(x.w);
    });
    return nonfinite;
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1) backward_half(const __grid_constant__ gpu_backward args) {
    extern __shared__ __align__(1024) unsigned char shared[];
    half_memory<S> memory = {shared};
    if (threadIdx.x == 0) {
        half_plan &plan = memory.plan();
        plan_item<S>(args, plan);
        split_barrier_init(&plan.pairs_done, S::WARPS);
        split_barrier_init(&plan.queries_done, S::WARPS);
        split_barrier_init(&plan.sums_done, S::WARPS);
    }
    __syncthreads();
    if (memory.plan().steps[0].block < 0) return;
    copy_keys<S>(args, memory);
    copy_queries<S>(args.problem, memory, 0);
    copy_dout<S>(args.problem, memory, 0);
    queries_wait<S>(memory, 0);
    bool odd_keys = __syncthreads_or(copied_are_nonfinite<S>(memory.k()));
    bool odd_values = copied_are_nonfinite<S>(memory.v());
    key_rows<S> keys = {};
    bool holds_values = S::ROLES == 1 || second_role<S>();
    fragment_a<S::PITCH, true> held(shared_address(holds_values ? memory.v() : memory.k()), warp_key0<S>());
#pragma unroll
    for (int i = 0; i < S::KEY_MT * (S::DIM / 16); i++)
        held.load(keys.held[i / (S::DIM / 16)][i % (S::DIM / 16)], i / (S::DIM / 16), i % (S::DIM / 16));
    odd_values = __syncthreads_or(odd_values); /* V is in registers */
    if (odd_keys || do_steps<S>(args, memory, keys, odd_values)) slow_item<S>(args, memory, odd_keys);
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

/* NARROW: as S, but for rows of fewer elements. */
template <class S, class NARROW> struct backward_half_calls {
    static_assert(S::ROWS == NARROW::ROWS && S::KEYS == NARROW::KEYS && S::BYTES == NARROW::BYTES, "the same blocks");
    static cudaError_t allow(void) {
        cudaError_t error = allow_shared_memory(backward_half<NARROW>, S::BYTES);
        return error ? error : allow_shared_memory(backward_half<S>, S::BYTES);
    }
    static void launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
        const gpu_problem &p = args->problem;
        if (p.dim <= NARROW::DIM && p.dim_v <= NARROW::DIM)
            backward_half<NARROW><<<count, S::THREADS, S::BYTES, stream>>>(*args);
        else
            backward_half<S><<<count, S::THREADS, S::BYTES, stream>>>(*args);
    }
};

template <class S, class NARROW = S> constexpr gpu_backward_variant backward_half_variant(void) {
    using calls = backward_half_calls<S, NARROW>;
    return {S::ROWS, S::KEYS, S::BYTES, calls::allow, calls::launch};
}

#endif
