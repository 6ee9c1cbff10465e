/* Backward for 16-bit elements on Hopper, rows of more than 128 elements: as backward_wgmma.cuh, in blocks of 64 keys
 * and 64 queries. dK and dV of 64 keys are all that a warpgroup has registers for, so one has dV and the other dK:
 *
 *   consumer 0   S^T = K Q^T   P^T = e^{S^T - lse}             dV += P^T dO    dQ
 *   consumer 1   dP^T = V dO^T     dS^T = P^T (dP^T - delta)   dK += dS^T Q    dQ
 *
 * Two CTAs, a cluster, do two neighbouring blocks of keys together, so that half as many sums go to dQ in device
 * memory, whose way there is what bounds this kernel otherwise. Each sends its dS^T to the other; CTA r has 128 of the
 * columns of dQ, over all 128 keys, and for that K of the other's keys in those columns:
 *
 *             K 64 x 256, V     dS^T of keys       dQ 64 x 128     consumer 0: 64 columns, consumer 1: 64 columns
 *   CTA 0     keys 0 to 63      own, and of 1      left half
 *   CTA 1     keys 64 to 127    own, and of 0      right half
 *
 * P^T goes from consumer 0 to 1 through shared memory as it is, of f32: a thread finds there what its fellow of the
 * other warpgroup has. Consumer 0 is ahead: it makes P of the next step while consumer 1 makes dS.
 *
 *   P_FULL     0 ──► 1                 P^T is there
 *   P_EMPTY    1 ──► 0                 it has been read
 *   ds_full    consumer 1 ──► both     dS^T is there: this CTA's own, and the other's, which a bulk copy brings
 *   ds_empty   consumers of both CTAs ──► consumer 1   dQ has been multiplied: dS^T can be written, here and there
 *
 * Q, lse and delta come in two stages, full and empty as in backward_layout.cuh; there is shared memory for one dO
 * alone. Each consumer has a buffer for 32 columns of dQ, and an adder, which adds its two pieces of a step: the second
 * one is put there when the next step has begun. A turn is over when the adders of both CTAs have added; the planner
 * of each tells.
 *
 *   dout_full      producer ──► consumers   dO has come
 *   dout_empty     consumers ──► producer   dV and dP have been multiplied
 *   dq_full[g]     consumer g ──► adder g   a piece can be added to device memory
 *   dq_empty[g]    adder g ──► consumer g   it has been read
 *   peer_checked   the other CTA ──► this   whether its K has infinities or NaNs
 *
 * A block of keys without a neighbour among the items is done by a cluster whose second CTA has no keys: nothing of
 * them is visible.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_WIDE_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_WIDE_CUH

#include "kernel/cuda/sm90/backward_wgmma.cuh"
#include "kernel/cuda/sm90/backward_wide_producer.cuh"

#include <stddef.h>

enum { P_FULL = 5, P_EMPTY = 6, DS_STORED = 7 }; /* named barriers */

/* ---- dQ ---------------------------------------------------------------------------------------------------------- */

/* dq [64 queries, 64 of the columns] = dS [64, 128 keys] . K [128, 64], begun: the keys of CTA 0, then those of 1. */
template <class S>
__device__ __forceinline__ void start_wide_dq(float (&dq)[8][4], const backward_wide_memory<S> &memory, int group,
                                              int rank) {
    uint32_t own = memory.k() + (2 * rank + group) * S::KEY_PANEL, other = memory.other_k(group);
    uint32_t a = operand_at(memory.ds(0), S::KEY_PANEL);
    uint32_t b0 = operand_at(rank ? other : own, S::KEY_PANEL), b1 = operand_at(rank ? own : other, S::KEY_PANEL);
    products_begin();
#pragma unroll
    for (int k = 0; k < 2 * S::KEYS / 16; k++)
        wgmma<typename S::T, 64>::template shared<true, true>(
            dq, operand(a, k * 16 * PANEL_ROW_BYTES), operand(k < 4 ? b0 : b1, k % 4 * 16 * PANEL_ROW_BYTES), k == 0);
    products_commit();
}

/* dQ of a step has been multiplied by this warp: dS can be overwritten, in both CTAs. */
template <class S> __device__ __forceinline__ void leave_ds(const backward_wide_memory<S> &memory, int lane, int rank) {
    __syncwarp();
    if (lane < S::CTAS) cluster_arrive(cluster_address(memory.ds_empty(), rank ^ lane));
}

/* Piece `piece` of step j, which has been multiplied, into the consumer's buffer. */
template <class S, int PIECE>
__device__ __forceinline__ void give_piece(const backward_wide_memory<S> &memory, const product_place &at, int j,
                                           const float (&dq)[8][4], float left) {
    float half[4][4];
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) half[n][e] = dq[PIECE * 4 + n][e];
    if (j || PIECE) mbarrier_wait(memory.dq_empty(at.group), PIECE ^ 1);
    multiply_dq(half, left);
    store_dq<S>(memory.dq(at.group), half, 0, 0);
    shared_writes_to_products();
    leave(memory.dq_full(at.group), at.lane);
}

/* ---- consumers --------------------------------------------------------------------------------------------------- */

/* P^T in shared memory: what thread t of a warpgroup has, 16 bytes at a time. */
template <class S> __device__ __forceinline__ float4 *p_of_thread(const backward_wide_memory<S> &memory) {
    return (float4 *)(memory.generic + S::P_AT) + thread_anew() % 128;
}

template <class S>
__device__ __forceinline__ void put_p(const backward_wide_memory<S> &memory, const pair_columns<S> &p) {
    float4 *to = p_of_thread<S>(memory);
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++) to[n * 128] = make_float4(p[n][0], p[n][1], p[n][2], p[n][3]);
}

template <class S> __device__ __forceinline__ void get_p(const backward_wide_memory<S> &memory, pair_columns<S> &p) {
    const float4 *from = p_of_thread<S>(memory);
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++) {
        float4 x = from[n * 128];
        p[n][0] = x.x;
        p[n][1] = x.y;
        p[n][2] = x.z;
        p[n][3] = x.w;
    }
}

/* S of a step has come: s becomes P. */
template <class S>
__device__ __forceinline__ void weigh_pairs(pair_columns<S> &s, const float *lse, const gpu_score<float> &score,
                                            const score_fold &fold, const query_plan &step, const pairs_place &at,
                                            pair_look look) {
    if (look == LOOK_AT_SCORES) {
        make_p_of_scores<S>(s, lse, score, fold, step, at);
    } else {
        make_p<S>(s, lse, score, at);
        if (look == LOOK_AT_PLACES) mask_pairs<S>(s, step, at);
    }
}

/* P of a step goes to the other consumer, which has read the one before. */
template <class S>
__device__ __forceinline__ void hand_over_p(const backward_wide_memory<S> &memory, const pair_columns<S> &p) {
    put_p<S>(memory, p);
    named_barrier_arrive(P_FULL, 256);
}

/* dS of this CTA's keys to both CTAs, by consumer 1, when dS of the step before has been used in both. */
template <class S>
__device__ __forceinline__ void hand_over_ds(const backward_wide_memory<S> &memory, const pair_fragments<S> &ds,
                                             const product_place &at, int rank, int j) {
    if (j) mbarrier_wait(memory.ds_empty(), (j - 1) % 2);
    store_fragments<S>(memory.ds(rank), ds, at.warp * 16);
    shared_writes_to_products();
    named_barrier(DS_STORED, 128);
    if (at.warp == 0 && at.lane == 0) {
        mbarrier_arrive_expecting(memory.ds_full(), S::PAIR_TILE);
        copy_to_cluster(cluster_address(memory.ds(rank), rank ^ 1), memory.ds(rank), S::PAIR_TILE,
                        cluster_address(memory.ds_full(), rank ^ 1));
    }
}

/* dV of the item's keys. Nothing is under way where a step begins. P of the next step is made while dQ is multiplied.
 */
template <class S>
__device__ __forceinline__ void consume_p(const folded_backward &args, const backward_wide_memory<S> &memory,
                                          const product_place &at, int rank, float (&dv)[S::DIM / 8][4]) {
    item_plan &plan = memory.plan();
    float scale = (float)args.problem.scale;
    pairs_place pairs = {at.lane % 4 * 2, plan.item.block * S::KEYS + at.warp * 16 + at.lane / 4};
    pair_columns<S> s;
    float dq[8][4];
    int j = 0;
    start_pairs<S>(s, memory.k(), memory.q(0));
    products_wait<0>();
    keep_registers(s);
    weigh_pairs<S>(s, memory.lse(0), {scale}, args.fold, plan.queries[0], pairs, plan.look[0]);
    leave(memory.empty(0), at.lane);
    hand_over_p<S>(memory, s);
#pragma unroll 1
    for (;; j++) {
        int stage = j % 2;
        pair_fragments<S> p;
        pack_pairs<S>(p, s);
        mbarrier_wait(memory.dout_full(), j % 2);
        start_sums<S>(dv, p, memory.dout());
        mbarrier_wait(memory.full(stage ^ 1), (j + 1) / 2 % 2);
        pair_look look = plan.look[stage ^ 1];
        bool more = look != LOOK_NO_MORE;
        start_pairs<S>(s, memory.k(), memory.q(stage ^ 1)); /* of nothing, behind the last step */
        products_wait<1>();
        leave(memory.dout_empty(), at.lane);
        if (j) give_piece<S, 1>(memory, at, j - 1, dq, args.fold.dq_left);
        mbarrier_wait(memory.ds_full(), j % 2);
        start_wide_dq<S>(dq, memory, 0, rank);
        products_wait<1>();
        keep_registers(s);
        if (more)
            weigh_pairs<S>(s, memory.lse(stage ^ 1), {scale}, args.fold, plan.queries[(j + 1) % QUERY_PLANS], pairs,
                           look);
        leave(memory.empty(stage ^ 1), at.lane);
        named_barrier(P_EMPTY, 256);
        if (more) hand_over_p<S>(memory, s);
        products_wait<0>();
        keep_registers(dq);
        leave_ds<S>(memory, at.lane, rank);
        give_piece<S, 0>(memory, at, j, dq, args.fold.dq_left);
        if (!more) break;
    }
    give_piece<S, 1>(memory, at, j, dq, args.fold.dq_left);
    keep_registers(dv);
}

/* dK likewise. */
template <class S>
__device__ __forceinline__ void consume_ds(const folded_backward &args, const backward_wide_memory<S> &memory,
                                           const product_place &at, int rank, float (&dk)[S::DIM / 8][4]) {
    item_plan &plan = memory.plan();
    pairs_place pairs = {at.lane % 4 * 2, 0};
    pair_columns<S> dp;
    float dq[8][4];
    int j = 0;
    mbarrier_wait(memory.dout_full(), 0);
    begin_dp<S>(dp, memory.minus_delta(0), pairs);
    start_pairs<S, S::DIM, true>(dp, memory.v(), memory.dout());
    products_wait<0>();
    keep_registers(dp);
    leave(memory.dout_empty(), at.lane);
#pragma unroll 1
    for (;; j++) {
        int stage = j % 2;
        pair_fragments<S> ds;
        {
            pair_columns<S> p;
            named_barrier(P_FULL, 256);
            get_p<S>(memory, p);
            named_barrier_arrive(P_EMPTY, 256);
            if (plan.look[stage] != LOOK_AT_NOTHING) leave_pairs_out<S>(p, dp);
            make_ds<S>(p, dp);
        }
        pack_pairs<S>(ds, dp);
        hand_over_ds<S>(memory, ds, at, rank, j);
        start_sums<S>(dk, ds, memory.q(stage));
        if (j) give_piece<S, 1>(memory, at, j - 1, dq, args.fold.dq_left);
        mbarrier_wait(memory.ds_full(), j % 2);
        start_wide_dq<S>(dq, memory, 1, rank);
        mbarrier_wait(memory.full(stage ^ 1), (j + 1) / 2 % 2);
        bool more = plan.look[stage ^ 1] != LOOK_NO_MORE;
        products_wait<1>();
        leave(memory.empty(stage), at.lane);
        if (more) mbarrier_wait(memory.dout_full(), (j + 1) % 2);
        begin_dp<S>(dp, memory.minus_delta(stage ^ 1), pairs);
        start_pairs<S, S::DIM, true>(dp, memory.v(), memory.dout()); /* of nothing, behind the last step */
        products_wait<1>();
        keep_registers(dq);
        leave_ds<S>(memory, at.lane, rank);
        give_piece<S, 0>(memory, at, j, dq, args.fold.dq_left);
        products_wait<0>();
        keep_registers(dp);
        leave(memory.dout_empty(), at.lane);
        if (!more) break;
    }
    give_piece<S, 1>(memory, at, j, dq, args.fold.dq_left);
    mbarrier_wait(memory.ds_empty(), j % 2); /* dS is in the other CTA: slow_item may write there */
    keep_registers(dk);
}

/* One consumer's sum and its rows of dv or dk, which are nobody else's in this launch. Returns whether some element of
 * the item's dk or dv is not finite: then nothing has been written. */
template <class S>
__device__ __forceinline__ bool write_sum(const gpu_backward &args, const backward_wide_memory<S> &memory,
                                          const product_place &at, key_sum which, const float (&sum)[S::DIM / 8][4],
                                          int width, float by) {
    const key_outputs &outputs = memory.plan().outputs;
    int count = outputs.count, first = memory.plan().item.block * S::KEYS + at.warp * WARP_ROWS;
    if (consumers_any(sums_are_odd(sum, first + at.lane / 4, count))) return true;
    key_output to = {which == SUM_OF_DK ? outputs.dk : outputs.dv, first, count, width, args.overwrite};
    add_to_key_rows<S>(to, key_row_at<S>(memory, which, at.warp * WARP_ROWS), sum, by, at.lane);
    key_rows_sent();
    return false;
}

/* The main loop and what follows it; K of both CTAs is finite. Returns whether dk or dv are not. has_keys: of its own.
 */
template <class S>
__device__ __forceinline__ bool consume_wide(const folded_backward &args, const backward_wide_memory<S> &memory,
                                             const product_place &at, int rank, bool has_keys) {
    const gpu_problem &p = args.problem;
    float sum[S::DIM / 8][4] = {};
    if (at.group == 0) {
        consume_p<S>(args, memory, at, rank, sum);
        return has_keys && write_sum<S>(args, memory, at, SUM_OF_DV, sum, p.dim_v, args.fold.dv_left);
    }
    consume_ds<S>(args, memory, at, rank, sum);
    return has_keys && write_sum<S>(args, memory, at, SUM_OF_DK, sum, p.dim, args.fold.dq_left);
}

/* As check_keys: whether K of one of the CTAs has infinities or NaNs. Both find the same. */
template <class S>
__device__ __forceinline__ bool check_wide_keys(const gpu_backward &args, const backward_wide_memory<S> &memory,
                                                int rank) {
    item_plan &plan = memory.plan();
    find_outputs<float>(args, plan);
    mbarrier_wait(memory.keys_full(), 0);
    mbarrier_wait(memory.values_full(), 0);
    bool odd_keys = consumers_any(keys_are_odd<S>(memory));
    if (threadIdx.x == 128) {
        cluster_store(
            cluster_address(memory.cluster_plan_address() + (uint32_t)offsetof(cluster_plan, peer_odd), rank ^ 1),
            odd_keys);
        cluster_release(cluster_address(memory.peer_checked(), rank ^ 1));
        cluster_acquire(memory.peer_checked(), 0);
        plan.odd_keys = odd_keys | memory.cluster().peer_odd;
        mbarrier_arrive(memory.checked());
    }
    mbarrier_wait(memory.checked(), 0);
    mbarrier_wait(memory.full(0), 0);
    if (plan.odd_keys && plan.queries[0].block >= 0) {
        mbarrier_wait(memory.full(1), 0); /* no more copies are under way */
        mbarrier_wait(memory.dout_full(), 0);
    }
    return plan.odd_keys;
}

/* What a CTA does of it. */
template <class S>
__device__ __forceinline__ void backward_wide_half(const folded_backward &args, const tensor_maps &maps,
                                                   const backward_wide_memory<S> &memory, int rank, int warp,
                                                   int thread) {
    if (warp < 4) {
        registers_fewer<S::OTHER_REGISTERS>();
        if (warp == 0)
            produce_wide<S>(args, maps, memory, thread);
        else if (warp == 1 && thread % 32 == 0)
            plan_wide<S>(args, memory, rank);
        else if (warp >= 2 && elected())
            add_pieces<S>(maps, memory, warp - 2, rank);
    } else {
        registers_more<S::CONSUMER_REGISTERS>();
        product_place at = {warp / 4 - 1, warp % 4, thread % 32, 0};
        bool odd_keys = check_wide_keys<S>(args, memory, rank), has_keys = !rank || memory.cluster().joined;
        if (memory.plan().queries[0].block < 0) return;
        bool slow = odd_keys ? has_keys : consume_wide<S>(args, memory, at, rank, has_keys);
        if (slow) slow_item<S>(args, memory, odd_keys);
    }
}

template <class S>
__global__ void __cluster_dims__(S::CTAS, 1, 1) __launch_bounds__(S::THREADS, 1)
    backward_wide(const __grid_constant__ folded_backward args, const __grid_constant__ tensor_maps maps) {
    extern __shared__ __align__(1024) unsigned char shared[];
    backward_wide_memory<S> memory = {{shared, shared_address(shared)}};
    int thread = (int)threadIdx.x, warp = __shfl_sync(~0u, thread / 32, 0), rank = cluster_rank();
    if (thread == 0) {
        if (rank == 0) memory.cluster().number = atomicAdd(args.ticket, 1u);
        mbarrier_init(memory.dout_full(), 1);
        mbarrier_init(memory.dout_empty(), 8);
        mbarrier_init(memory.peer_checked(), 1);
        mbarrier_init(memory.ds_full(), 1);
        mbarrier_init(memory.ds_empty(), 8 * S::CTAS);
        make_barriers<S>(memory);
    } else if (warp == 1) {
        look_ahead(args, &maps, blockIdx.x / S::CTAS, thread % 32);
    }
    __syncthreads();
    cluster_sync();
    bool there = warp == 0 && elected() && begin_wide_item<S>(args, maps, gridDim.x / S::CTAS, rank, memory);
    if (__syncthreads_or(there)) backward_wide_half<S>(args, maps, memory, rank, warp, thread);
    __syncwarp();
    cluster_sync(); /* until then the other CTA reads and writes this one's shared memory */
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

/* MMA: the kernel for views that have no tensor maps, which does the same items. */
template <class T, const gpu_backward_variant &MMA> struct backward_wide_calls {
    using shape = backward_wide_shape<T>;

    /* Items and turns are those of these blocks: with others it would wait for turns that do not come. */
    static cudaError_t allow(void) {
        if (MMA.rows != shape::ROWS || MMA.keys != shape::KEYS) return cudaErrorInvalidConfiguration;
        cudaError_t error = MMA.allow();
        return error ? error : allow_shared_memory(backward_wide<shape>, shape::BYTES);
    }
    static void launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
        tensor_maps maps;
        folded_backward folded = fold_scale<T>(*args);
        if (tensor_maps_backward(args, dtype_of<T>, shape::ROWS, &maps))
            backward_wide<shape><<<shape::CTAS * count, shape::THREADS, shape::BYTES, stream>>>(folded, maps);
        else
            MMA.launch(args, count, stream);
    }
    static void list_maps(const ra_shape *shape_of_rows, const ra_tile_list *tiles, const ra_kv_rows *parts,
                          gpu_lists *lists) {
        (void)tiles;
        tensor_maps_list(shape_of_rows, parts, shape::KEYS, lists);
        gpu_list_key_boxes(shape::KEYS, lists);
    }
    static constexpr gpu_backward_variant variant(void) {
        return {shape::ROWS, shape::KEYS, shape::BYTES, allow, launch, NULL, list_maps, shape::CTAS};
    }
};

#endif
