/* Backward for 16-bit elements on mma.sync: a block of keys stays, with its dK and dV in registers, while the blocks of
 * queries that see it pass by, the last one first.
 *
 *   S = Q K^T   P = e^{S - lse}   dP = dO V^T   dS = P (dP - delta)
 *   dV += P^T dO   dK += dS^T Q   dQ += dS K
 *
 * dQ is summed in device memory, in plain loads and stores, by one key block after the other (walk_tiles.cuh says how
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

#include "kernel/cuda/sm80/mma.cuh"
#include "kernel/cuda/walk_tiles.cuh"

/* Where an item stands. One thread plans, two steps ahead; what it planned is there for all after a barrier. It is in
 * shared memory, since registers are short. */
struct planned_step {
    int block;  /* of queries; -1: there is no such step */
    int source; /* index */
};

struct item_plan {
    item_place item;
    query_cursor cursor;   /* of the last step planned */
    planned_step steps[4]; /* step j is at j % 4 */
    query_source<float> sources[3];
};

/* The warps lie over [ROWS, KEYS] of S with S_WARPS along the rows, over [KEYS, DIM] of dK and dV with KV_WARPS along
 * the keys, over [ROWS, DIM] of dQ with Q_WARPS along the rows. */
template <class T_, int DIM_, int ROWS_, int KEYS_, int S_WARPS_, int KV_WARPS_, int Q_WARPS_, int STAGES_>
struct backward_mma_shape {
    using T = T_;
    static constexpr int DIM = DIM_, ROWS = ROWS_, KEYS = KEYS_, STAGES = STAGES_, WARPS = 8, THREADS = 256;
    static constexpr int S_WARPS = S_WARPS_, KV_WARPS = KV_WARPS_, Q_WARPS = Q_WARPS_;
    static constexpr int S_MT = ROWS / S_WARPS / 16, S_NT = KEYS / (WARPS / S_WARPS) / 8;
    static constexpr int KV_MT = KEYS / KV_WARPS / 16, KV_NT = DIM / (WARPS / KV_WARPS) / 8;
    static constexpr int Q_MT = ROWS / Q_WARPS / 16, Q_NT = DIM / (WARPS / Q_WARPS) / 8;
    /* Bytes of shared memory: K, V, then for each stage Q and dO, then P, dS, then for each stage lse and delta. */
    static constexpr int KEY_TILE = KEYS * DIM * 2, QUERY_TILE = ROWS * DIM * 2, PAIR_TILE = ROWS * KEYS * 2;
    static constexpr int Q_AT = 2 * KEY_TILE, P_AT = Q_AT + STAGES * 2 * QUERY_TILE, LSE_AT = P_AT + 2 * PAIR_TILE;
    static constexpr int PLAN_AT = LSE_AT + STAGES * 2 * ROWS * 4;
    static constexpr int BYTES = PLAN_AT + (int)sizeof(item_plan);
};

static constexpr float BACKWARD_LOG2_E = 1.44269504088896341f;

template <class S> struct backward_memory {
    unsigned char *base;
    __device__ __forceinline__ unsigned char *k() const {
        return base;
    }
    __device__ __forceinline__ unsigned char *v() const {
        return base + S::KEY_TILE;
    }
    __device__ __forceinline__ unsigned char *q(int stage) const {
        return base + S::Q_AT + stage * 2 * S::QUERY_TILE;
    }
    __device__ __forceinline__ unsigned char *dout(int stage) const {
        return q(stage) + S::QUERY_TILE;
    }
    __device__ __forceinline__ unsigned char *p() const {
        return base + S::P_AT;
    }
    __device__ __forceinline__ unsigned char *ds() const {
        return base + S::P_AT + S::PAIR_TILE;
    }
    __device__ __forceinline__ float *lse(int stage) const {
        return (float *)(base + S::LSE_AT) + stage * 2 * S::ROWS;
    }
    __device__ __forceinline__ float *delta(int stage) const {
        return lse(stage) + S::ROWS;
    }
    __device__ __forceinline__ item_plan &plan() const {
        return *(item_plan *)(base + S::PLAN_AT);
    }
};

/* ---- copies ---------------------------------------------------------------------------------------------------------
 */

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
    const gpu_tile &t = args.problem.tiles[args.by_key[item.first]];
    const ra_kv_part &part = part_of(args.problem, t.part);
    int64_t g = (item.g - part.heads.first) / part.heads.stride;
    int b0 = item.block * S::KEYS;
    row_source k = source_of<T>(part.k, item.b, g, t.k_first, t.k_stride, t.k_index);
    copy_rows<T, S::DIM, S::KEYS, S::THREADS>(memory.k(), k, b0, t.k_count, args.problem.dim);
    row_source v = source_of<T>(part.v, item.b, g, t.k_first, t.k_stride, t.k_index);
    copy_rows<T, S::DIM, S::KEYS, S::THREADS>(memory.v(), v, b0, t.k_count, args.problem.dim_v);
}

/* ---- mask and softmax -----------------------------------------------------------------------------------------------
 */

template <class S> using pair_block = float[S::S_MT][S::S_NT][4];

template <class S> struct pair_place {
    int row0, key0; /* of this warp in the block */
    int row, key;   /* of this thread's first element, in the warp's part */
};

template <class S> __device__ __forceinline__ pair_place<S> pairs_of_thread(void) {
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    return {warp % S::S_WARPS * S::S_MT * 16, warp / S::S_WARPS * S::S_NT * 8, lane / 4, lane % 4 * 2};
}

/* s, dp become p, ds (without the scale) where every pair is visible. */
template <class S>
__device__ __forceinline__ void differentiate(pair_block<S> &s, pair_block<S> &dp, const float (&lse)[2 * S::S_MT],
                                              const float (&delta)[2 * S::S_MT], float scale) {
    float by = scale * BACKWARD_LOG2_E;
#pragma unroll
    for (int r = 0; r < 2 * S::S_MT; r++) {
        float base = lse[r] * BACKWARD_LOG2_E;
#pragma unroll
        for (int n = 0; n < S::S_NT; n++)
#pragma unroll
            for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++) {
                float p = exp2_fast(fmaf(s[r / 2][n][e], by, -base));
                s[r / 2][n][e] = p;
                dp[r / 2][n][e] = p * (dp[r / 2][n][e] - delta[r]);
            }
    }
}

/* The same where some are not, or where a row saw nothing (its lse is not finite), or a score is -inf, which counts as
 * unseen. Returns whether a pair with p = 0 has a score or dP that is no number: then Q, dO or K have an infinity or a
 * NaN, which times 0 would spread. */
template <class S>
__device__ __forceinline__ bool differentiate_masked(pair_block<S> &s, pair_block<S> &dp,
                                                     const float (&lse)[2 * S::S_MT], const float (&delta)[2 * S::S_MT],
                                                     float scale, const query_source<float> &from, int a0, int b0,
                                                     const pair_place<S> &at) {
    float by = scale * BACKWARD_LOG2_E;
    bool wild = false;
#pragma unroll
    for (int r = 0; r < 2 * S::S_MT; r++) {
        float base = lse[r] * BACKWARD_LOG2_E;
        int a = a0 + at.row0 + r / 2 * 16 + r % 2 * 8 + at.row, start = b0 + at.key0 + at.key;
        int first = a + from.lo - start, end = isinf(lse[r]) ? first : min(a + from.hi + 1, from.keys) - start;
#pragma unroll
        for (int n = 0; n < S::S_NT; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[r / 2][n][r % 2 * 2 + e], &y = dp[r / 2][n][r % 2 * 2 + e];
                bool seen = n * 8 + e >= first && n * 8 + e < end;
                float p = seen ? exp2_fast(fmaf(x, by, -base)) : 0;
                wild |= p == 0 && !(isfinite(x) && isfinite(y));
                x = p;
                y = p == 0 ? 0 : p * (y - delta[r]);
            }
    }
    return wild;
}

/* tile [ROWS, KEYS] of 16-bit elements = x. */
template <class S>
__device__ __forceinline__ void store_pairs(unsigned char *tile, const pair_block<S> &x, const pair_place<S> &at) {
    using T = typename S::T;
#pragma unroll
    for (int r = 0; r < 2 * S::S_MT; r++)
#pragma unroll
        for (int n = 0; n < S::S_NT; n++) {
            int row = at.row0 + r / 2 * 16 + r % 2 * 8 + at.row, chunk = at.key0 / 8 + n;
            *(uint32_t *)(tile + chunk_bytes_at<S::KEYS, T>(row, chunk) + at.key * 2) =
                element<T>::pack(x[r / 2][n][r % 2 * 2], x[r / 2][n][r % 2 * 2 + 1]);
        }
}

/* ---- products -------------------------------------------------------------------------------------------------------
 */

template <class T, int PITCH>
__device__ __forceinline__ float element_at(const unsigned char *tile, int row, int column) {
    return element<T>::widen(*(const T *)(tile + chunk_bytes_at<PITCH, T>(row, column / 8) + column % 8 * 2));
}

/* acc += A . B as add_product does it, but a 0 in A makes nothing of what it meets in B, whatever that is.
 * A [m, k] has its rows along k where ALONG_ROWS is false; B [k, n] has k along its rows. Seldom needed, and so kept
 * out of the way of the registers: a function of its own, on a copy in local memory. */
template <class T, int DEPTH, int A_PITCH, bool ALONG_ROWS, int B_PITCH, int MT, int NT>
__device__ __noinline__ void add_to_copy_skipping_zeros(float *acc, const unsigned char *a, int m0,
                                                        const unsigned char *b, int n0) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll 1
    for (int i = 0; i < MT * NT * 4; i++) {
        int m = m0 + i / (NT * 4) * 16 + i / 2 % 2 * 8 + lane / 4, n = n0 + i / 4 % NT * 8 + lane % 4 * 2 + i % 2;
        float sum = acc[i];
        for (int k = 0; k < DEPTH; k++) {
            float x = ALONG_ROWS ? element_at<T, A_PITCH>(a, m, k) : element_at<T, A_PITCH>(a, k, m);
            if (x != 0) sum += x * element_at<T, B_PITCH>(b, k, n);
        }
        acc[i] = sum;
    }
}

template <class T, int DEPTH, int A_PITCH, bool ALONG_ROWS, int B_PITCH, int MT, int NT>
__device__ __forceinline__ void add_product_skipping_zeros(float (&acc)[MT][NT][4], const unsigned char *a, int m0,
                                                           const unsigned char *b, int n0) {
    float copy[MT * NT * 4];
#pragma unroll
    for (int i = 0; i < MT * NT * 4; i++) copy[i] = acc[i / (NT * 4)][i / 4 % NT][i % 4];
    add_to_copy_skipping_zeros<T, DEPTH, A_PITCH, ALONG_ROWS, B_PITCH, MT, NT>(copy, a, m0, b, n0);
#pragma unroll
    for (int i = 0; i < MT * NT * 4; i++) acc[i / (NT * 4)][i / 4 % NT][i % 4] = copy[i];
}

/* x = this thread's elements of rows [first, first + 16 MT) and columns [n0, n0 + 8 NT); 0 beyond limit and width. Past
 * the first-level cache: other multiprocessors write them. */
template <int MT, int NT>
__device__ __forceinline__ void read_rows(float (&x)[MT][NT][4], const row_source &to, int first, int limit, int n0,
                                          int width) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        int i = first + r / 2 * 16 + r % 2 * 8 + lane / 4;
        const float *row = (const float *)to.base;
        if (i < limit) row = (const float *)(to.base + row_offset<float>(to, i));
#pragma unroll
        for (int n = 0; n < NT; n++) {
            int d = n0 + n * 8 + lane % 4 * 2;
            float2 y = make_float2(0, 0);
            if (i < limit && to.aligned && d + 1 < width)
                y = __ldcg((const float2 *)(row + d));
            else if (i < limit) {
                if (d < width) y.x = __ldcg(row + d * to.dim);
                if (d + 1 < width) y.y = __ldcg(row + (d + 1) * to.dim);
            }
            x[r / 2][n][r % 2 * 2] = y.x;
            x[r / 2][n][r % 2 * 2 + 1] = y.y;
        }
    }
}

/* rows = old + by * x. */
template <int MT, int NT>
__device__ __forceinline__ void write_rows(const float (&old)[MT][NT][4], const float (&x)[MT][NT][4], float by,
                                           const row_source &to, int first, int limit, int n0, int width) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        int i = first + r / 2 * 16 + r % 2 * 8 + lane / 4;
        if (i >= limit) continue;
        float *row = (float *)(to.base + row_offset<float>(to, i));
#pragma unroll
        for (int n = 0; n < NT; n++) {
            int d = n0 + n * 8 + lane % 4 * 2, e = r % 2 * 2;
            float2 y = make_float2(fmaf(by, x[r / 2][n][e], old[r / 2][n][e]),
                                   fmaf(by, x[r / 2][n][e + 1], old[r / 2][n][e + 1]));
            if (to.aligned && d + 1 < width)
                __stcg((float2 *)(row + d), y);
            else {
                if (d < width) __stcg(row + d * to.dim, y.x);
                if (d + 1 < width) __stcg(row + (d + 1) * to.dim, y.y);
            }
        }
    }
}

template <class S> struct key_gradients { float dk[S::KV_MT][S::KV_NT][4], dv[S::KV_MT][S::KV_NT][4]; };

template <class S>
__device__ __forceinline__ void add_key_gradients(key_gradients<S> &sum, const backward_memory<S> &memory, int stage,
                                                  bool wild) {
    using T = typename S::T;
    int warp = (int)threadIdx.x / 32;
    int key0 = warp % S::KV_WARPS * S::KV_MT * 16, d0 = warp / S::KV_WARPS * S::KV_NT * 8;
    if (wild) {
        add_product_skipping_zeros<T, S::ROWS, S::KEYS, false, S::DIM>(sum.dv, memory.p(), key0, memory.dout(stage),
                                                                       d0);
        add_product_skipping_zeros<T, S::ROWS, S::KEYS, false, S::DIM>(sum.dk, memory.ds(), key0, memory.q(stage), d0);
        return;
    }
    fragment_a<S::KEYS, false> p(shared_address(memory.p()), key0), ds(shared_address(memory.ds()), key0);
    fragment_b<S::DIM, false> dout(shared_address(memory.dout(stage)), d0), q(shared_address(memory.q(stage)), d0);
    add_product<T, S::ROWS / 16>(sum.dv, p, dout);
    add_product<T, S::ROWS / 16>(sum.dk, ds, q);
}

/* dq's old rows are asked for first, and are here when the product is. A few columns at a time, for want of registers.
 */
template <class S>
__device__ __forceinline__ void add_query_gradient(const gpu_problem &p, const backward_memory<S> &memory,
                                                   const query_source<float> &to, int block, float scale, bool wild) {
    using T = typename S::T;
    constexpr int NT = S::Q_NT < 4 ? S::Q_NT : 4;
    int warp = (int)threadIdx.x / 32, row0 = warp % S::Q_WARPS * S::Q_MT * 16;
#pragma unroll
    for (int part = 0; part < S::Q_NT / NT; part++) {
        int d0 = (warp / S::Q_WARPS * S::Q_NT + part * NT) * 8;
        float old[S::Q_MT][NT][4], dq[S::Q_MT][NT][4] = {};
        read_rows(old, to.dq, block * S::ROWS + row0, to.count, d0, p.dim);
        if (wild) {
            add_product_skipping_zeros<T, S::KEYS, S::KEYS, true, S::DIM>(dq, memory.ds(), row0, memory.k(), d0);
        } else {
            fragment_a<S::KEYS, true> ds(shared_address(memory.ds()), row0);
            fragment_b<S::DIM, false> k(shared_address(memory.k()), d0);
            add_product<T, S::KEYS / 16>(dq, ds, k);
        }
        write_rows(old, dq, scale, to.dq, block * S::ROWS + row0, to.count, d0, p.dim);
    }
}

/* ---- main loop ------------------------------------------------------------------------------------------------------
 */

/* P and dS of a step into shared memory; returns whether this thread met something wild. */
template <class S>
__device__ __forceinline__ bool make_pairs(const backward_memory<S> &memory, const query_source<float> &from, int a0,
                                           int b0, int stage, float scale) {
    using T = typename S::T;
    pair_place<S> at = pairs_of_thread<S>();
    pair_block<S> s = {}, dp = {};
    fragment_a<S::DIM, true> q(shared_address(memory.q(stage)), at.row0),
        dout(shared_address(memory.dout(stage)), at.row0);
    fragment_b<S::DIM, true> k(shared_address(memory.k()), at.key0), v(shared_address(memory.v()), at.key0);
    add_product<T, S::DIM / 16>(s, q, k);
    add_product<T, S::DIM / 16>(dp, dout, v);
    float lse[2 * S::S_MT], delta[2 * S::S_MT];
    bool odd = false;
#pragma unroll
    for (int r = 0; r < 2 * S::S_MT; r++) {
        int row = at.row0 + r / 2 * 16 + r % 2 * 8 + at.row;
        lse[r] = memory.lse(stage)[row];
        delta[r] = memory.delta(stage)[row];
        odd |= isinf(lse[r]);
#pragma unroll
        for (int n = 0; n < S::S_NT; n++) odd |= isinf(s[r / 2][n][r % 2 * 2]) || isinf(s[r / 2][n][r % 2 * 2 + 1]);
    }
    bool full = b0 + S::KEYS <= from.keys && block_is_full(from.lo, from.hi, a0, a0 + S::ROWS, b0, b0 + S::KEYS);
    bool wild = false;
    if (full && !__any_sync(~0u, odd))
        differentiate<S>(s, dp, lse, delta, scale);
    else
        wild = differentiate_masked<S>(s, dp, lse, delta, scale, from, a0, b0, at);
    store_pairs<S>(memory.p(), s, at);
    store_pairs<S>(memory.ds(), dp, at);
    return wild;
}

/* dk and dv of the item's keys are nobody else's in this launch. */
template <class S>
__device__ __forceinline__ void write_key_gradients(const gpu_backward &args, const item_place &item,
                                                    const key_gradients<S> &sum, float scale) {
    const gpu_tile &t = args.problem.tiles[args.by_key[item.first]];
    const ra_kv_part &part = part_of(args.problem, t.part);
    int64_t g = (item.g - part.heads.first) / part.heads.stride;
    int warp = (int)threadIdx.x / 32;
    int key0 = warp % S::KV_WARPS * S::KV_MT * 16, d0 = warp / S::KV_WARPS * S::KV_NT * 8;
    float old[S::KV_MT][S::KV_NT][4];
    row_source dv = source_of<float>(part.dv, item.b, g, t.k_first, t.k_stride, t.k_index);
    read_rows(old, dv, item.block * S::KEYS + key0, t.k_count, d0, args.problem.dim_v);
    write_rows(old, sum.dv, 1, dv, item.block * S::KEYS + key0, t.k_count, d0, args.problem.dim_v);
    row_source dk = source_of<float>(part.dk, item.b, g, t.k_first, t.k_stride, t.k_index);
    read_rows(old, dk, item.block * S::KEYS + key0, t.k_count, d0, args.problem.dim);
    write_rows(old, sum.dk, scale, dk, item.block * S::KEYS + key0, t.k_count, d0, args.problem.dim);
}

/* Step j, which uses the source of step j - 1 or the one after it. */
template <class S>
__device__ __forceinline__ void put_step(const gpu_backward &args, item_plan &plan, int j, int source, bool fresh) {
    bool there = plan.cursor.at < plan.item.first + plan.item.count;
    plan.steps[j % 4] = {there ? plan.cursor.block : -1, source};
    if (there && fresh)
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
    bool fresh = plan.cursor.at != before.at || plan.cursor.head != before.head;
    put_step<S>(args, plan, j, fresh ? (source + 1) % 3 : source, fresh);
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
            if (j) chain_pass(plan.sources[before.source].chain + before.block);
            plan_step<S>(args, plan, j + 2);
        }
        int turn = 0, seen = 0, key_block = plan.item.block;
        if (threadIdx.x == WAITER) {
            turn = turn_of<S::ROWS, S::KEYS>(from, step.block, key_block);
            seen = chain_read(from.chain + step.block);
        }
        bool wild = make_pairs<S>(memory, from, step.block * S::ROWS, key_block * S::KEYS, stage, scale);
        if (threadIdx.x == WAITER) chain_wait(from.chain + step.block, seen, turn);
        wild = __syncthreads_or(wild); /* B */
        add_key_gradients<S>(sum, memory, stage, wild);
        add_query_gradient<S>(p, memory, from, step.block, scale, wild);
        if (next.block < 0) break;
        if (S::STAGES == 1) {
            __syncthreads();
            copy_queries<S>(p, memory, plan.sources[next.source], next.block, 0);
        }
    }
    __syncthreads();
    if (threadIdx.x == PLANNER) chain_pass(plan.sources[plan.steps[j % 4].source].chain + plan.steps[j % 4].block);
    write_key_gradients<S>(args, plan.item, sum, scale);
}

template <class S> cudaError_t backward_mma_allow(void) {
    return cudaFuncSetAttribute(backward_mma<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
}

template <class S> void backward_mma_launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
    backward_mma<S><<<count, S::THREADS, S::BYTES, stream>>>(*args);
}

#endif
