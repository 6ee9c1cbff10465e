/* Backward for 16-bit elements on Hopper: a block of 128 keys stays, with its dK and dV in registers, while the blocks
 * of queries that see it go by, the last one first.
 *
 *   S^T = K Q^T   P^T = e^{S^T - lse}   dP^T = V dO^T   dS^T = P^T (dP^T - delta)
 *   dV += P^T dO   dK += dS^T Q   dQ += dS K
 *
 * Two warpgroups multiply, 64 keys each. P^T and dS^T are products' accumulators and, packed, their operands; only dQ,
 * whose sum is over all keys, needs dS^T from both warpgroups, through shared memory. Each then has half of dQ: half of
 * its columns (DIM 128) or of its rows (DIM 64).
 *
 * dQ is multiplied a step late, when dS of the other warpgroup has long been there: neither waits for the other, and
 * one makes P and dS while the products of the other are under way. They start dV, dK, dQ and S in turns, which keeps
 * them half a step apart. S of the next step is issued behind dQ of the last one, and is multiplied while that is put
 * into shared memory; dP is while P is made:
 *
 *   products    dV dK dQ- S'        dP'       dV' ...
 *   others    dS            dQ- out  P'   dS'
 *
 * Instructions that a step jumps over cost it time all the same, so the main loop is an inner one, which has what every
 * step executes: P where all pairs are visible. A mask is laid over that P and dP when they have come, at the loop's
 * end, where the compiler puts it behind the loop. Steps whose scores have to be looked at leave the loop instead; they
 * and the first step are made by the outer one.
 *
 * Who else there is, and how they wait for one another: backward_layout.cuh. Infinities and NaNs:
 * backward_nonfinite.cuh.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_WGMMA_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_WGMMA_CUH

#include "kernel/cuda/call_parts.cuh"
#include "kernel/cuda/dependent_launch.cuh"
#include "kernel/cuda/sm90/backward_keys.cuh"
#include "kernel/cuda/sm90/backward_nonfinite.cuh"
#include "kernel/cuda/sm90/backward_row_producer.cuh"
#include "kernel/cuda/sm90/operands.cuh"

/* Where a warp stands among those that multiply. */
struct product_place {
    int group, warp, lane; /* warp: of the warpgroup */
    int key0;              /* of the warpgroup */
};

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* x [64 keys, ROWS] = keys [64, WIDTH] . queries [ROWS, WIDTH]^T, or += that, begun. keys: the warpgroup's first. */
template <class S, int WIDTH = S::DIM, bool ADDED = false>
__device__ __forceinline__ void start_pairs(pair_columns<S> &x, uint32_t keys, uint32_t queries) {
    constexpr int PANEL_K = S::KEYS * PANEL_ROW_BYTES, PANEL_Q = S::ROWS * PANEL_ROW_BYTES;
    uint32_t a = operand_at(keys, PANEL_K), b = operand_at(queries, PANEL_Q);
    products_begin();
#pragma unroll
    for (int d = 0; d < WIDTH / 16; d++)
        wgmma<typename S::T, S::ROWS>::template shared<false, false>(
            x, operand(a, d / 4 * PANEL_K + d % 4 * 32), operand(b, d / 4 * PANEL_Q + d % 4 * 32), d == 0 && !ADDED);
    products_commit();
}

/* sum [64 keys, 8 TILES] += x [64, ROWS] . queries [ROWS, 8 TILES], begun. */
template <class S, int TILES>
__device__ __forceinline__ void start_sums(float (&sum)[TILES][4], const pair_fragments<S> &x, uint32_t queries) {
    uint32_t b = operand_at(queries, S::ROWS * PANEL_ROW_BYTES);
    products_begin();
#pragma unroll
    for (int k = 0; k < S::ROWS / 16; k++)
        wgmma<typename S::T, 8 * TILES>::template registers<true>(sum, x[k], operand(b, k * 16 * PANEL_ROW_BYTES),
                                                                  false);
    products_commit();
}

/* Rows and columns of dQ that a warpgroup has. */
template <class S> __device__ __forceinline__ int dq_row0(int group) {
    return S::DIM == 64 ? group * 64 : 0;
}

template <class S> __device__ __forceinline__ int dq_column0(int group) {
    return S::DIM == 64 ? 0 : group * 64;
}

template <class S> __device__ __forceinline__ int dq_columns(int group) {
    return S::WIDTH % 64 == 0 ? 64 : min(64, S::WIDTH - dq_column0<S>(group));
}

/* dq [64 queries, 64] = dS [64, KEYS] . K [KEYS, 64], begun. ds, keys: the panels with those queries and columns. */
template <class S> __device__ __forceinline__ void start_dq(float (&dq)[8][4], uint32_t ds, uint32_t keys) {
    constexpr int PANEL = S::KEYS * PANEL_ROW_BYTES;
    uint32_t a = operand_at(ds, PANEL), b = operand_at(keys, PANEL);
    products_begin();
#pragma unroll
    for (int k = 0; k < S::KEYS / 16; k++)
        wgmma<typename S::T, 64>::template shared<true, true>(dq, operand(a, k * 16 * PANEL_ROW_BYTES),
                                                              operand(b, k * 16 * PANEL_ROW_BYTES), k == 0);
    products_commit();
}

/* This warp has done what others wait for at an mbarrier of warps. */
__device__ __forceinline__ void leave(uint32_t barrier, int lane) {
    __syncwarp();
    if (lane == 0) mbarrier_arrive(barrier);
}

/* The warpgroup's rows or columns of dQ of step j, begun: when dS of both warpgroups is there. */
template <class S>
__device__ __forceinline__ void start_dq_of(float (&dq)[8][4], const backward_memory<S> &memory,
                                            const product_place &at, uint32_t j) {
    constexpr int PANEL = S::KEYS * PANEL_ROW_BYTES;
    mbarrier_wait(memory.ds_full(j & 1), j >> 1 & 1);
    start_dq<S>(dq, memory.ds(j & 1) + dq_row0<S>(at.group) / 64 * PANEL,
                memory.k() + dq_column0<S>(at.group) / 64 * PANEL);
}

/* dq *= rest, which is mostly 1. */
template <int TILES> __device__ __forceinline__ void multiply_dq(float (&dq)[TILES][4], float rest) {
    if (rest == 1) return;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) dq[n][e] *= rest;
}

/* It has been multiplied: its dS is not needed any more, and it goes to the adders. */
template <class S>
__device__ __forceinline__ void give_dq(const backward_memory<S> &memory, uint32_t j, float (&dq)[8][4],
                                        const product_place &at, float rest) {
    leave(memory.ds_empty(j % 2), at.lane);
    if (j >= S::DQ_STAGES) mbarrier_wait(memory.dq_empty(j), (j / S::DQ_STAGES - 1) % 2);
    multiply_dq(dq, rest);
    if constexpr (S::BOXES)
        store_dq<S>(memory.dq(j), dq, dq_row0<S>(at.group), dq_column0<S>(at.group), dq_columns<S>(at.group));
    else
        store_dq_rows<S>(memory.dq(j), dq, dq_row0<S>(at.group), dq_column0<S>(at.group));
    shared_writes_to_products();
    mbarrier_arrive(memory.dq_full(j));
}

/* Until the adders have given dQ of the steps up to j, the last one, to the copy engine, and it has been read. Others
 * wait for it in turn: it is not to stand behind dK and dV on its way to memory. (With rows of 64 elements, where dK
 * and dV are half as long, that costs as much as it gains.) */
template <class S> __device__ __forceinline__ void dq_is_read(const backward_memory<S> &memory, int j) {
    if constexpr (S::DIM > 64) {
        if (S::DQ_STAGES > 1 && j) mbarrier_wait(memory.dq_empty(j - 1), (j - 1) / S::DQ_STAGES % 2);
        mbarrier_wait(memory.dq_empty(j), j / S::DQ_STAGES % 2);
    }
}

/* ---- main loop --------------------------------------------------------------------------------------------------- */

/* Whether an element of dk or dv is not finite, of a key that there is: 0 times it is no number. */
template <int TILES> __device__ __forceinline__ bool sums_are_odd(const float (&sum)[TILES][4], int first, int limit) {
    bool odd = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float x = 0;
#pragma unroll
        for (int n = 0; n < TILES; n++) x = fmaf(sum[n][r * 2], 0, fmaf(sum[n][r * 2 + 1], 0, x));
        odd |= x != 0 && first + r * 8 < limit;
    }
    return odd;
}

/* K has come. Whether it has infinities or NaNs: then 0 in dS would become a NaN in dQ. */
template <class S> __device__ __forceinline__ bool keys_are_odd(const backward_memory<S> &memory) {
    bool odd = false;
#pragma unroll 1
    for (int i = (int)threadIdx.x - 128; i < S::KEY_TILE / 16; i += 256) {
        uint4 x = ((const uint4 *)memory.generic)[i];
        using T = typename S::T;
        odd |= either_is_nonfinite<T>(x.x) || either_is_nonfinite<T>(x.y) || either_is_nonfinite<T>(x.z) ||
               either_is_nonfinite<T>(x.w);
    }
    return odd;
}

/* As look_through_keys, where tiles come row by row: by the consumers, while their first S is multiplied. */
template <class S> __device__ __forceinline__ void check_keys(const backward_memory<S> &memory) {
    bool odd_keys = consumers_any(keys_are_odd<S>(memory));
    if (threadIdx.x == 128) {
        memory.plan().odd_keys = odd_keys;
        mbarrier_arrive(memory.checked());
    }
}

enum item_end { WRITTEN, ODD_KEYS, ODD_SUMS };

/* The main loop and what follows it. Returns whether dk and dv have been written; if not, K is not finite and nothing
 * has been added to dq, or dk or dv are not. */
template <class S>
__device__ __forceinline__ item_end consume_queries(const folded_backward &args, const backward_memory<S> &memory,
                                                    const product_place &at) {
    item_plan &plan = memory.plan();
    gpu_score<float> score = {(float)args.problem.scale};
    pairs_place pairs = {at.lane % 4 * 2, plan.item.block * S::KEYS + at.key0 + at.warp * 16 + at.lane / 4};
    key_sums<S> sum = {};
    pair_columns<S> s, dp;
    uint32_t k = memory.k() + at.key0 * PANEL_ROW_BYTES, v = memory.v() + at.key0 * PANEL_ROW_BYTES;
    start_pairs<S, S::WIDTH>(s, k, memory.q(0));
    if constexpr (!S::BOXES) check_keys<S>(memory);
    mbarrier_wait(memory.values_full(), 0);
    pair_look look = plan.look[0];
    if (look != LOOK_AT_NOTHING) mbarrier_wait(memory.planned(0), 0);
    float dq[8][4];
    int j = 0;
    do { /* step j, whose S is under way, is the first, or its scores have to be looked at */
        const query_plan &step = plan.queries[j % QUERY_PLANS];
        products_wait<0>();
        keep_registers(s);
        begin_dp<S>(dp, memory.minus_delta(j % 2), pairs);
        start_pairs<S, S::WIDTH, true>(dp, v, memory.dout(j % 2));
        if (look == LOOK_AT_SCORES)
            make_p_of_scores<S>(s, memory.lse(j % 2), score, args.fold, step, pairs);
        else
            make_p<S>(s, memory.lse(j % 2), score, pairs);
        products_wait<0>();
        keep_registers(dp);
        if (look == LOOK_AT_PLACES) mask_pairs<S>(s, step, pairs);
        if (look != LOOK_AT_NOTHING) leave_pairs_out<S>(s, dp);
        if (j == 0) {
            mbarrier_wait(memory.checked(), 0);
            if (plan.odd_keys) return ODD_KEYS;
            if (at.group == 1) named_barrier_arrive(ORDER_BARRIER, 256);
        }
#pragma unroll 1
        for (;;) { /* nothing is under way here: the compiler would put products one after the other */
            int stage = j % 2;
            pair_fragments<S> p, ds;
            make_ds<S>(s, dp);
            pack_pairs<S>(p, s);
            pack_pairs<S>(ds, dp);
            mbarrier_wait(memory.ds_empty(stage), ((j >> 1) - 1) & 1);
            store_fragments<S>(memory.ds(stage), ds, at.key0 + at.warp * 16);
            named_barrier(ORDER_BARRIER + at.group, 256);
            start_sums<S>(sum.dv, p, memory.dout(stage));
            start_sums<S>(sum.dk, ds, memory.q(stage));
            shared_writes_to_products(); /* of dS, which takes long: products are under way meanwhile */
            leave(memory.ds_full(stage), at.lane);
            start_dq_of<S>(dq, memory, at, j - 1); /* of nothing, in the first step */
            products_wait<1>();
            leave(memory.empty(stage), at.lane);
            mbarrier_wait(memory.full(stage ^ 1), (j + 1) / 2 % 2);
            look = plan.look[stage ^ 1];
            start_pairs<S, S::WIDTH>(s, k, memory.q(stage ^ 1)); /* of nothing, behind the last step */
            named_barrier_arrive(ORDER_BARRIER + (at.group ^ 1), 256);
            products_wait<1>();
            keep_registers(dq);
            if (j) give_dq<S>(memory, j - 1, dq, at, args.fold.dq_left);
            j++;
            if (look >= LOOK_AT_SCORES) break; /* one way out, and not two: then what follows stays in its place */
            products_wait<0>();
            keep_registers(s);
            begin_dp<S>(dp, memory.minus_delta(stage ^ 1), pairs);
            start_pairs<S, S::WIDTH, true>(dp, v, memory.dout(stage ^ 1));
            make_p<S>(s, memory.lse(stage ^ 1), score, pairs);
            products_wait<0>();
            keep_registers(dp);
            if (look == LOOK_AT_PLACES) {
                mask_pairs<S>(s, plan.queries[j % QUERY_PLANS], pairs);
                leave_pairs_out<S>(s, dp);
            }
        }
    } while (look != LOOK_NO_MORE);
    products_wait<0>();
    keep_registers(s);
    keep_registers(sum.dk);
    keep_registers(sum.dv);
    j--; /* the last step */
    start_dq_of<S>(dq, memory, at, j);
    products_wait<0>();
    keep_registers(dq);
    give_dq<S>(memory, j, dq, at, args.fold.dq_left);
    int count = plan.outputs.count, first = plan.item.block * S::KEYS + at.key0 + at.warp * WARP_ROWS;
    if (consumers_any(sums_are_odd(sum.dk, first + at.lane / 4, count) |
                      sums_are_odd(sum.dv, first + at.lane / 4, count)))
        return ODD_SUMS;
    key_output dv = {plan.outputs.dv, first, count, args.problem.dim_v, args.overwrite};
    key_output dk = {plan.outputs.dk, first, count, args.problem.dim, args.overwrite};
    uint32_t dv_at = key_row_at<S>(memory, SUM_OF_DV, at.key0 + at.warp * WARP_ROWS);
    uint32_t dk_at = key_row_at<S>(memory, SUM_OF_DK, at.key0 + at.warp * WARP_ROWS);
    if (args.finish) {
        put_rounded_rows<S>(dv_at, sum.dv, args.fold.dv_left, at.lane);
        put_rounded_rows<S>(dk_at, sum.dk, args.fold.dq_left, at.lane);
    } else {
        put_or_add_key_rows<S>(dv, dv_at, sum.dv, args.fold.dv_left, at.lane);
        __syncwarp(); /* registers are short: one after the other */
        put_or_add_key_rows<S>(dk, dk_at, sum.dk, args.fold.dq_left, at.lane);
    }
    shared_writes_to_products();
    __syncwarp();
    dq_is_read<S>(memory, j);
    if (args.finish) {
        send_rounded_rows<S>(dv, dv_at, at.lane);
        send_rounded_rows<S>(dk, dk_at, at.lane);
    } else {
        if (rows_are_sent(dv)) send_key_rows<S>(dv, dv_at, at.lane);
        if (rows_are_sent(dk)) send_key_rows<S>(dk, dk_at, at.lane);
    }
    key_rows_sent();
    return WRITTEN;
}

/* What the warpgroups do that multiply. */
template <class S>
__device__ __forceinline__ void consume(const folded_backward &args, const backward_memory<S> &memory,
                                        const product_place &at) {
    item_plan &plan = memory.plan();
    find_outputs<typename S::T>(args, plan);
    mbarrier_wait(memory.full(0), 0);
    bool idle = !plan.begun && plan.queries[0].block < 0;
    mbarrier_wait(memory.keys_full(), 0);
    if (idle) {
        if constexpr (!S::BOXES) check_keys<S>(memory);
        mbarrier_wait(memory.values_full(), 0);
        return;
    }
    item_end end = consume_queries<S>(args, memory, at);
    if (end == WRITTEN && args.finish && !(plan.outputs.dk.aligned && plan.outputs.dv.aligned))
        write_apart<S>(args, memory, at.key0 + at.warp * WARP_ROWS, at.lane);
    if (end == WRITTEN) return;
    if (end == ODD_KEYS) mbarrier_wait(memory.full(1), 0);
    slow_item<S>(args, memory, end == ODD_KEYS);
}

/* What the warps do that do not multiply: backward_layout.cuh has a table of their roles. */
template <class S>
__device__ __forceinline__ void serve(const folded_backward &args, const tensor_maps *maps,
                                      const backward_memory<S> &memory, int warp, int lane) {
    if constexpr (S::BOXES) {
        if (warp == 0)
            produce_queries<S>(args, *maps, memory, lane);
        else if (warp == 1 && lane == 0)
            plan_queries<S>(args, memory);
        else if (warp >= 2)
            look_through_keys<S>(memory, warp - 2, lane);
        __syncwarp();
        if (warp >= 2 && elected()) add_queries<S>(args, *maps, memory, warp - 2);
    } else {
        if (warp < 2)
            produce_query_rows<S>(args, memory, warp * 32 + lane);
        else if (warp == 2 && lane == 0)
            plan_queries<S>(args, memory);
        else if (warp == 3)
            add_query_rows<S>(args, memory, lane);
    }
}

/* By one thread: takes an item, and asks for its keys and first queries before anything else is looked up. The barriers
 * are made while the number is on its way. */
template <class S>
__device__ __forceinline__ void begin_item(const gpu_backward &args, const tensor_maps *maps,
                                           const backward_memory<S> &memory) {
    unsigned number = atomicAdd(args.ticket, 1u);
    make_barriers<S>(memory);
    const gpu_item entry = args.items[number / (unsigned)args.problem.per_entry];
    item_place item = item_at(args, entry, number);
    memory.plan().begun = false;
    if constexpr (S::BOXES) {
        copy_keys<S>(*maps, memory, entry, item, entry.k_row);
        begin_first<S>(*maps, memory, entry.queries, (int)(number % (unsigned)args.heads), item.b);
        copy_values<S>(*maps, memory, entry, item, entry.k_row);
    }
    memory.plan().item = item;
    memory.plan().odd_keys = false;
}

/* maps: where tiles come by boxes. */
template <class S> __device__ __forceinline__ void backward_item(const folded_backward &args, const tensor_maps *maps) {
    extern __shared__ __align__(1024) unsigned char shared[];
    backward_memory<S> memory = {shared, shared_address(shared)};
    int thread = (int)threadIdx.x, warp = __shfl_sync(~0u, thread / 32, 0);
    let_next_launch_begin(); /* whose CTAs wait for turns of items that have been taken */
    if (warp == 0 && elected())
        begin_item<S>(args, maps, memory);
    else if (warp == 1)
        look_ahead(args, maps, blockIdx.x, thread % 32);
    __syncthreads();
    if (warp < 4) {
        registers_fewer<S::OTHER_REGISTERS>();
        serve<S>(args, maps, memory, warp, thread % 32);
    } else {
        registers_more<S::CONSUMER_REGISTERS>();
        int group = warp / 4 - 1;
        product_place at = {group, warp % 4, thread % 32, group * 64};
        consume<S>(args, memory, at);
    }
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1)
    backward_by_boxes(const __grid_constant__ folded_backward args, const __grid_constant__ tensor_maps maps) {
    backward_item<S>(args, &maps);
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1) backward_by_rows(const __grid_constant__ folded_backward args) {
    backward_item<S>(args, NULL);
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

/* Whether the only launch may write every row of dk and dv, which then can be the outputs: of the rank's own part, or
 * of parts that come with every call. */
static inline bool has_whole_sums(const ra_shape *shape, ra_dtype dtype, const gpu_lists &lists) {
    return (lists.parts.empty() || parts_come_with_calls(lists.parts)) && lists.launches.size() == 1 &&
           shape->weight == 1 && shape->out_dtype == dtype && shape->dim % ROUNDED_TOGETHER == 0 &&
           shape->dim_v % ROUNDED_TOGETHER == 0;
}

/* The kernels of a type and width: by boxes where the views have tensor maps, row by row where not. NARROW: a width for
 * which there is a kernel of its own, by boxes; or DIM. */
template <class T, int DIM, int NARROW> struct backward_wgmma {
    using boxes = backward_wgmma_shape<T, DIM, DIM, true>;
    using narrow = backward_wgmma_shape<T, DIM, NARROW, true>;
    using rows = backward_wgmma_shape<T, DIM, DIM, false>;

    static cudaError_t allow(void) {
        cudaError_t error = allow_shared_memory(backward_by_rows<rows>, rows::BYTES);
        if (!error) error = allow_shared_memory(backward_by_boxes<boxes>, boxes::BYTES);
        return error ? error : allow_shared_memory(backward_by_boxes<narrow>, narrow::BYTES);
    }
    static void launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
        tensor_maps maps;
        folded_backward folded = fold_scale<T>(*args);
        int width = std::max(args->problem.dim, args->problem.dim_v);
        if (!tensor_maps_backward(args, dtype_of<T>, boxes::ROWS, &maps))
            backward_by_rows<rows><<<count, rows::THREADS, rows::BYTES, stream>>>(folded);
        else if (width <= NARROW)
            backward_by_boxes<narrow><<<count, narrow::THREADS, narrow::BYTES, stream>>>(folded, maps);
        else
            backward_by_boxes<boxes><<<count, boxes::THREADS, boxes::BYTES, stream>>>(folded, maps);
    }
    static void list_maps(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts, gpu_lists *lists) {
        (void)tiles;
        tensor_maps_list(shape, parts, boxes::KEYS, lists);
        gpu_list_key_boxes(boxes::KEYS, lists);
        gpu_list_first_queries(shape, boxes::ROWS, boxes::KEYS, lists);
        gpu_list_turn_groups(boxes::ROWS, boxes::TURNS_TOGETHER, lists);
        gpu_list_first_turns(boxes::ROWS, lists);
        lists->maps.finishes = has_whole_sums(shape, dtype_of<T>, *lists);
        if (lists->maps.finishes) gpu_list_query_blocks(boxes::ROWS, boxes::KEYS, boxes::TURNS_TOGETHER, lists);
    }
    static constexpr gpu_backward_variant variant(void) {
        return {boxes::ROWS, boxes::KEYS, boxes::BYTES, allow, launch, NULL, list_maps};
    }
};

#endif
