/* Backward for f32 elements multiplied as tf32: sm80/backward_mma.cuh with tiles of f32, and its turns, barriers, plan
 * and softmax. K and V are rounded once, in shared memory; P and dS when they are stored there; Q and dO, which come
 * anew every step, as they are read.
 *
 * P and dS lie as tiles of pairs (mma_tf32.cuh), which serve both as rows (dQ) and as columns (dK, dV).
 */
#ifndef RA_KERNEL_CUDA_TF32_BACKWARD_TF32_CUH
#define RA_KERNEL_CUDA_TF32_BACKWARD_TF32_CUH

#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/tf32/mma_tf32.cuh"

/* How the warps lie is said there; tiles have twice the bytes. */
template <int DIM, int ROWS, int KEYS, int S_WARPS, int KV_WARPS, int Q_WARPS, int STAGES>
struct backward_tf32_shape : backward_mma_shape<float, DIM, ROWS, KEYS, S_WARPS, KV_WARPS, Q_WARPS, STAGES> {
    static constexpr int KEY_TILE = KEYS * DIM * 4, QUERY_TILE = ROWS * DIM * 4, PAIR_TILE = ROWS * KEYS * 4;
    static constexpr int Q_AT = 2 * KEY_TILE, P_AT = Q_AT + STAGES * 2 * QUERY_TILE, LSE_AT = P_AT + 2 * PAIR_TILE;
    static constexpr int PLAN_AT = LSE_AT + STAGES * 2 * ROWS * 4;
    static constexpr int BYTES = PLAN_AT + (int)sizeof(item_plan);
};

/* ---- products -------------------------------------------------------------------------------------------------------
 */

/* tile [ROWS, KEYS] of pairs = x. */
template <class S>
__device__ __forceinline__ void store_pairs_tf32(unsigned char *tile, const pair_block<S> &x, const pair_place<S> &at) {
#pragma unroll
    for (int r = 0; r < 2 * S::S_MT; r++)
#pragma unroll
        for (int n = 0; n < S::S_NT; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int row = at.row0 + r / 2 * 16 + r % 2 * 8 + at.row, key = at.key0 + n * 8 + at.key + e;
                *(float *)(tile + pair_bytes_at<S::KEYS>(row, key)) = element<float>::widen(x[r / 2][n][r % 2 * 2 + e]);
            }
}

/* acc += A . B as add_product does it, but a 0 in A makes nothing of what it meets in B, whatever that is. A is a tile
 * of pairs [ROWS, KEYS], and B [k, DIM] has k along its rows: keys where ALONG_ROWS, queries where not. Seldom needed,
 * and so kept out of the way of the registers: a function of its own, on a copy in local memory. */
template <class S, bool ALONG_ROWS, int MT, int NT>
__device__ __noinline__ void add_to_copy_skipping_zeros_tf32(float *acc, const unsigned char *a, int m0,
                                                             const unsigned char *b, int n0) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll 1
    for (int i = 0; i < MT * NT * 4; i++) {
        int m = m0 + i / (NT * 4) * 16 + i / 2 % 2 * 8 + lane / 4, n = n0 + i / 4 % NT * 8 + lane % 4 * 2 + i % 2;
        float sum = acc[i];
        for (int k = 0; k < (ALONG_ROWS ? S::KEYS : S::ROWS); k++) {
            float x = *(const float *)(a + pair_bytes_at<S::KEYS>(ALONG_ROWS ? m : k, ALONG_ROWS ? k : m));
            float y = *(const float *)(b + chunk_bytes_at<S::DIM, float>(k, n / 4) + n % 4 * 4);
            if (x != 0) sum += x * element<float>::widen(y);
        }
        acc[i] = sum;
    }
}

template <class S, bool ALONG_ROWS, int MT, int NT>
__device__ __forceinline__ void add_product_skipping_zeros_tf32(float (&acc)[MT][NT][4], const unsigned char *a, int m0,
                                                                const unsigned char *b, int n0) {
    float copy[MT * NT * 4];
#pragma unroll
    for (int i = 0; i < MT * NT * 4; i++) copy[i] = acc[i / (NT * 4)][i / 4 % NT][i % 4];
    add_to_copy_skipping_zeros_tf32<S, ALONG_ROWS, MT, NT>(copy, a, m0, b, n0);
#pragma unroll
    for (int i = 0; i < MT * NT * 4; i++) acc[i / (NT * 4)][i / 4 % NT][i % 4] = copy[i];
}

template <class S>
__device__ __forceinline__ void add_key_gradients_tf32(key_gradients<S> &sum, const backward_memory<S> &memory,
                                                       int stage, bool wild) {
    int warp = (int)threadIdx.x / 32;
    int key0 = warp % S::KV_WARPS * S::KV_MT * 16, d0 = warp / S::KV_WARPS * S::KV_NT * 8;
    if (wild) {
        add_product_skipping_zeros_tf32<S, false>(sum.dv, memory.p(), key0, memory.dout(stage), d0);
        add_product_skipping_zeros_tf32<S, false>(sum.dk, memory.ds(), key0, memory.q(stage), d0);
        return;
    }
    fragment_a_across<S::KEYS> p(shared_address(memory.p()), key0), ds(shared_address(memory.ds()), key0);
    rounded<fragment_b_across<S::DIM>> dout(shared_address(memory.dout(stage)), d0),
        q(shared_address(memory.q(stage)), d0);
    add_product<float, S::ROWS / 8>(sum.dv, p, dout);
    add_product<float, S::ROWS / 8>(sum.dk, ds, q);
}

/* dq's old rows are asked for first, and are here when the product is. */
template <class S>
__device__ __forceinline__ void add_query_gradient_tf32(const gpu_problem &p, const backward_memory<S> &memory,
                                                        const query_source<float> &to, int block, float scale,
                                                        bool wild) {
    int warp = (int)threadIdx.x / 32, row0 = warp % S::Q_WARPS * S::Q_MT * 16, d0 = warp / S::Q_WARPS * S::Q_NT * 8;
    float old[S::Q_MT][S::Q_NT][4], dq[S::Q_MT][S::Q_NT][4] = {};
    read_rows(old, to.dq, block * S::ROWS + row0, to.count, d0, p.dim);
    if (wild) {
        add_product_skipping_zeros_tf32<S, true>(dq, memory.ds(), row0, memory.k(), d0);
    } else {
        fragment_a_along<S::KEYS> ds(shared_address(memory.ds()), row0);
        fragment_b_across<S::DIM> k(shared_address(memory.k()), d0);
        add_product<float, S::KEYS / 8>(dq, ds, k);
    }
    write_rows(old, dq, scale, to.dq, block * S::ROWS + row0, to.count, d0, p.dim);
}

/* ---- main loop ------------------------------------------------------------------------------------------------------
 */

/* P and dS of a step into shared memory; returns whether this thread met something wild. */
template <class S>
__device__ __forceinline__ bool make_pairs_tf32(const backward_memory<S> &memory, const query_source<float> &from,
                                                int a0, int b0, int stage, float scale) {
    pair_place<S> at = pairs_of_thread<S>();
    pair_block<S> s = {}, dp = {};
    rounded<fragment_a_along<S::DIM>> q(shared_address(memory.q(stage)), at.row0),
        dout(shared_address(memory.dout(stage)), at.row0);
    fragment_b_along<S::DIM> k(shared_address(memory.k()), at.key0), v(shared_address(memory.v()), at.key0);
    add_product<float, S::DIM / 8>(s, q, k);
    add_product<float, S::DIM / 8>(dp, dout, v);
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
    store_pairs_tf32<S>(memory.p(), s, at);
    store_pairs_tf32<S>(memory.ds(), dp, at);
    return wild;
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1) backward_tf32(const __grid_constant__ gpu_backward args) {
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
    copies_wait();
    round_copied<S::DIM, S::KEYS, S::THREADS>(memory.k());
    round_copied<S::DIM, S::KEYS, S::THREADS>(memory.v());

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
        bool wild = make_pairs_tf32<S>(memory, from, step.block * S::ROWS, key_block * S::KEYS, stage, scale);
        if (threadIdx.x == WAITER) chain_wait(from.chain + step.block, seen, turn);
        wild = __syncthreads_or(wild); /* B */
        add_key_gradients_tf32<S>(sum, memory, stage, wild);
        add_query_gradient_tf32<S>(p, memory, from, step.block, scale, wild);
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

template <class S> cudaError_t backward_tf32_allow(void) {
    return cudaFuncSetAttribute(backward_tf32<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
}

template <class S> void backward_tf32_launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
    backward_tf32<S><<<count, S::THREADS, S::BYTES, stream>>>(*args);
}

#endif
