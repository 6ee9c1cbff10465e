/* Backward on mma.sync: a block of keys stays, with its dK and dV in registers, while the blocks of queries that see it
 * go by, the last one first. How elements are multiplied is the products' affair: half_products.cuh for 16-bit
 * elements, tf32_products.cuh for f32.
 *
 *   S = Q K^T   P = e^{S - lse}   dP = dO V^T   dS = P (dP - delta)
 *   dV += P^T dO   dK += dS^T Q   dQ += dS K
 *
 * dQ is summed in device memory, in plain loads and stores, by one key block after the other (tile_cursor.cuh says how
 * they take turns), so the bits are the same every time. Key blocks are taken in rising order and all go through the
 * queries the same way, so one follows the other a step behind and seldom waits:
 *
 *   key block 0   q7 q6 q5 q4 q3 ...
 *   key block 1      q7 q6 q5 q4 ...
 *
 * A step has two barriers: A, its Q and dO are there (and those of the next step begin to come); B, P and dS are there,
 * and dQ's turn has come. The count of a finished dQ is raised behind the next barrier A, when its stores are long
 * under way.
 */
#ifndef RA_KERNEL_CUDA_SM80_BACKWARD_MMA_CUH
#define RA_KERNEL_CUDA_SM80_BACKWARD_MMA_CUH

#include "kernel/cuda/sm80/backward_mma_layout.cuh"
#include "kernel/cuda/sm80/backward_rows.cuh"

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Rows beyond the last look as if they had seen nothing. */
template <class S>
__device__ __forceinline__ void copy_queries(const gpu_problem &p, const backward_memory<S> &memory,
                                             const query_source<float> &s, int block, int stage) {
    using T = typename S::T;
    int a0 = block * S::ROWS, thread = (int)threadIdx.x;
    copy_rows<T, S::DIM, S::ROWS, S::THREADS>(memory.q(stage), s.q, a0, s.count, p.dim);
    copy_rows<T, S::DIM, S::ROWS, S::THREADS>(memory.dout(stage), s.dout, a0, s.count, p.dim_v);
    if (thread >= S::ROWS) return;
    int64_t at = (a0 + thread) * s.each;
    if (a0 + thread < s.count) {
        copy_4(shared_address(memory.lse(stage) + thread), s.lse + at);
        copy_4(shared_address(memory.delta(stage) + thread), s.delta + at);
    } else {
        memory.lse(stage)[thread] = -INFINITY;
        memory.delta(stage)[thread] = 0;
    }
}

template <class S>
__device__ __forceinline__ void copy_keys(const gpu_backward &args, const backward_memory<S> &memory,
                                          const item_place &item) {
    using T = typename S::T;
    int b0 = item.block * S::KEYS, count = item_tile(args, item).k_count;
    row_source k = item_rows<T, &ra_kv_rows::k>(args, item);
    copy_rows<T, S::DIM, S::KEYS, S::THREADS>(memory.k(), k, b0, count, args.problem.dim);
    row_source v = item_rows<T, &ra_kv_rows::v>(args, item);
    copy_rows<T, S::DIM, S::KEYS, S::THREADS>(memory.v(), v, b0, count, args.problem.dim_v);
}

/* ---- mask and softmax -------------------------------------------------------------------------------------------- */

template <class S> using pair_block = float[S::S_MT][S::S_NT][4];

template <class S> __device__ __forceinline__ pair_place pairs_of_thread(void) {
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    return {warp % S::S_WARPS * S::S_MT * 16, warp / S::S_WARPS * S::S_NT * 8, lane / 4, lane % 4 * 2};
}

/* s, dp become p, ds (without the scale) where every pair is visible. */
template <class S>
__device__ __forceinline__ void differentiate(pair_block<S> &s, pair_block<S> &dp, const float (&lse)[2 * S::S_MT],
                                              const float (&delta)[2 * S::S_MT], const gpu_score<float> &score) {
#pragma unroll
    for (int r = 0; r < 2 * S::S_MT; r++) {
#pragma unroll
        for (int n = 0; n < S::S_NT; n++)
#pragma unroll
            for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++) {
                float p = score_weight_of(score, s[r / 2][n][e], lse[r]);
                s[r / 2][n][e] = p;
                dp[r / 2][n][e] = score_slope(p, dp[r / 2][n][e], delta[r]);
            }
    }
}

/* The same where some are not, or where a row saw nothing (its lse is -inf), or a score is -inf, which counts as
 * unseen, or where scores are large, or pairs count several times. Returns whether a pair that takes no part has a
 * score or a dP that is no number: then Q, dO, K or V have an infinity or a NaN, which times 0 would spread. */
template <class S>
__device__ __forceinline__ bool differentiate_masked(pair_block<S> &s, pair_block<S> &dp,
                                                     const float (&lse)[2 * S::S_MT], const float (&delta)[2 * S::S_MT],
                                                     const gpu_score<float> &params, const query_source<float> &from,
                                                     int a0, int b0, const pair_place &at) {
    bool nonfinite = false;
    float times = (float)from.times;
#pragma unroll
    for (int r = 0; r < 2 * S::S_MT; r++) {
        float base = counted_lse(lse[r]);
        int a = a0 + at.row0 + r / 2 * 16 + r % 2 * 8 + at.row, start = b0 + at.key0 + at.key;
        int first = a + from.lo - start, end = base == -INFINITY ? first : min(a + from.hi + 1, from.keys) - start;
#pragma unroll
        for (int n = 0; n < S::S_NT; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[r / 2][n][r % 2 * 2 + e], &y = dp[r / 2][n][r % 2 * 2 + e];
                float score = score_of(params, x);
                bool part = n * 8 + e >= first && n * 8 + e < end && score != -INFINITY;
                float p = part ? score_weight_to_one(score, base) * times : NO_PART;
                nonfinite |= !part && !(isfinite(x) && isfinite(y));
                x = p;
                y = part ? score_slope(p, y, delta[r]) : NO_PART;
            }
    }
    return nonfinite;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* acc += A . B as the products do it, but elements of A that take no part are left out. A is a tile
 * of pairs [ROWS, KEYS] and B [k, DIM] has k along its rows: keys where ALONG_ROWS, queries where not. Seldom needed,
 * and so kept out of the way of the registers: a function of its own, on a copy in local memory. */
template <class S, bool ALONG_ROWS, int MT, int NT>
__device__ __noinline__ void add_to_copy_of_those_seen(float *acc, const unsigned char *a, int m0,
                                                       const unsigned char *b, int n0) {
    using T = typename S::T;
    using products = typename S::products;
    constexpr int EACH = 16 / (int)sizeof(T);
    int lane = (int)threadIdx.x % 32;
#pragma unroll 1
    for (int i = 0; i < MT * NT * 4; i++) {
        int m = m0 + i / (NT * 4) * 16 + i / 2 % 2 * 8 + lane / 4, n = n0 + i / 4 % NT * 8 + lane % 4 * 2 + i % 2;
        float sum = acc[i];
        for (int k = 0; k < (ALONG_ROWS ? S::KEYS : S::ROWS); k++) {
            float x = products::template pair_at<S::KEYS>(a, ALONG_ROWS ? m : k, ALONG_ROWS ? k : m);
            const T *chunk = (const T *)(b + chunk_bytes_at<S::DIM, T>(k, n / EACH));
            if (takes_part(x)) sum += x * products::seen(chunk[n % EACH]);
        }
        acc[i] = sum;
    }
}

template <class S, bool ALONG_ROWS, int MT, int NT>
__device__ __forceinline__ void add_product_of_those_seen(float (&acc)[MT][NT][4], const unsigned char *a, int m0,
                                                          const unsigned char *b, int n0) {
    float copy[MT * NT * 4];
#pragma unroll
    for (int i = 0; i < MT * NT * 4; i++) copy[i] = acc[i / (NT * 4)][i / 4 % NT][i % 4];
    add_to_copy_of_those_seen<S, ALONG_ROWS, MT, NT>(copy, a, m0, b, n0);
#pragma unroll
    for (int i = 0; i < MT * NT * 4; i++) acc[i / (NT * 4)][i / 4 % NT][i % 4] = copy[i];
}

template <class S> struct key_gradients { float dk[S::KV_MT][S::KV_NT][4], dv[S::KV_MT][S::KV_NT][4]; };

template <class S>
__device__ __forceinline__ void add_key_gradients(key_gradients<S> &sum, const backward_memory<S> &memory, int stage,
                                                  bool nonfinite) {
    using products = typename S::products;
    int warp = (int)threadIdx.x / 32;
    int key0 = warp % S::KV_WARPS * S::KV_MT * 16, d0 = warp / S::KV_WARPS * S::KV_NT * 8;
    if (nonfinite) {
        add_product_of_those_seen<S, false>(sum.dv, memory.p(), key0, memory.dout(stage), d0);
        add_product_of_those_seen<S, false>(sum.dk, memory.ds(), key0, memory.q(stage), d0);
        return;
    }
    products::template add_to_keys<S>(sum.dv, memory.p(), key0, memory.dout(stage), d0);
    products::template add_to_keys<S>(sum.dk, memory.ds(), key0, memory.q(stage), d0);
}

/* dq's old rows are asked for first, and are here when the product is. A few columns at a time, for want of registers.
 */
template <class S>
__device__ __forceinline__ void add_query_gradient(const gpu_problem &p, const backward_memory<S> &memory,
                                                   const query_source<float> &to, int block, float scale,
                                                   bool nonfinite) {
    constexpr int NT = S::Q_NT < 4 ? S::Q_NT : 4;
    int warp = (int)threadIdx.x / 32, row0 = warp % S::Q_WARPS * S::Q_MT * 16;
#pragma unroll
    for (int piece = 0; piece < S::Q_NT / NT; piece++) {
        int d0 = (warp / S::Q_WARPS * S::Q_NT + piece * NT) * 8;
        float old[S::Q_MT][NT][4], dq[S::Q_MT][NT][4] = {};
        read_rows(old, to.dq, block * S::ROWS + row0, to.count, d0, p.dim);
        if (nonfinite)
            add_product_of_those_seen<S, true>(dq, memory.ds(), row0, memory.k(), d0);
        else
            S::products::template add_to_queries<S>(dq, memory.ds(), row0, memory.k(), d0);
        write_rows(old, dq, scale, to.dq, block * S::ROWS + row0, to.count, d0, p.dim);
    }
}

/* ---- main loop --------------------------------------------------------------------------------------------------- */

/* P and dS of a step into shared memory; returns whether this thread met something nonfinite. */
template <class S>
__device__ __forceinline__ bool make_pairs(const backward_memory<S> &memory, const query_source<float> &from, int a0,
                                           int b0, int stage, float scale) {
    using products = typename S::products;
    pair_place at = pairs_of_thread<S>();
    pair_block<S> s = {}, dp = {};
    bool nonfinite = products::template add_pairs<S>(s, memory.q(stage), memory.k(), at);
    nonfinite |= products::template add_pairs<S>(dp, memory.dout(stage), memory.v(), at);
    float lse[2 * S::S_MT], delta[2 * S::S_MT];
    bool odd = nonfinite;
#pragma unroll
    for (int r = 0; r < 2 * S::S_MT; r++) {
        int row = at.row0 + r / 2 * 16 + r % 2 * 8 + at.row;
        lse[r] = memory.lse(stage)[row];
        delta[r] = memory.delta(stage)[row];
        odd |= is_large(lse[r]);
#pragma unroll
        for (int n = 0; n < S::S_NT; n++) odd |= isinf(s[r / 2][n][r % 2 * 2]) || isinf(s[r / 2][n][r % 2 * 2 + 1]);
    }
    bool full = b0 + S::KEYS <= from.keys && block_is_full(from.lo, from.hi, a0, a0 + S::ROWS, b0, b0 + S::KEYS);
    if (full && from.times == 1 && !__any_sync(~0u, odd))
        differentiate<S>(s, dp, lse, delta, {scale});
    else
        nonfinite |= differentiate_masked<S>(s, dp, lse, delta, {scale}, from, a0, b0, at);
    nonfinite |= products::SPREADS && some_are_nonfinite(dp);
    products::template store_pairs<S>(memory.p(), s, at);
    products::template store_pairs<S>(memory.ds(), dp, at);
    return nonfinite;
}

/* dk and dv of the item's keys are nobody else's in this launch. Where they are overwritten, they are not read. */
template <class S>
__device__ __forceinline__ void write_key_gradients(const gpu_backward &args, const item_place &item,
                                                    const key_gradients<S> &sum, float scale) {
    int count = item_tile(args, item).k_count, old_count = args.overwrite ? 0 : count;
    int warp = (int)threadIdx.x / 32;
    int key0 = warp % S::KV_WARPS * S::KV_MT * 16, d0 = warp / S::KV_WARPS * S::KV_NT * 8;
    float old[S::KV_MT][S::KV_NT][4];
    row_source dv = item_rows<float, &ra_kv_rows::dv>(args, item);
    read_rows(old, dv, item.block * S::KEYS + key0, old_count, d0, args.problem.dim_v);
    write_rows(old, sum.dv, 1, dv, item.block * S::KEYS + key0, count, d0, args.problem.dim_v);
    row_source dk = item_rows<float, &ra_kv_rows::dk>(args, item);
    read_rows(old, dk, item.block * S::KEYS + key0, old_count, d0, args.problem.dim);
    write_rows(old, sum.dk, scale, dk, item.block * S::KEYS + key0, count, d0, args.problem.dim);
}

/* Step j, which uses the source of step j - 1 or the one after it. */
template <class S>
__device__ __forceinline__ void put_step(const gpu_backward &args, item_plan &plan, int j, int source, bool moved) {
    bool there = plan.cursor.at < plan.item.first + plan.item.count;
    plan.steps[j % 4] = {there ? plan.cursor.block : -1, source};
    if (there && moved)
        set_queries<typename S::T, float, S::ROWS>(&plan.sources[source], args, plan.item.b, plan.cursor.at,
                                                   plan.cursor.head);
}

template <class S> __device__ __forceinline__ void plan_step(const gpu_backward &args, item_plan &plan, int j) {
    int source = plan.steps[(j - 1) % 4].source;
    query_cursor before = plan.cursor;
    if (plan.steps[(j - 1) % 4].block < 0) {
        plan.steps[j % 4].block = -1;
        return;
    }
    plan.cursor = next_queries<S::ROWS, S::KEYS>(args, plan.item, before);
    bool moved = plan.cursor.at != before.at || plan.cursor.head != before.head;
    put_step<S>(args, plan, j, moved ? (source + 1) % 3 : source, moved);
}

template <class S> __device__ __forceinline__ void plan_item(const gpu_backward &args, item_plan &plan) {
    plan.item = item_at(args, atomicAdd(args.ticket, 1u));
    plan.cursor = first_queries<S::ROWS, S::KEYS>(args, plan.item, plan.item.first);
    put_step<S>(args, plan, 0, 0, true);
    plan_step<S>(args, plan, 1);
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1) backward_mma(const __grid_constant__ gpu_backward args) {
    enum { PLANNER = 0, WAITER = 32 };
    extern __shared__ __align__(1024) unsigned char shared[];
    backward_memory<S> memory = {shared};
    item_plan &plan = memory.plan();
    const gpu_problem &p = args.problem;
    float scale = (float)p.scale;
    if (threadIdx.x == PLANNER) plan_item<S>(args, plan);
    __syncthreads();
    if (plan.steps[0].block < 0) return;
    copy_keys<S>(args, memory, plan.item);
    copy_queries<S>(p, memory, plan.sources[0], plan.steps[0].block, 0);
    S::products::template prepare_keys<S>(memory.k(), memory.v());

    key_gradients<S> sum = {};
    int j = 0;
#pragma unroll 1
    for (;; j++) {
        int stage = S::STAGES == 2 ? j % 2 : 0;
        copies_wait();
        __syncthreads(); /* A */
        planned_step step = plan.steps[j % 4], next = plan.steps[(j + 1) % 4];
        const query_source<float> &from = plan.sources[step.source];
        if (S::STAGES == 2 && next.block >= 0)
            copy_queries<S>(p, memory, plan.sources[next.source], next.block, stage ^ 1);
        if (threadIdx.x == PLANNER) {
            planned_step before = plan.steps[(j + 3) % 4];
            if (j) chain_release(plan.sources[before.source].chain + before.block);
            plan_step<S>(args, plan, j + 2);
        }
        int turn = 0, seen = 0, key_block = plan.item.block;
        if (threadIdx.x == WAITER) {
            turn = turn_of<S::ROWS, S::KEYS>(from, step.block, key_block);
            seen = chain_read(from.chain + step.block);
        }
        bool nonfinite = make_pairs<S>(memory, from, step.block * S::ROWS, key_block * S::KEYS, stage, scale);
        if (threadIdx.x == WAITER) chain_wait(from.chain + step.block, seen, turn);
        nonfinite = __syncthreads_or(nonfinite); /* B */
        add_key_gradients<S>(sum, memory, stage, nonfinite);
        add_query_gradient<S>(p, memory, from, step.block, scale, nonfinite);
        if (next.block < 0) break;
        if (S::STAGES == 1) {
            __syncthreads();
            copy_queries<S>(p, memory, plan.sources[next.source], next.block, 0);
        }
    }
    __syncthreads();
    if (threadIdx.x == PLANNER) chain_release(plan.sources[plan.steps[j % 4].source].chain + plan.steps[j % 4].block);
    write_key_gradients<S>(args, plan.item, sum, scale);
}

template <class S> cudaError_t backward_mma_allow(void) {
    return allow_shared_memory(backward_mma<S>, S::BYTES);
}

template <class S> void backward_mma_launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
    backward_mma<S><<<count, S::THREADS, S::BYTES, stream>>>(*args);
}

template <class S> constexpr gpu_backward_variant backward_mma_variant(const gpu_backward_variant *smaller = NULL) {
    return {S::ROWS, S::KEYS, S::BYTES, backward_mma_allow<S>, backward_mma_launch<S>, smaller};
}

#endif
