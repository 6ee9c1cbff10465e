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
 * There is no shared memory left for dQ: consumers add it to device memory from registers, in two pieces each, when the
 * turn has come. The two mbarriers of a stage say that:
 *
 *   dq_empty[stage]   adder ──► consumers   the turn has come
 *   dq_full[stage]    consumers ──► adder   all has been added
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_WIDE_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_WIDE_CUH

#include "kernel/cuda/sm90/backward_wgmma.cuh"

enum { P_FULL = 5, P_EMPTY = 6, DS_FULL = 7, DS_STORED = 8 }; /* named barriers */

/* K, V | Q, dO of two stages | dS^T of two stages | P^T | lse, delta | mbarriers | plan */
template <class T_> struct backward_wide_shape {
    using T = T_;
    static constexpr bool BOXES = true;
    static constexpr int DIM = 256, KEYS = 64, ROWS = 64, THREADS = 384;
    static constexpr int PRODUCERS = 32, ADDERS = 2, DQ_STAGES = 2, OTHER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
    static constexpr int KEY_TILE = KEYS * DIM * 2, QUERY_TILE = ROWS * DIM * 2, PAIR_TILE = KEYS * ROWS * 2;
    static constexpr int Q_AT = 2 * KEY_TILE, DS_AT = Q_AT + 4 * QUERY_TILE, P_AT = DS_AT + 2 * PAIR_TILE;
    static constexpr int SUMS_AT = P_AT + KEYS * ROWS * 4, BARRIERS_AT = SUMS_AT + 4 * ROWS * 4;
    static constexpr int BARRIERS = 10 + 2 * QUERY_PLANS, PLAN_AT = BARRIERS_AT + BARRIERS * 8;
    static constexpr int QUERY_ROWS_AT = PLAN_AT + (int)sizeof(item_plan), BYTES = QUERY_ROWS_AT;
    static_assert(BYTES <= 227 * 1024, "more shared memory than there is");
};

/* ---- dQ -------------------------------------------------------------------------------------------------------------
 */

/* Rows of a step's dQ, in device memory. */
struct dq_rows {
    float *first; /* this thread's row 0, the two elements that it has of a tile's first 8 columns */
    int64_t row, dim;
    int width;    /* columns from there on */
    bool two[2];  /* for each of the thread's rows: it is there */
    bool by_twos; /* two neighbours can be added in one instruction */
};

template <class S>
__device__ __forceinline__ dq_rows dq_rows_of(const gpu_backward &args, const query_plan &step, int batch) {
    int thread = thread_anew(), row = thread / 32 % 4 * 16 + thread % 32 / 4, column = thread % 4 * 2;
    const ra_view &v = args.dq;
    dq_rows to;
    to.row = step.each * v.row;
    to.dim = v.dim;
    to.first =
        (float *)v.data + batch * v.batch + step.head * v.head + step.first * v.row + row * to.row + column * v.dim;
    to.width = args.problem.dim - column;
    to.two[0] = step.a0 + row < step.count;
    to.two[1] = step.a0 + row + 8 < step.count;
    to.by_twos = v.dim == 1 && args.problem.dim % 2 == 0 && (((uint64_t)v.data | (uint64_t)to.row * 4) & 7) == 0 &&
                 ((uint64_t)to.first & 7) == 0;
    return to;
}

__device__ __forceinline__ void add_one(float *to, float x) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;\n" ::"l"(to), "f"(x) : "memory");
}

__device__ __forceinline__ void add_two(float *to, float x, float y) {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};\n" ::"l"(to), "f"(x), "f"(y) : "memory");
}

/* Columns [column, column + 64) of dQ += scale * dq. */
__device__ __forceinline__ void add_dq_piece(const dq_rows &to, const float (&dq)[8][4], int column, float scale) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float *row = to.first + (r ? 8 * to.row : 0) + column * to.dim;
        if (!to.two[r]) continue;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            float x = scale * dq[n][r * 2], y = scale * dq[n][r * 2 + 1];
            int left = to.width - column - n * 8;
            if (to.by_twos) {
                if (left > 0) add_two(row + n * 8, x, y);
                continue;
            }
            if (left > 0) add_one(row + n * 8 * to.dim, x);
            if (left > 1) add_one(row + (n * 8 + 1) * to.dim, y);
        }
    }
}

/* One lane, for every second step: tells the consumers when the step's turn has come, and hands it over when they have
 * added. */
template <class S> __device__ __forceinline__ void mind_turns(const backward_memory<S> &memory, int stage) {
    const item_plan &plan = memory.plan();
    mbarrier_wait(memory.checked(), 0);
    if (plan.odd_keys) return;
#pragma unroll 1
    for (int j = stage;; j += S::ADDERS) {
        const query_plan &step = plan.queries[j % QUERY_PLANS];
        mbarrier_wait(memory.planned(j), j / QUERY_PLANS % 2);
        if (step.block < 0) return;
        chain_wait(step.chain, chain_read(step.chain), step.turn);
        mbarrier_arrive(memory.dq_empty(stage));
        mbarrier_wait(memory.dq_full(stage), j / S::ADDERS % 2);
        chain_release(step.chain);
        mbarrier_arrive(memory.done(j));
    }
}

/* The two pieces of a consumer, from column0 on. The first has been multiplied. */
template <class S>
__device__ __forceinline__ void add_dq(const gpu_backward &args, const backward_memory<S> &memory, int j,
                                       float (&dq)[8][4], int column0) {
    constexpr int PANEL = S::KEYS * PANEL_ROW_BYTES;
    int stage = j % 2;
    const item_plan &plan = memory.plan();
    float scale = (float)args.problem.scale;
    dq_rows to = dq_rows_of<S>(args, plan.queries[j % QUERY_PLANS], plan.item.b);
    mbarrier_wait(memory.dq_empty(stage), j / 2 % 2);
    add_dq_piece(to, dq, column0, scale);
    start_dq<S>(dq, memory.ds(stage), memory.k() + (column0 / 64 + 1) * PANEL);
    products_wait<0>();
    keep_registers(dq);
    add_dq_piece(to, dq, column0 + 64, scale);
    mbarrier_arrive(memory.dq_full(stage));
}

/* ---- consumers ------------------------------------------------------------------------------------------------------
 */

/* P^T in shared memory: what thread t of a warpgroup has, 16 bytes at a time. */
template <class S> __device__ __forceinline__ float4 *p_of_thread(const backward_memory<S> &memory) {
    return (float4 *)(memory.generic + S::P_AT) + thread_anew() % 128;
}

template <class S> __device__ __forceinline__ void put_p(const backward_memory<S> &memory, const pair_columns<S> &p) {
    float4 *to = p_of_thread<S>(memory);
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++) to[n * 128] = make_float4(p[n][0], p[n][1], p[n][2], p[n][3]);
}

template <class S> __device__ __forceinline__ void get_p(const backward_memory<S> &memory, pair_columns<S> &p) {
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

/* Step j's Q and dO have been used by this warp. */
template <class S> __device__ __forceinline__ void leave_stage(const backward_memory<S> &memory, int stage, int lane) {
    __syncwarp();
    if (lane == 0) mbarrier_arrive(memory.empty(stage));
}

/* dV of the item's keys. Nothing is under way where a step begins. */
template <class S>
__device__ __forceinline__ void consume_p(const gpu_backward &args, const backward_memory<S> &memory,
                                          const product_place &at, float (&dv)[S::DIM / 8][4]) {
    item_plan &plan = memory.plan();
    gpu_score<float> score = {(float)args.problem.scale};
    pairs_place pairs = {at.lane % 4 * 2, plan.item.block * S::KEYS + at.warp * 16 + at.lane / 4};
    pair_columns<S> s;
    start_pairs<S>(s, memory.k(), memory.q(0));
    products_wait<0>();
    keep_registers(s);
    weigh_pairs<S>(s, memory.lse(0), score, plan.queries[0], pairs, plan.masked[0]);
#pragma unroll 1
    for (int j = 0;; j++) {
        int stage = j % 2;
        pair_fragments<S> p;
        float dq[8][4];
        put_p<S>(memory, s);
        named_barrier_arrive(P_FULL, 256);
        pack_pairs<S>(p, s);
        start_sums<S>(dv, p, memory.dout(stage));
        mbarrier_wait(memory.full(stage ^ 1), (j + 1) / 2 % 2);
        bool more = plan.queries[(j + 1) % QUERY_PLANS].block >= 0;
        start_pairs<S>(s, memory.k(), memory.q(stage ^ 1)); /* of nothing, behind the last step */
        named_barrier(DS_FULL, 256);
        start_dq<S>(dq, memory.ds(stage), memory.k());
        products_wait<1>();
        keep_registers(s);
        leave_stage<S>(memory, stage, at.lane);
        if (more)
            weigh_pairs<S>(s, memory.lse(stage ^ 1), score, plan.queries[(j + 1) % QUERY_PLANS], pairs,
                           plan.masked[stage ^ 1]);
        products_wait<0>();
        keep_registers(dq);
        add_dq<S>(args, memory, j, dq, 0);
        named_barrier(P_EMPTY, 256);
        if (!more) break;
    }
    keep_registers(dv);
}

/* dK likewise. */
template <class S>
__device__ __forceinline__ void consume_ds(const gpu_backward &args, const backward_memory<S> &memory,
                                           const product_place &at, float (&dk)[S::DIM / 8][4]) {
    constexpr int PANEL = S::KEYS * PANEL_ROW_BYTES;
    item_plan &plan = memory.plan();
    pairs_place pairs = {at.lane % 4 * 2, 0};
    pair_columns<S> dp;
    start_pairs<S>(dp, memory.v(), memory.dout(0));
    products_wait<0>();
    keep_registers(dp);
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
        start_sums<S>(dk, ds, memory.q(stage));
        mbarrier_wait(memory.full(stage ^ 1), (j + 1) / 2 % 2);
        bool more = plan.queries[(j + 1) % QUERY_PLANS].block >= 0;
        start_pairs<S>(dp, memory.v(), memory.dout(stage ^ 1)); /* of nothing, behind the last step */
        named_barrier(DS_STORED, 128);
        start_dq<S>(dq, memory.ds(stage), memory.k() + 2 * PANEL);
        products_wait<1>();
        keep_registers(dp);
        leave_stage<S>(memory, stage, at.lane);
        products_wait<0>();
        keep_registers(dq);
        add_dq<S>(args, memory, j, dq, 128);
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
    add_to_rows<S>(item_rows<float, WHICH>(args, item), first, count, width, sum, by, args.fresh, at.lane);
    return false;
}

template <class S>
__device__ __forceinline__ bool consume_wide(const gpu_backward &args, const backward_memory<S> &memory,
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
    backward_memory<S> memory = {shared, shared_address(shared)};
    int thread = (int)threadIdx.x, warp = __shfl_sync(~0u, thread / 32, 0);
    if (thread == 0) {
        memory.plan().item = item_at(args, atomicAdd(args.ticket, 1u));
        make_barriers<S>(memory);
    }
    __syncthreads();
    if (warp < 4) {
        registers_fewer<S::OTHER_REGISTERS>();
        if (warp == 0)
            produce_queries<S>(args, maps, memory, thread);
        else if (warp == 1 && thread % 32 == 0)
            plan_queries<S>(args, memory);
        else if (warp >= 2 && thread % 32 == 0)
            mind_turns<S>(memory, warp - 2);
    } else {
        registers_more<S::CONSUMER_REGISTERS>();
        product_place at = {warp / 4 - 1, warp % 4, thread % 32, 0};
        bool odd_keys = check_keys<S>(memory);
        if (memory.plan().queries[0].block < 0) return;
        if (odd_keys || consume_wide<S>(args, memory, at)) slow_item<S>(args, memory, odd_keys);
    }
}

/* ---- launch ---------------------------------------------------------------------------------------------------------
 */

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
