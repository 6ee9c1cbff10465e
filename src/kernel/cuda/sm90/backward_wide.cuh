/* Backward for 16-bit elements on Hopper, rows of more than 128 elements: as backward_wgmma.cuh, in blocks of 64 keys
 * and 64 queries. dK and dV of 64 keys are all that a warpgroup has registers for, so one has dV and the other dK:
 *
 *   consumer 0   S^T = K Q^T   P^T = e^{S^T - lse}             dV += P^T dO    dQ, left half of its columns
 *   consumer 1   dP^T = V dO^T     dS^T = P^T (dP^T - delta)   dK += dS^T Q    dQ, right half
 *
 * P^T goes from 0 to 1 through shared memory as it is, of f32: a thread finds there what its fellow of the other
 * warpgroup has. Consumer 0 is ahead: it makes P of the next step while consumer 1 makes dS.
 *
 *   P_FULL    0 ──► 1   P^T is there            DS_FULL   1 ──► 0   dS^T is there
 *   P_EMPTY   1 ──► 0   it has been read
 *
 * Q, lse and delta come in two stages, full and empty as in backward_layout.cuh; there is shared memory for one dO
 * alone. Each consumer has a buffer for 64 columns of dQ, and an adder, which adds its two pieces of a step; a turn is
 * over when both have, so that chains count twice.
 *
 *   dout_full      producer ──► consumers   dO has come
 *   dout_empty     consumers ──► producer   dV and dP have been multiplied
 *   dq_full[g]     consumer g ──► adder g   a piece can be added to device memory
 *   dq_empty[g]    adder g ──► consumer g   it has been read
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_WIDE_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_WIDE_CUH

#include "kernel/cuda/sm90/backward_wgmma.cuh"

enum { P_FULL = 5, P_EMPTY = 6, DS_FULL = 7, DS_STORED = 8 }; /* named barriers */

/* K, V | Q, dO, Q | dS^T of two stages | P^T | dQ of each consumer | lse, delta | mbarriers | plan */
template <class T_> struct backward_wide_shape {
    using T = T_;
    static constexpr bool BOXES = true;
    static constexpr int DIM = 256, KEYS = 64, ROWS = 64, THREADS = 384;
    static constexpr int PRODUCERS = 32, ENDS = 1, DQ_WRITERS = 128, RELEASES = 2, DQ_STAGES = 2 /* consumers */;
    static constexpr int OTHER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
    static constexpr int KEY_TILE = KEYS * DIM * 2, QUERY_TILE = ROWS * DIM * 2, PAIR_TILE = KEYS * ROWS * 2;
    static constexpr int DQ_PANEL = ROWS * 128, DQ_TILE = 2 * DQ_PANEL, DQ_COLUMNS = 64 /* of a piece */;
    static constexpr int Q_AT = 2 * KEY_TILE, DS_AT = Q_AT + 3 * QUERY_TILE, P_AT = DS_AT + 2 * PAIR_TILE;
    static constexpr int DQ_AT = P_AT + KEYS * ROWS * 4, SUMS_AT = DQ_AT + 2 * DQ_TILE;
    static constexpr int BARRIERS_AT = SUMS_AT + 4 * ROWS * 4, DOUT_BARRIERS = 14 + 2 * QUERY_PLANS;
    static constexpr int PLAN_AT = BARRIERS_AT + (DOUT_BARRIERS + 2) * 8;
    static constexpr int QUERY_ROWS_AT = PLAN_AT + (int)sizeof(item_plan), BYTES = QUERY_ROWS_AT;
    static_assert(BYTES <= 227 * 1024, "more shared memory than there is");
};

template <class S> struct backward_wide_memory : backward_memory<S> {
    __device__ __forceinline__ uint32_t dout_full(void) const {
        return this->barrier(S::DOUT_BARRIERS);
    }
    __device__ __forceinline__ uint32_t dout_empty(void) const {
        return this->barrier(S::DOUT_BARRIERS + 1);
    }
    __device__ __forceinline__ uint32_t dout(void) const {
        return backward_memory<S>::dout(0);
    }
};

/* ---- producer ---------------------------------------------------------------------------------------------------- */

/* By a warp. dO of a step behind its Q, and so behind Q of no later step. */
template <class S>
__device__ __forceinline__ void produce_wide(const gpu_backward &args, const tensor_maps &maps,
                                             const backward_wide_memory<S> &memory, int lane) {
    item_plan &plan = memory.plan();
    if (lane == 0) copy_keys<S>(args, maps, memory);
#pragma unroll 1
    for (int j = 0;; j++) {
        int stage = j % 2;
        const query_plan &step = plan.queries[j % QUERY_PLANS];
        sums_read<S::ROWS / 32> sums;
        mbarrier_wait(memory.planned(j), j / QUERY_PLANS % 2);
        bool there = step.block >= 0;
        if (there) read_sums<S>(args, step, lane, sums);
        if (j >= 2) mbarrier_wait(memory.empty(stage), (j / 2 - 1) % 2);
        if (!there) {
            mbarrier_arrive(memory.full(stage));
            return;
        }
        const CUtensorMap *map = &maps.map[step.map];
        if (lane == 0) {
            mbarrier_expect(memory.full(stage), S::QUERY_TILE);
            copy_tile<S::DIM, S::ROWS>(memory.q(stage), map, step.row, step.head, plan.item.b, memory.full(stage));
        }
        bool odd = write_sums<S>(memory, stage, lane, sums);
        if (lane == 0) plan.masked[stage] = odd || !all_is_seen<S>(step, plan.item.block * S::KEYS);
        mbarrier_arrive(memory.full(stage));
        if (j >= 1) {
            mbarrier_wait(memory.checked(), 0);
            if (plan.odd_keys) return;
            mbarrier_wait(memory.dout_empty(), (j - 1) % 2);
        }
        if (lane == 0) {
            mbarrier_arrive_expecting(memory.dout_full(), S::QUERY_TILE);
            copy_tile<S::DIM, S::ROWS>(memory.dout(), map + 1, step.row, step.head, plan.item.b, memory.dout_full());
        }
    }
}

/* ---- dQ ---------------------------------------------------------------------------------------------------------- */

/* One lane for consumer `group`: adds its pieces of each step when the step's turn has come. */
template <class S>
__device__ __forceinline__ void add_pieces(const tensor_maps &maps, const backward_wide_memory<S> &memory, int group) {
    const item_plan &plan = memory.plan();
    mbarrier_wait(memory.checked(), 0);
    if (plan.odd_keys) return;
#pragma unroll 1
    for (int j = 0;; j++) {
        const query_plan &step = plan.queries[j % QUERY_PLANS];
        mbarrier_wait(memory.planned(j), j / QUERY_PLANS % 2);
        if (step.block < 0) return;
        const CUtensorMap *map = &maps.map[step.map + 2];
        chain_wait(step.chain, chain_read(step.chain), S::RELEASES * step.turn);
#pragma unroll 1
        for (int piece = 0; piece < 2; piece++) {
            int column = (2 * group + piece) * S::DQ_COLUMNS;
            mbarrier_wait(memory.dq_full(group), piece);
            global_proxies_meet();
            add_box(map, memory.dq(group), column, step.row, step.head, plan.item.b);
            add_box(map, memory.dq(group) + S::DQ_PANEL, column + 32, step.row, step.head, plan.item.b);
            bulk_commit();
            bulk_wait_read<0>();
            mbarrier_arrive(memory.dq_empty(group));
        }
        bulk_wait<0>();
        global_proxies_meet();
        chain_release(step.chain);
        mbarrier_arrive(memory.done(j));
    }
}

/* Piece `piece` of step j, which has been multiplied, into the consumer's buffer. */
template <class S>
__device__ __forceinline__ void give_piece(const backward_wide_memory<S> &memory, int group, int j, int piece,
                                           const float (&dq)[8][4], float scale) {
    if (j || piece) mbarrier_wait(memory.dq_empty(group), piece ^ 1);
    store_dq<S>(memory.dq(group), dq, 0, 0, scale);
    shared_writes_to_products();
    mbarrier_arrive(memory.dq_full(group));
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

/* P of a step goes to the other consumer, which has read the one before. */
template <class S>
__device__ __forceinline__ void hand_over_p(const backward_wide_memory<S> &memory, const pair_columns<S> &p) {
    put_p<S>(memory, p);
    named_barrier_arrive(P_FULL, 256);
}

/* dV of the item's keys. Nothing is under way where a step begins. The first piece of dQ is multiplied as early as can
 * be: the copy engine reads it while P of the next step is made. */
template <class S>
__device__ __forceinline__ void consume_p(const gpu_backward &args, const backward_wide_memory<S> &memory,
                                          const product_place &at, float (&dv)[S::DIM / 8][4]) {
    constexpr int PANEL = S::KEYS * PANEL_ROW_BYTES;
    item_plan &plan = memory.plan();
    float scale = (float)args.problem.scale;
    pairs_place pairs = {at.lane % 4 * 2, plan.item.block * S::KEYS + at.warp * 16 + at.lane / 4};
    pair_columns<S> s;
    start_pairs<S>(s, memory.k(), memory.q(0));
    products_wait<0>();
    keep_registers(s);
    weigh_pairs<S>(s, memory.lse(0), {scale}, plan.queries[0], pairs, plan.masked[0]);
    leave(memory.empty(0), at.lane);
    hand_over_p<S>(memory, s);
#pragma unroll 1
    for (int j = 0;; j++) {
        int stage = j % 2;
        pair_fragments<S> p;
        float dq[8][4];
        pack_pairs<S>(p, s);
        mbarrier_wait(memory.dout_full(), j % 2);
        start_sums<S>(dv, p, memory.dout());
        named_barrier(DS_FULL, 256);
        start_dq<S>(dq, memory.ds(stage), memory.k());
        mbarrier_wait(memory.full(stage ^ 1), (j + 1) / 2 % 2);
        bool more = plan.queries[(j + 1) % QUERY_PLANS].block >= 0;
        start_pairs<S>(s, memory.k(), memory.q(stage ^ 1)); /* of nothing, behind the last step */
        products_wait<2>();
        leave(memory.dout_empty(), at.lane);
        products_wait<1>();
        keep_registers(dq);
        give_piece<S>(memory, 0, j, 0, dq, scale);
        start_dq<S>(dq, memory.ds(stage), memory.k() + PANEL);
        products_wait<1>();
        keep_registers(s);
        if (more)
            weigh_pairs<S>(s, memory.lse(stage ^ 1), {scale}, plan.queries[(j + 1) % QUERY_PLANS], pairs,
                           plan.masked[stage ^ 1]);
        leave(memory.empty(stage ^ 1), at.lane);
        named_barrier(P_EMPTY, 256);
        if (more) hand_over_p<S>(memory, s);
        products_wait<0>();
        keep_registers(dq);
        give_piece<S>(memory, 0, j, 1, dq, scale);
        if (!more) break;
    }
    keep_registers(dv);
}

/* dK likewise. */
template <class S>
__device__ __forceinline__ void consume_ds(const gpu_backward &args, const backward_wide_memory<S> &memory,
                                           const product_place &at, float (&dk)[S::DIM / 8][4]) {
    constexpr int PANEL = S::KEYS * PANEL_ROW_BYTES;
    item_plan &plan = memory.plan();
    float scale = (float)args.problem.scale;
    pairs_place pairs = {at.lane % 4 * 2, 0};
    pair_columns<S> dp;
    mbarrier_wait(memory.dout_full(), 0);
    start_pairs<S>(dp, memory.v(), memory.dout());
    products_wait<0>();
    keep_registers(dp);
    leave(memory.dout_empty(), at.lane);
#pragma unroll 1
    for (int j = 0;; j++) {
        int stage = j % 2;
        pair_fragments<S> ds;
        float dq[8][4];
        {
            pair_columns<S> p;
            named_barrier(P_FULL, 256);
            get_p<S>(memory, p);
            named_barrier_arrive(P_EMPTY, 256);
            differentiate_pairs<S>(p, dp, memory.delta(stage), pairs, plan.masked[stage]);
        }
        pack_pairs<S>(ds, dp);
        store_fragments<S>(memory.ds(stage), ds, at.warp * 16);
        shared_writes_to_products();
        named_barrier_arrive(DS_FULL, 256);
        named_barrier(DS_STORED, 128);
        start_dq<S>(dq, memory.ds(stage), memory.k() + 2 * PANEL);
        start_sums<S>(dk, ds, memory.q(stage));
        products_wait<1>();
        keep_registers(dq);
        give_piece<S>(memory, 1, j, 0, dq, scale);
        start_dq<S>(dq, memory.ds(stage), memory.k() + 3 * PANEL);
        mbarrier_wait(memory.full(stage ^ 1), (j + 1) / 2 % 2);
        bool more = plan.queries[(j + 1) % QUERY_PLANS].block >= 0;
        if (more) mbarrier_wait(memory.dout_full(), (j + 1) % 2);
        start_pairs<S>(dp, memory.v(), memory.dout()); /* of nothing, behind the last step */
        products_wait<2>();
        leave(memory.empty(stage), at.lane);
        products_wait<1>();
        keep_registers(dq);
        give_piece<S>(memory, 1, j, 1, dq, scale);
        products_wait<0>();
        keep_registers(dp);
        leave(memory.dout_empty(), at.lane);
        if (!more) break;
    }
    keep_registers(dk);
}

/* One consumer's sum and its rows of dv or dk, which are nobody else's in this launch. Returns whether some element of
 * the item's dk or dv is not finite: then nothing has been written. */
template <class S, ra_view ra_kv_rows::*WHICH>
__device__ __forceinline__ bool write_sum(const gpu_backward &args, const item_place &item, const product_place &at,
                                          const float (&sum)[S::DIM / 8][4], int width, float by) {
    int count = item_tile(args, item).k_count, first = item.block * S::KEYS + at.warp * 16;
    if (consumers_any(sums_are_odd(sum, first + at.lane / 4, count))) return true;
    add_to_rows<S>(item_rows<float, WHICH>(args, item), first, count, width, sum, by, args.overwrite, at.lane);
    return false;
}

template <class S>
__device__ __forceinline__ bool consume_wide(const gpu_backward &args, const backward_wide_memory<S> &memory,
                                             const product_place &at) {
    const gpu_problem &p = args.problem;
    const item_place &item = memory.plan().item;
    float sum[S::DIM / 8][4] = {};
    if (at.group == 0) {
        consume_p<S>(args, memory, at, sum);
        return write_sum<S, &ra_kv_rows::dv>(args, item, at, sum, p.dim_v, 1);
    }
    consume_ds<S>(args, memory, at, sum);
    return write_sum<S, &ra_kv_rows::dk>(args, item, at, sum, p.dim, (float)p.scale);
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1)
    backward_wide(const __grid_constant__ gpu_backward args, const __grid_constant__ tensor_maps maps) {
    extern __shared__ __align__(1024) unsigned char shared[];
    backward_wide_memory<S> memory = {{shared, shared_address(shared)}};
    int thread = (int)threadIdx.x, warp = __shfl_sync(~0u, thread / 32, 0);
    if (thread == 0) {
        memory.plan().item = item_at(args, atomicAdd(args.ticket, 1u));
        mbarrier_init(memory.dout_full(), 1);
        mbarrier_init(memory.dout_empty(), 8);
        make_barriers<S>(memory);
    }
    __syncthreads();
    if (warp < 4) {
        registers_fewer<S::OTHER_REGISTERS>();
        if (warp == 0)
            produce_wide<S>(args, maps, memory, thread);
        else if (warp == 1 && thread % 32 == 0)
            plan_queries<S>(args, memory);
        else if (warp >= 2 && thread % 32 == 0)
            add_pieces<S>(maps, memory, warp - 2);
    } else {
        registers_more<S::CONSUMER_REGISTERS>();
        product_place at = {warp / 4 - 1, warp % 4, thread % 32, 0};
        bool odd_keys = check_keys<S>(memory);
        if (memory.plan().queries[0].block < 0) return;
        if (odd_keys) mbarrier_wait(memory.dout_full(), 0); /* no more copies are under way */
        if (odd_keys || consume_wide<S>(args, memory, at)) slow_item<S>(args, memory, odd_keys);
    }
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

/* MMA: the kernel for views that have no tensor maps, which does the same items. */
template <class T, const gpu_backward_variant &MMA> struct backward_wide_calls {
    using shape = backward_wide_shape<T>;

    static cudaError_t allow(void) {
        cudaError_t error = MMA.allow();
        return error ? error : allow_shared_memory(backward_wide<shape>, shape::BYTES);
    }
    static void launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
        tensor_maps maps;
        if (tensor_maps_backward(args, dtype_of<T>, shape::ROWS, &maps))
            backward_wide<shape><<<count, shape::THREADS, shape::BYTES, stream>>>(*args, maps);
        else
            MMA.launch(args, count, stream);
    }
    static void list_maps(const ra_shape *shape_of_rows, const ra_tile_list *tiles, const ra_kv_rows *parts,
                          gpu_lists *lists) {
        (void)tiles;
        tensor_maps_list(shape_of_rows, parts, shape::KEYS, lists);
    }
    static constexpr gpu_backward_variant variant(void) {
        return {shape::ROWS, shape::KEYS, shape::BYTES, allow, launch, NULL, list_maps};
    }
};

#endif
