/* Who brings the backward kernel's operands and takes its dQ away: the planner, the producer and the adders.
 * Here tiles are boxes; those that come row by row: backward_row_producer.cuh. */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_PRODUCER_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_PRODUCER_CUH

#include "kernel/cuda/sm90/backward_layout.cuh"
#include "kernel/cuda/sm90/backward_score.cuh"
#include "kernel/cuda/sm90/gather_nonfinite.cuh"

/* ---- before all ------------------------------------------------------------------------------------------------ */

/* By a warp, while the item's number is on its way: what is needed next is brought nearer. Numbers are mostly taken in
 * the order of the CTAs, so the entry of `guess`, the CTA's own number, is in the item's line more often than not; and
 * of the tensor maps most launches have but the first ones. maps: NULL: none. */
static __device__ __forceinline__ void look_ahead(const gpu_backward &args, const tensor_maps *maps, unsigned guess,
                                                  int lane) {
    if (lane == 0)
        asm volatile("prefetch.global.L1 [%0];\n" ::"l"(&args.items[guess / (unsigned)args.problem.per_entry]));
    if (!maps || lane < 1 || lane > 5) return;
    const CUtensorMap *map = lane < 4 ? &maps->map[lane - 1] : key_map(*maps, 0) + (lane - 4);
    asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

/* ---- planner ----------------------------------------------------------------------------------------------------- */

/* The next block of queries, in another order than that of query_cursor: a block of all heads, then the next block. So
 * the items of a key/value head come to a block of queries one behind the other, however many heads share the keys.
 * Head by head, an item with fewer blocks would wait at each head for those with more, in whose turns it adds to dQ. */
struct heads_cursor : query_cursor {
    int head0; /* the first head */
};

template <int ROWS, int KEYS>
__device__ __forceinline__ heads_cursor first_heads(const gpu_backward &args, const item_place &item, int at) {
    heads_cursor c = {first_queries<ROWS, KEYS>(args, item, at), 0};
    c.head0 = c.head;
    return c;
}

template <int ROWS, int KEYS>
__device__ __forceinline__ heads_cursor next_heads(const gpu_backward &args, const item_place &item, heads_cursor c) {
    if (++c.head < c.heads) return c;
    c.head = c.head0;
    return --c.block >= c.last ? c : first_heads<ROWS, KEYS>(args, item, c.at + 1);
}

/* What the item does next, as c says. */
template <class S>
__device__ __forceinline__ void plan_block(const gpu_backward &args, const item_place &item, const query_cursor &c,
                                           query_plan *to) {
    const gpu_problem &p = args.problem;
    const gpu_tile &t = p.tiles[c.at];
    int blocks = (t.q_count + S::ROWS - 1) / S::ROWS, a0 = c.block * S::ROWS;
    to->a0 = a0;
    to->count = t.q_count;
    to->lo = t.lo;
    to->hi = t.hi;
    to->keys = t.k_count;
    to->log2_times = t.log2_times;
    to->set = t.q_set;
    to->row = t.q_at + a0;
    to->head = t.head_first + c.head * t.head_stride;
    to->turn = item.block - max(0, a0 + t.lo) / S::KEYS;
    to->queued = args.turns + t.order + c.block;
    to->chain = args.chains + t.chain + ((int64_t)item.b * t.head_count + c.head) * blocks + c.block;
    to->queries = t.queries;
    to->first = t.q_first + a0 * t.q_stride;
    to->each = t.q_stride;
}

template <class T>
__device__ __forceinline__ void plan_rows(const gpu_backward &args, int batch, int tile, const query_plan &step,
                                          query_rows *to) {
    const gpu_tile &t = args.problem.tiles[tile];
    const ra_query_rows &rows = query_rows_of(args, t);
    to->q = source_of<T>(rows.q, batch, step.head, step.first, step.each, NULL);
    to->dout = source_of<T>(rows.dout, batch, step.head, step.first, step.each, NULL);
    to->dq = source_of<float>(rows.dq, batch, step.head, step.first, step.each, NULL);
}

/* A few steps ahead, so that nobody waits for what it looks up; behind the last, one that is none for each adder. By
 * one lane. */
template <class S>
__device__ __forceinline__ void plan_queries(const gpu_backward &args, const backward_memory<S> &memory) {
    item_plan &plan = memory.plan();
    const item_place &item = plan.item;
    heads_cursor c = first_heads<S::ROWS, S::KEYS>(args, item, item.first);
#pragma unroll 1
    for (int j = 0, ended = 0; ended < S::ENDS; j++) {
        query_plan &to = plan.queries[j % QUERY_PLANS];
        bool there = c.at < item.first + item.count;
        if (j >= QUERY_PLANS) {
            mbarrier_wait(memory.checked(), 0);
            if (plan.odd_keys) return;
            mbarrier_wait(memory.done(j), (j / QUERY_PLANS - 1) % 2);
        }
        to.block = there ? c.block : -1;
        if (there) plan_block<S>(args, item, c, &to);
        if (there && !S::BOXES) plan_rows<typename S::T>(args, item.b, c.at, to, &memory.rows_of(j));
        mbarrier_arrive(memory.planned(j));
        if (there)
            c = next_heads<S::ROWS, S::KEYS>(args, item, c);
        else
            ended++;
    }
}

/* ---- producer ---------------------------------------------------------------------------------------------------- */

/* The block of keys from row `row` of the item's map on, by one thread: as soon as the item is known, since all others
 * wait for them. Its entry in the list says where they are. */
template <class S>
__device__ __forceinline__ void copy_keys(const tensor_maps &maps, const backward_memory<S> &memory,
                                          const gpu_item &entry, const item_place &item, int row) {
    mbarrier_arrive_expecting(memory.keys_full(), S::KEY_TILE);
    copy_tile<S::DIM, S::KEYS>(memory.k(), key_map(maps, entry.k_set.map), entry.k_set.remainder, row, item.head,
                               item.b, memory.keys_full());
}

/* And its values. */
template <class S>
__device__ __forceinline__ void copy_values(const tensor_maps &maps, const backward_memory<S> &memory,
                                            const gpu_item &entry, const item_place &item, int row) {
    mbarrier_arrive_expecting(memory.values_full(), S::KEY_TILE);
    copy_tile<S::DIM, S::KEYS>(memory.v(), key_map(maps, entry.k_set.map) + 1, entry.k_set.remainder, row, item.head,
                               item.b, memory.values_full());
}

/* The maps of Q, dO and dQ of some queries. */
__device__ __forceinline__ const CUtensorMap *query_maps(const tensor_maps &maps, const gpu_row_set &set) {
    return &maps.map[3 * set.map];
}

/* Q and dO of a step, from row `row` of a set on, by one thread. */
template <class S>
__device__ __forceinline__ void copy_queries(const tensor_maps &maps, const backward_memory<S> &memory, int stage,
                                             gpu_row_set set, int row, int head, int batch) {
    const CUtensorMap *map = query_maps(maps, set);
    mbarrier_expect(memory.full(stage), 2 * S::QUERY_TILE);
    copy_tile<S::DIM, S::ROWS>(memory.q(stage), map, set.remainder, row, head, batch, memory.full(stage));
    copy_tile<S::DIM, S::ROWS>(memory.dout(stage), map + 1, set.remainder, row, head, batch, memory.full(stage));
}

/* The first step of the item, which is head number i of the entry: asked for, if the entry says where it is. */
template <class S>
__device__ __forceinline__ void begin_first(const tensor_maps &maps, const backward_memory<S> &memory,
                                            const gpu_first_queries &entry, int i, int batch) {
    int head = entry.head + i * entry.head_step;
    if (entry.count) copy_queries<S>(maps, memory, 0, set_of(entry), entry.row, head, batch);
    memory.first_sums() = {entry.first, entry.stride, entry.queries, head, entry.count, entry.full};
    memory.plan().begun = entry.count > 0;
}

/* Whether all pairs of the block are visible. */
template <class S> __device__ __forceinline__ bool all_is_seen(const query_plan &plan, int b0) {
    return plan.a0 + S::ROWS <= plan.count && b0 + S::KEYS <= plan.keys &&
           block_is_full(plan.lo, plan.hi, plan.a0, plan.a0 + S::ROWS, b0, b0 + S::KEYS);
}

/* lse and delta of a lane's rows, lane, lane + 32 ... Those of rows beyond the tile's are not there. */
template <int EACH> struct sums_read { float lse[EACH], delta[EACH]; };

template <class S>
__device__ __forceinline__ void read_sums(const gpu_backward &args, int batch, const sums_place &at, int lane,
                                          sums_read<S::ROWS / 32> &sums) {
    /* One by one: those of one rank are parameters of the kernel, and not looked up in memory. */
    bool own = !args.queries;
    const float *lse = (const float *)(own ? args.own.lse : args.queries[at.queries].lse);
    const float *delta = (const float *)(own ? args.own.delta : args.queries[at.queries].delta);
    int64_t rows = own ? args.own.rows : args.queries[at.queries].rows;
    int64_t first = ((int64_t)batch * args.problem.heads_q + at.head) * rows + at.first;
#pragma unroll
    for (int i = 0; i < S::ROWS / 32; i++) {
        int row = lane + i * 32;
        bool there = row < at.count;
        sums.lse[i] = there ? lse[first + row * at.each] : -INFINITY;
        sums.delta[i] = there ? delta[first + row * at.each] : 0;
    }
}

template <class S>
__device__ __forceinline__ void read_sums(const gpu_backward &args, int batch, const query_plan &step, int lane,
                                          sums_read<S::ROWS / 32> &sums) {
    read_sums<S>(args, batch, sums_place{step.first, step.each, step.queries, step.head, step.count - step.a0}, lane,
                 sums);
}

/* By a warp: lse and delta of a step's `count` rows as its consumers take them, and what those have to look at. full:
 * all of its pairs are visible. log2_times: of the tile. */
template <class S>
__device__ __forceinline__ void write_sums(const folded_backward &args, const backward_memory<S> &memory, bool full,
                                           float log2_times, int count, int stage, int lane,
                                           const sums_read<S::ROWS / 32> &sums) {
    item_plan &plan = memory.plan();
    bool odd = false; /* not finite, or large */
#pragma unroll
    for (int i = 0; i < S::ROWS / 32; i++) odd |= lane + i * 32 < count && is_large(sums.lse[i]);
    odd = __any_sync(~0u, odd);
#pragma unroll
    for (int i = 0; i < S::ROWS / 32; i++) {
        memory.lse(stage)[lane + i * 32] = odd ? sums.lse[i] : score_shift(args.fold, sums.lse[i]) + log2_times;
        memory.minus_delta(stage)[lane + i * 32] = -sums.delta[i];
    }
    if (lane == 0) plan.look[stage] = odd ? LOOK_AT_SCORES : full ? LOOK_AT_NOTHING : LOOK_AT_PLACES;
}

/* Of a step that has been planned. */
template <class S>
__device__ __forceinline__ void write_sums(const folded_backward &args, const backward_memory<S> &memory,
                                           const query_plan &step, int stage, int lane,
                                           const sums_read<S::ROWS / 32> &sums) {
    bool full = all_is_seen<S>(step, memory.plan().item.block * S::KEYS);
    write_sums<S>(args, memory, full, step.log2_times, step.count - step.a0, stage, lane, sums);
}

/* By each thread of the producers: there is no step behind the last. */
template <class S>
__device__ __forceinline__ void bring_no_more(const backward_memory<S> &memory, int stage, int thread) {
    if (thread == 0) memory.plan().look[stage] = LOOK_NO_MORE;
    mbarrier_arrive(memory.full(stage));
}

/* By a warp: what is left to bring of a first step whose Q and dO have been asked for, without waiting for its plan. */
template <class S>
__device__ __forceinline__ void produce_first(const folded_backward &args, const backward_memory<S> &memory, int lane) {
    sums_read<S::ROWS / 32> sums;
    const sums_place at = memory.first_sums();
    read_sums<S>(args, memory.plan().item.b, at, lane, sums);
    write_sums<S>(args, memory, at.full, 0, at.count, 0, lane, sums); /* of a tile that counts once */
    mbarrier_arrive(memory.full(0));
}

/* By a warp. The step behind the last brings nothing. */
template <class S>
__device__ __forceinline__ void produce_queries(const folded_backward &args, const tensor_maps &maps,
                                                const backward_memory<S> &memory, int lane) {
    item_plan &plan = memory.plan();
    bool begun = plan.begun;
    if (begun) produce_first<S>(args, memory, lane);
#pragma unroll 1
    for (int j = begun;; j++) {
        int stage = j % 2;
        const query_plan &step = plan.queries[j % QUERY_PLANS];
        sums_read<S::ROWS / 32> sums;
        mbarrier_wait(memory.planned(j), j / QUERY_PLANS % 2);
        bool there = step.block >= 0;
        if (there) read_sums<S>(args, plan.item.b, step, lane, sums);
        if (j >= 2) {
            mbarrier_wait(memory.checked(), 0);
            if (plan.odd_keys) return;
            mbarrier_wait(memory.empty(stage), (j / 2 - 1) % 2);
        }
        if (!there) {
            bring_no_more<S>(memory, stage, lane);
            return;
        }
        if (elected()) copy_queries<S>(maps, memory, stage, step.set, step.row, step.head, plan.item.b);
        write_sums<S>(args, memory, step, stage, lane, sums);
        mbarrier_arrive(memory.full(stage));
    }
}

/* ---- adders ------------------------------------------------------------------------------------------------------ */

/* By the adders' warps, which have nothing to add before the consumers' second step: whether K has infinities or NaNs.
 * The consumers ask before they keep anything that an odd K could spoil; what others do behind the second step waits
 * for it, and where K has some, no more copies are under way then. */
template <class S>
__device__ __forceinline__ void look_through_keys(const backward_memory<S> &memory, int adder, int lane) {
    constexpr int EACH = S::KEY_TILE / 16 / (32 * S::ADDERS), TOGETHER = 4;
    static_assert(EACH % TOGETHER == 0, "lanes have whole rounds");
    const uint4 *keys = (const uint4 *)memory.generic + adder * 32 * EACH + lane;
    uint32_t seen[4] = {};
    mbarrier_wait(memory.keys_full(), 0);
#pragma unroll 1
    for (int i = 0; i < EACH; i += TOGETHER) {
        uint4 x[TOGETHER];
#pragma unroll
        for (int n = 0; n < TOGETHER; n++) x[n] = keys[(i + n) * 32];
#pragma unroll
        for (int n = 0; n < TOGETHER; n++) {
            gather_nonfinite<typename S::T>(seen[0], x[n].x);
            gather_nonfinite<typename S::T>(seen[1], x[n].y);
            gather_nonfinite<typename S::T>(seen[2], x[n].z);
            gather_nonfinite<typename S::T>(seen[3], x[n].w);
        }
    }
    bool odd = __any_sync(~0u, some_were_nonfinite(seen[0] | seen[1] | seen[2] | seen[3]));
    if (lane) return;
    if (odd) memory.plan().odd_keys = true;
    mbarrier_arrive(memory.checked());
}

/* The turn of key block `block` at a step. */
template <class S> __device__ __forceinline__ int turn_of_step(const query_plan &step, int block) {
    int queued = *step.queued, turn = step.turn;
    if (turns_in_groups(queued))
        turn = turn_at_queries(block, step.a0, S::ROWS, S::KEYS, step.lo, step.hi, step.count, step.keys,
                               S::TURNS_TOGETHER);
    return turns_before(queued) + turn;
}

/* Whether a step's dQ is what its rows hold first: nobody has added to them, and they are a whole block. */
template <class S> __device__ __forceinline__ bool is_first(const gpu_backward &args, int turn, int a0, int count) {
    return turn == 0 && args.overwrite_queries && a0 + S::ROWS <= count;
}

/* dQ of a stage is given to the copy engine, which adds it to device memory, or writes it there if it is the first. */
template <class S>
__device__ __forceinline__ void add_dq(const backward_memory<S> &memory, const CUtensorMap *map, int stage,
                                       const query_plan &step, int batch, bool first) {
    int remainder = step.set.remainder, row = step.row, head = step.head; /* read once, not for each panel */
#pragma unroll
    for (int panel = 0; panel < S::WIDTH / 32; panel++)
        if (first)
            store_box(map, memory.dq(stage) + panel * S::DQ_PANEL, panel * 32, remainder, row, head, batch);
        else
            add_box(map, memory.dq(stage) + panel * S::DQ_PANEL, panel * 32, remainder, row, head, batch);
    bulk_commit();
}

/* One lane, for every second step, that is for one stage: adds when the step's turn has come (tile_cursor.cuh). It
 * waits for that while the step is still computed. The stage is free when the sums have been read, and the turn is over
 * when they are in memory: it is handed over at once, since the next item, half a step behind, waits for it. */
template <class S>
__device__ __forceinline__ void add_queries(const gpu_backward &args, const tensor_maps &maps,
                                            const backward_memory<S> &memory, int stage) {
    const item_plan &plan = memory.plan();
    mbarrier_wait(memory.checked(), 0);
    if (plan.odd_keys) return;
#pragma unroll 1
    for (int j = stage;; j += S::ADDERS) {
        const query_plan &step = plan.queries[j % QUERY_PLANS];
        mbarrier_wait(memory.planned(j), j / QUERY_PLANS % 2);
        if (step.block < 0) return;
        int turn = turn_of_step<S>(step, plan.item.block);
        chain_wait(step.chain, chain_read(step.chain), turn);
        mbarrier_wait(memory.dq_full(stage), j / S::ADDERS % 2);
        global_proxies_meet();
        add_dq<S>(memory, query_maps(maps, step.set) + 2, stage, step, plan.item.b,
                  is_first<S>(args, turn, step.a0, step.count));
        bulk_wait_read<0>();
        mbarrier_arrive(memory.dq_empty(stage));
        bulk_wait<0>();
        global_proxies_meet();
        chain_release(step.chain);
        mbarrier_arrive(memory.done(j));
    }
}

#endif
