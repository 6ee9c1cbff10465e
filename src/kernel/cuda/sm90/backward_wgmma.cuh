/* Backward for 16-bit elements on Hopper: a block of 128 keys stays, with its dK and dV in registers, while the blocks
 * of queries that see it pass by, the last one first.
 *
 *   S^T = K Q^T   P^T = e^{S^T - lse}   dP^T = V dO^T   dS^T = P^T (dP^T - delta)
 *   dV += P^T dO   dK += dS^T Q   dQ += dS K
 *
 * Roles: one lane plans, two warps load, one warp adds dQ to device memory, and two warpgroups multiply, 64 keys each.
 * P^T and dS^T are products' accumulators and, packed, their operands; only dQ, whose sum is over all keys, needs dS^T
 * from both warpgroups, through shared memory. Each then has half of dQ: half of its columns (DIM 128) or of its rows
 * (DIM 64).
 *
 * S of the next step is issued behind dQ of this one, and is multiplied while dQ is put into shared memory; dP is while
 * P is made:
 *
 *   products    dV dK dQ  S'  dP'       dV' dK' ...
 *   others    dS            dQ out  P'  dS'
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_WGMMA_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_WGMMA_CUH

#include "kernel/cuda/sm90/backward_add.cuh"
#include "kernel/cuda/sm90/backward_load.cuh"
#include "kernel/cuda/sm90/backward_plan.cuh"
#include "kernel/cuda/sm90/backward_wild.cuh"

template <class S> struct key_sums { float dk[S::DIM / 8][4], dv[S::DIM / 8][4]; };

/* Where a warp stands among those that multiply. */
struct product_place {
    int group, warp, lane; /* warp: of the warpgroup */
    int key0;              /* of the warpgroup */
};

/* ---- products -------------------------------------------------------------------------------------------------------
 */

/* x [64 keys, ROWS] = keys [64, DIM] . queries [ROWS, DIM]^T. */
template <class S>
__device__ __forceinline__ void multiply_pairs(pair_columns<S> &x, const unsigned char *keys, int key0,
                                               const unsigned char *queries) {
    uint32_t a = shared_address(keys), b = shared_address(queries);
    products_begin();
#pragma unroll
    for (int k = 0; k < S::DIM / 16; k++)
        wgmma<typename S::T, S::ROWS>::template shared<false, false>(x, along_rows<S::KEYS>(a, key0, k),
                                                                     along_rows<S::ROWS>(b, 0, k), k == 0);
    products_commit();
}

/* sum [64 keys, DIM] += x [64, ROWS] . queries [ROWS, DIM]; where wild, of zeros. */
template <class S>
__device__ __forceinline__ void add_pairs(float (&sum)[S::DIM / 8][4], const pair_fragments<S> &x,
                                          const unsigned char *queries, const unsigned char *zeros, bool wild) {
    uint64_t b = wild ? tile_descriptor(shared_address(zeros), 0) : across_rows<S::ROWS>(shared_address(queries), 0, 0);
    uint64_t step = wild ? 0 : 16 * PANEL_ROW_BYTES >> 4;
#pragma unroll
    for (int k = 0; k < S::ROWS / 16; k++)
        wgmma<typename S::T, S::DIM>::template registers<true>(sum, x[k], b + k * step, false);
}

/* Rows and columns of dQ that a warpgroup has. */
template <class S> __device__ __forceinline__ int dq_row0(int group) {
    return S::DIM == 64 ? group * 64 : 0;
}

template <class S> __device__ __forceinline__ int dq_column0(int group) {
    return S::DIM == 64 ? 0 : group * 64;
}

/* dq [64 queries, 64] = dS [64, KEYS] . K [KEYS, 64]. */
template <class S>
__device__ __forceinline__ void multiply_dq(float (&dq)[8][4], const unsigned char *ds, const unsigned char *keys,
                                            int group) {
    uint32_t a = shared_address(ds), b = shared_address(keys);
    products_begin();
#pragma unroll
    for (int k = 0; k < S::KEYS / 16; k++)
        wgmma<typename S::T, 64>::template shared<true, true>(dq, across_rows<S::KEYS>(a, dq_row0<S>(group), k),
                                                              across_rows<S::KEYS>(b, dq_column0<S>(group), k), k == 0);
    products_commit();
}

/* ---- epilogues ------------------------------------------------------------------------------------------------------
 */

template <class S>
__device__ __forceinline__ void put_dq(const backward_room<S> &room, const float (&dq)[8][4], const product_place &at,
                                       float scale) {
    int row = dq_row0<S>(at.group) + at.warp * 16 + at.lane / 4, column = dq_column0<S>(at.group) + at.lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float *to = (float *)(room.dq() + (row + r * 8) * S::DQ_PITCH) + column;
#pragma unroll
        for (int n = 0; n < 8; n++)
            *(float2 *)(to + n * 8) = make_float2(scale * dq[n][r * 2], scale * dq[n][r * 2 + 1]);
    }
}

/* Rows [first, first + 16) of `to` += by * x, or, fresh, = that; a thread has what it has of an accumulator. All of a
 * row is asked for before any of it is written: one after the other, each would wait for the one before. */
template <class S>
__device__ __forceinline__ void add_to_rows(const row_source &to, int first, int limit, int width,
                                            const float (&x)[S::DIM / 8][4], float by, bool fresh, int lane) {
    bool pairs = to.aligned && width % 2 == 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = first + r * 8 + lane / 4, d0 = lane % 4 * 2;
        if (row >= limit) continue;
        float *at = (float *)(to.base + row_offset<float>(to, row));
        float2 old[S::DIM / 8] = {};
        if (pairs && !fresh) {
#pragma unroll
            for (int n = 0; n < S::DIM / 8; n++)
                if (n * 8 + d0 < width) old[n] = __ldcg((const float2 *)(at + n * 8 + d0));
        } else if (!fresh) {
#pragma unroll
            for (int n = 0; n < S::DIM / 8; n++) {
                int d = n * 8 + d0;
                if (d < width) old[n].x = __ldcg(at + d * to.dim);
                if (d + 1 < width) old[n].y = __ldcg(at + (d + 1) * to.dim);
            }
        }
#pragma unroll
        for (int n = 0; n < S::DIM / 8; n++) {
            old[n].x += by * x[n][r * 2];
            old[n].y += by * x[n][r * 2 + 1];
        }
        if (pairs) {
#pragma unroll
            for (int n = 0; n < S::DIM / 8; n++)
                if (n * 8 + d0 < width) __stcg((float2 *)(at + n * 8 + d0), old[n]);
        } else {
#pragma unroll
            for (int n = 0; n < S::DIM / 8; n++) {
                int d = n * 8 + d0;
                if (d < width) __stcg(at + d * to.dim, old[n].x);
                if (d + 1 < width) __stcg(at + (d + 1) * to.dim, old[n].y);
            }
        }
    }
}

/* The rows of the item's keys in dk or dv; they are nobody else's in this launch. */
template <ra_view ra_kv_rows::*WHICH>
__device__ __forceinline__ row_source key_rows(const gpu_backward &args, const item_place &item) {
    const gpu_tile &t = args.problem.tiles[args.by_key[item.first]];
    const ra_kv_rows &part = part_of(args.problem, t.part);
    int64_t g = (item.g - part.heads.first) / part.heads.stride;
    return source_of<float>(part.*WHICH, item.b, g, t.k_first, t.k_stride, t.k_index);
}

__device__ __forceinline__ int key_count(const gpu_backward &args, const item_place &item) {
    return args.problem.tiles[args.by_key[item.first]].k_count;
}

/* ---- main loop ------------------------------------------------------------------------------------------------------
 */

/* dV and dK of a wild step; its P and dS become 0. */
template <class S>
__device__ __forceinline__ void add_wild_pairs(const gpu_backward &args, const backward_room<S> &room, int stage,
                                               pair_fragments<S> &p, pair_fragments<S> &ds, const product_place &at,
                                               bool fresh) {
    const item_place &item = room.plan().item;
    int count = key_count(args, item);
    int first = item.block * S::KEYS + at.key0 + at.warp * 16;
    add_those_seen<S>(key_rows<&ra_kv_rows::dv>(args, item), first, count, args.problem.dim_v, p, room.dout(stage), 1,
                      fresh);
    add_those_seen<S>(key_rows<&ra_kv_rows::dk>(args, item), first, count, args.problem.dim, ds, room.q(stage),
                      (float)args.problem.scale, fresh);
#pragma unroll
    for (int k = 0; k < S::ROWS / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) p[k][i] = ds[k][i] = 0;
}

template <class S>
__device__ __forceinline__ pairs_place pairs_of(const backward_room<S> &room, const product_place &at) {
    return {at.lane % 4 * 2, room.plan().item.block * S::KEYS + at.key0 + at.warp * 16 + at.lane / 4};
}

/* How a step's pairs are made, in this warp. */
struct pairs_kind {
    bool masked;
    bool wild; /* scores of this thread are not finite: Q or K have an infinity or a NaN, which times 0 would spread */
};

/* S is under way. s becomes P while dP is multiplied; then that has come too. */
template <class S>
__device__ __forceinline__ pairs_kind make_p_and_dp(const backward_room<S> &room, int stage, pair_columns<S> &s,
                                                    pair_columns<S> &dp, const product_place &at, float scale) {
    const backward_step &step = room.plan().steps[stage];
    pairs_place pairs = pairs_of<S>(room, at);
    pairs_kind kind = {false, false};
    products_wait<0>();
    keep_registers(s);
    multiply_pairs<S>(dp, room.v(), at.key0, room.dout(stage));
    kind.wild = some_are_not_finite<S>(s);
    kind.masked = __any_sync(~0u, !step.full || kind.wild || lse_are_odd<S>(room.lse(stage), pairs));
    if (kind.masked)
        make_p_masked<S>(s, room.lse(stage), {scale}, step, pairs);
    else
        make_p<S>(s, room.lse(stage), {scale}, pairs);
    products_wait<0>();
    keep_registers(dp);
    return kind;
}

/* p and ds, packed, from P in s and from dP. Returns whether this thread met scores or dP that are not finite beside
 * pairs that may take no part. */
template <class S>
__device__ __forceinline__ bool make_pairs(const backward_room<S> &room, int stage, const pair_columns<S> &s,
                                           pair_columns<S> &dp, pair_fragments<S> &p, pair_fragments<S> &ds,
                                           const product_place &at, pairs_kind kind) {
    pairs_place pairs = pairs_of<S>(room, at);
    if (kind.masked) {
        kind.wild |= some_are_not_finite<S>(dp);
        make_ds_masked<S>(s, dp, room.delta(stage), pairs);
    } else {
        make_ds<S>(s, dp, room.delta(stage), pairs);
    }
    pack_pairs<S>(p, s);
    pack_pairs<S>(ds, dp);
    return kind.wild;
}

template <class S>
__device__ __forceinline__ void multiply_item(const gpu_backward &args, const backward_room<S> &room,
                                              const product_place &at) {
    const backward_plan &plan = room.plan();
    float scale = (float)args.problem.scale;
    bool fresh = args.fresh; /* nothing has been written to dk and dv */
    key_sums<S> sum = {};
    pair_columns<S> s, dp;
    gate_wait(room.full(0), 0);
    if (plan.steps[0].a0 < 0) return;
    multiply_pairs<S>(s, room.k(), at.key0, room.q(0));
    pairs_kind kind = make_p_and_dp<S>(room, 0, s, dp, at, scale);
#pragma unroll 1
    for (int j = 0;; j++) {
        int stage = j % 2;
        unsigned char *ds_tile = room.ds(stage);
        pair_fragments<S> p, ds;
        bool wild = make_pairs<S>(room, stage, s, dp, p, ds, at, kind);
        store_pairs<S>(ds_tile, ds, at.key0 + at.warp * 16);
        shared_writes_to_products();
        bool group_wild = barrier_any(GROUP_BARRIER + at.group, 128, wild);
        if (group_wild) {
            add_wild_pairs<S>(args, room, stage, p, ds, at, fresh);
            fresh = false;
        }
        products_begin();
        add_pairs<S>(sum.dv, p, room.dout(stage), room.zeros(), group_wild);
        add_pairs<S>(sum.dk, ds, room.q(stage), room.zeros(), group_wild);
        products_commit();
        wild = barrier_any(PRODUCTS_BARRIER, 256, wild);
        float dq[8][4];
        multiply_dq<S>(dq, ds_tile, room.k(), at.group);
        products_wait<1>();
        __syncwarp();
        if (at.lane == 0) gate_arrive(room.empty(stage));
        gate_wait(room.full(stage ^ 1), (j + 1) / 2 % 2);
        bool more = plan.steps[stage ^ 1].a0 >= 0;
        multiply_pairs<S>(s, room.k(), at.key0, room.q(stage ^ 1)); /* of nothing, behind the last step */
        products_wait<1>();
        keep_registers(dq);
        if (j) gate_wait(room.dq_empty(), (j - 1) % 2);
        if (wild)
            query_gradient_of_those_seen<S>(room, ds_tile, dq_row0<S>(at.group) + at.warp * 16, dq_column0<S>(at.group),
                                            scale);
        else
            put_dq<S>(room, dq, at, scale);
        shared_writes_to_products();
        gate_arrive(room.dq_full());
        if (!more) break;
        kind = make_p_and_dp<S>(room, stage ^ 1, s, dp, at, scale);
    }
    products_wait<0>();
    keep_registers(s);
    keep_registers(sum.dk);
    keep_registers(sum.dv);
    int count = key_count(args, plan.item);
    int first = plan.item.block * S::KEYS + at.key0 + at.warp * 16;
    add_to_rows<S>(key_rows<&ra_kv_rows::dv>(args, plan.item), first, count, args.problem.dim_v, sum.dv, 1, fresh,
                   at.lane);
    __syncwarp(); /* registers are short: one after the other */
    add_to_rows<S>(key_rows<&ra_kv_rows::dk>(args, plan.item), first, count, args.problem.dim, sum.dk, scale, fresh,
                   at.lane);
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1) backward_wgmma(const __grid_constant__ gpu_backward args) {
    extern __shared__ __align__(1024) unsigned char shared[];
    backward_room<S> room = {shared};
    int thread = (int)threadIdx.x, warp = __shfl_sync(~0u, thread / 32, 0);
    if (thread == 0) {
        room.plan().item = item_at(args, atomicAdd(args.ticket, 1u));
        open_gates<S>(room);
    }
    if (thread < S::ZERO_BYTES / 16) ((uint4 *)room.zeros())[thread] = make_uint4(0, 0, 0, 0);
    shared_writes_to_products();
    __syncthreads();
    if (warp < 4) {
        registers_fewer<S::LOADER_REGISTERS>();
        if (warp < S::LOADERS / 32)
            load_item<S>(args, room, thread);
        else if (warp == S::LOADERS / 32)
            add_item<S>(args, room, thread % 32);
        else if (thread % 32 == 0)
            plan_item<S>(args, room);
    } else {
        registers_more<S::PRODUCT_REGISTERS>();
        int group = warp / 4 - 1;
        multiply_item<S>(args, room, {group, warp % 4, thread % 32, group * 64});
    }
}

template <class S> cudaError_t backward_wgmma_allow(void) {
    return cudaFuncSetAttribute(backward_wgmma<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
}

template <class S> void backward_wgmma_launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
    backward_wgmma<S><<<count, S::THREADS, S::BYTES, stream>>>(*args);
}

#endif
