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
 * that it can do without them (split_barrier.cuh). Where all warps do the same:
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
 * With two roles the second is half a step behind the first, so that one multiplies while the other exponentiates; the
 * first copies Q, the second dO:
 *
 *   first    │ S │ P │ copy of Q of j + 1 begins │ dV │       │ dQ │ S of j + 1 ...
 *   second   │ dK of j - 1 │ dP                       │ dS    │ dQ │ copy of dO of j + 1 begins │ dK │ dP of j + 1 ...
 *
 *   barrier        who has arrived when, in step j                             others wait for it before
 *   pairs_done     second: dS is stored; first: the turn of dQ has come        dQ of j
 *   dout_read      first: dV is summed                                         the copy of dO of j + 1
 *   dout_came      second: dK is summed, its copies of dO of j + 1 have come   dP and dV of j + 1, the copy of Q of j +
 * 2 queries_done   first: its copies of Q of j + 1 have come                   S and dS of j + 1 sums_done      both:
 * dS is read, dQ added                                  storing dS of j + 1, handing over dQ
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
#include "kernel/cuda/sm80/backward_half_queries.cuh"
#include "kernel/cuda/sm80/backward_half_softmax.cuh"
#include "kernel/cuda/sm80/backward_rows.cuh"

/* Threads of different warps, on different schedulers; with two roles, of the first one. The rows of lse are the last
 * copying warps' affair. */
enum { RELEASER = 0, WAITER = 32, PLANNER = 64 };

/* What a thread has of its warp's keys: rows of V, or of K, as an operand; dV and dK, or one of them. */
template <class S> struct key_rows {
    uint32_t held[S::HOLDS_KEYS ? 2 : 1][S::KEY_MT][S::DIM / 16][4];
    float sum[2 / S::ROLES][S::KEY_MT][S::DIM / 8][4];
};

/* Of this warp in the block. */
template <class S> __device__ __forceinline__ int warp_key0(void) {
    return (int)threadIdx.x / 32 % S::KEY_WARPS * 16 * S::KEY_MT;
}

template <class S> __device__ __forceinline__ bool second_role(void) {
    return S::ROLES == 2 && (int)threadIdx.x / 32 >= S::KEY_WARPS;
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

/* Until dQ of step j - 1 has been added, which one thread hands over then, and, where all warps copy it, dO of step j
 * has come. */
template <class S> __device__ __forceinline__ void sums_wait(const half_memory<S> &memory, int j) {
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
        x, fragment_a_packed<S::KEY_MT, S::DIM / 16>(keys.held[0]),
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
    auto multiply = [&](const auto &k) {
        fragment_b<S::PITCH, true> q(shared_address(memory.q(stage)) + skipped, 0, lane_anew());
        fragment_a_packed<S::KEY_MT, S::DIM / 16> v(keys.held[0]);
        if (from == 0) {
            add_product<typename S::T, S::DIM / 16, AHEAD>(s, k, q);
            sums_wait<S>(memory, j);
        }
        fragment_b<S::PITCH, true> dout(shared_address(memory.dout()) + skipped, 0, lane_anew());
        if (from == 0)
            add_product<typename S::T, S::DIM / 16, AHEAD>(dp, v, dout);
        else
            add_products<typename S::T, S::DIM / 16, AHEAD>(s, k, q, dp, v, dout);
    };
    if constexpr (S::HOLDS_KEYS)
        multiply(fragment_a_packed<S::KEY_MT, S::DIM / 16>(keys.held[1]));
    else
        multiply(fragment_a<S::PITCH, true>(shared_address(memory.k()), warp_key0<S>(), lane_anew()));
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

/* Where the thread's elements of P, of f32, go from the first role to the second. */
template <class S> __device__ __forceinline__ float4 *handed_pairs(const half_memory<S> &memory) {
    return memory.p() + copier<S>();
}

template <class S> __device__ __forceinline__ void hand_over_p(const half_memory<S> &memory, const pair_columns<S> &p) {
    float4 *to = handed_pairs<S>(memory);
#pragma unroll
    for (int i = 0; i < S::KEY_MT * S::NT; i++) {
        const float(&z)[4] = p[i / S::NT][i % S::NT];
        to[i * S::COPIERS] = make_float4(z[0], z[1], z[2], z[3]);
    }
    hand_over(1 + copier<S>() / 32);
}

template <class S> __device__ __forceinline__ void take_over_p(pair_columns<S> &p, const half_memory<S> &memory) {
    const float4 *from = handed_pairs<S>(memory);
    take_over(1 + copier<S>() / 32);
#pragma unroll
    for (int i = 0; i < S::KEY_MT * S::NT; i++) {
        float4 z = from[i * S::COPIERS];
        float(&to)[4] = p[i / S::NT][i % S::NT];
        to[0] = z.x, to[1] = z.y, to[2] = z.z, to[3] = z.w;
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

/* Until it is the item's turn to add to dQ of step j. By one thread. */
template <class S> __device__ __forceinline__ void step_turn_wait(const half_memory<S> &memory, int j) {
    const half_plan &plan = memory.plan();
    const planned_queries &step = plan.steps[j % PLANNED];
    turn_wait(step.chain, turn_of<S::ROWS, S::KEYS>(plan.sources[step.source], step.block, plan.item.block));
}

/* dS of step j is there, dO has been read, and it is the item's turn to add to dQ. */
template <class S> __device__ __forceinline__ void pairs_arrive(const half_memory<S> &memory, int j) {
    if (threadIdx.x == WAITER) step_turn_wait<S>(memory, j);
    split_barrier_arrive(&memory.plan().pairs_done);
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
        make_pairs<S>(x, y, keys, memory, j, from, scale, masked);
        add_queries<S>(keys.sum[0], x, memory.dout(), from);
        if (from + S::AT_ONCE == S::ROWS) pairs_arrive<S>(memory, j);
        add_queries<S>(keys.sum[1], y, memory.q(stage), from);
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

/* All steps, by warps that have both roles. Returns how many there were. */
template <class S>
__device__ __forceinline__ int loop_over_steps(const gpu_backward &args, const half_memory<S> &memory,
                                               key_rows<S> &keys, bool odd_values) {
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
    return j;
}

/* The same by warps of two roles. What depends on j is computed where it is used (value_anew), for want of registers.
 */
template <class S>
__device__ __forceinline__ int loop_over_steps_of_roles(const gpu_backward &args, const half_memory<S> &memory,
                                                        key_rows<S> &keys, bool odd_values) {
    static_assert(S::ROWS == S::AT_ONCE, "all queries of a step at once");
    half_plan &plan = memory.plan();
    const gpu_problem &problem = args.problem;
    int j = 0;
#pragma unroll 1
    for (; plan.steps[j % PLANNED].block >= 0; j++) {
        pair_columns<S> y = {};
        pair_operand<S> x;
        if (threadIdx.x == PLANNER) plan_queries<S>(args, plan, value_anew(j) + 2);
        if (j > 0) split_barrier_wait(second_role<S>() ? &plan.dout_came : &plan.queries_done, value_anew(j) - 1);
        multiply_held<S>(y, keys, second_role<S>() ? memory.dout() : memory.q(value_anew(j) % 2), 0);
        if (!second_role<S>()) {
            bool masked = odd_values || plan.steps[value_anew(j) % PLANNED].masked;
            weigh<S>(y, memory, value_anew(j), pairs_of_thread<S>(memory, value_anew(j), 0), (float)problem.scale,
                     masked);
            hand_over_p<S>(memory, y);
            pack_pairs<S>(x, y);
            if (j > 0) split_barrier_wait(&plan.dout_came, value_anew(j) - 1);
            int next = value_anew(j) + 1;
            if (plan.steps[next % PLANNED].block >= 0) copy_queries<S>(problem, memory, next);
            if (threadIdx.x == RELEASER) sums_wait<S>(memory, value_anew(j));
            if (threadIdx.x == WAITER) {
                step_turn_wait<S>(memory, value_anew(j));
                split_barrier_arrive_alone(&plan.pairs_done);
            }
            add_queries<S>(keys.sum[0], x, memory.dout(), 0);
            split_barrier_arrive(&plan.dout_read);
        } else {
            if (j > 0) split_barrier_wait(&plan.queries_done, value_anew(j) - 1);
            bool masked = odd_values || plan.steps[value_anew(j) % PLANNED].masked;
            pair_columns<S> p;
            take_over_p<S>(p, memory);
            differentiate<S>(p, y, pairs_of_thread<S>(memory, value_anew(j), 0), masked);
            pack_pairs<S>(x, y);
            if (j > 0) split_barrier_wait(&plan.sums_done, value_anew(j) - 1);
            store_pairs<S>(memory.ds(), x, warp_key0<S>(), 0);
            split_barrier_arrive(&plan.pairs_done);
        }
        split_barrier_wait(&plan.pairs_done, value_anew(j));
        add_query_gradient<S>(problem, memory, value_anew(j));
        if (!second_role<S>()) {
            split_barrier_arrive(&plan.sums_done);
            queries_wait<S>(memory, value_anew(j) + 1);
            split_barrier_arrive(&plan.queries_done);
        } else {
            load_pairs<S>(x, memory.ds(), warp_key0<S>());
            split_barrier_arrive(&plan.sums_done);
            split_barrier_wait(&plan.dout_read, value_anew(j));
            int next = value_anew(j) + 1;
            if (plan.steps[next % PLANNED].block >= 0) copy_dout<S>(problem, memory, next);
            add_queries<S>(keys.sum[0], x, memory.q(value_anew(j) % 2), 0);
            copies_wait();
            split_barrier_arrive(&plan.dout_came);
        }
    }
    return j;
}

/* K and V have come; K is finite. The main loop and what follows it. Returns whether dk or dv are not finite, and have
 * not been written. */
template <class S>
__device__ __forceinline__ bool do_steps(const gpu_backward &args, const half_memory<S> &memory, key_rows<S> &keys,
                                         bool odd_values) {
    half_plan &plan = memory.plan();
    int j;
    if constexpr (S::ROLES == 1)
        j = loop_over_steps<S>(args, memory, keys, odd_values);
    else
        j = loop_over_steps_of_roles<S>(args, memory, keys, odd_values);
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

/* The warp's rows of K or V, as an operand. */
template <class S>
__device__ __forceinline__ void hold_rows(uint32_t (&held)[S::KEY_MT][S::DIM / 16][4], const unsigned char *tile) {
    fragment_a<S::PITCH, true> rows(shared_address(tile), warp_key0<S>());
#pragma unroll
    for (int i = 0; i < S::KEY_MT * (S::DIM / 16); i++)
        rows.load(held[i / (S::DIM / 16)][i % (S::DIM / 16)], i / (S::DIM / 16), i % (S::DIM / 16));
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1) backward_half(const __grid_constant__ gpu_backward args) {
    extern __shared__ __align__(1024) unsigned char shared[];
    half_memory<S> memory = {shared};
    if (threadIdx.x == 0) {
        half_plan &plan = memory.plan();
        plan_item<S>(args, plan);
        split_barrier_init(&plan.pairs_done, S::KEY_WARPS + (S::ROLES == 2));
        split_barrier_init(&plan.queries_done, S::KEY_WARPS);
        split_barrier_init(&plan.dout_read, S::KEY_WARPS);
        split_barrier_init(&plan.dout_came, S::KEY_WARPS);
        split_barrier_init(&plan.sums_done, S::WARPS);
    }
    __syncthreads();
    if (memory.plan().steps[0].block < 0) return;
    copy_keys<S>(args, memory);
    if (!second_role<S>()) copy_queries<S>(args.problem, memory, 0);
    if (S::ROLES == 1 || second_role<S>()) copy_dout<S>(args.problem, memory, 0);
    if (second_role<S>())
        copies_wait();
    else
        queries_wait<S>(memory, 0);
    bool odd_keys = __syncthreads_or(copied_are_nonfinite<S>(memory.k()));
    bool odd_values = copied_are_nonfinite<S>(memory.v());
    key_rows<S> keys = {};
    hold_rows<S>(keys.held[0], S::ROLES == 1 || second_role<S>() ? memory.v() : memory.k());
    if constexpr (S::HOLDS_KEYS) hold_rows<S>(keys.held[1], memory.k());
    odd_values = __syncthreads_or(odd_values); /* V, or what else is held, is in registers */
    if constexpr (interleaved<S>) interleave_columns<S>(memory.k());
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
