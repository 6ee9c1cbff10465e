/* Backward for rows of more than 128 elements on Hopper, all but the consumers: which keys a cluster has, whose turn a
 * step is, planner, producer, adders. */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_WIDE_PRODUCER_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_WIDE_PRODUCER_CUH

#include "kernel/cuda/sm90/backward_producer.cuh"
#include "kernel/cuda/sm90/backward_wide_layout.cuh"

/* ---- which keys -------------------------------------------------------------------------------------------------- */

/* Whether entry `second` of the items is the block of keys behind that of `first`, which is the even one. */
__device__ __forceinline__ bool are_neighbours(const gpu_item &first, const gpu_item &second) {
    return first.block % 2 == 0 && second.block == first.block + 1 && second.first == first.first &&
           second.kv_head == first.kv_head;
}

/* K and V of this CTA's keys, and K of the other's in this one's columns of dQ. entry: of CTA 0's. */
template <class S>
__device__ __forceinline__ void copy_wide_keys(const tensor_maps &maps, const backward_wide_memory<S> &memory,
                                               const gpu_item &entry, const item_place &item, int rank) {
    mbarrier_expect(memory.keys_full(), 2 * S::KEY_PANEL);
#pragma unroll
    for (int panel = 0; panel < 2; panel++)
        copy_box(memory.other_k(panel), key_map(maps, entry.k_set.map), (2 * rank + panel) * S::DQ_COLUMNS,
                 entry.k_set.remainder, entry.k_row + (rank ^ 1) * S::KEYS, item.head, item.b, memory.keys_full());
    copy_keys<S>(maps, memory, entry, item, entry.k_row + rank * S::KEYS);
    copy_values<S>(maps, memory, entry, item, entry.k_row + rank * S::KEYS);
}

/* What the cluster does whose CTA 0 has taken an item, of so many: it is placed, and its keys are asked for. Returns
 * false where it is nothing: the cluster that has the block before does this one too. By one thread of each CTA. */
template <class S>
__device__ __forceinline__ bool begin_wide_item(const gpu_backward &args, const tensor_maps &maps, unsigned count,
                                                int rank, const backward_wide_memory<S> &memory) {
    unsigned number = cluster_load(cluster_address(memory.cluster_plan_address(), 0));
    unsigned each = (unsigned)args.problem.per_entry, at = number / each, last = count / each - 1;
    const gpu_item entry = args.items[at], before = args.items[at ? at - 1 : 0], after = args.items[min(at + 1, last)];
    if (at > 0 && are_neighbours(before, entry)) return false;
    item_place item = item_at(args, entry, number);
    copy_wide_keys<S>(maps, memory, entry, item, rank);
    cluster_plan &cluster = memory.cluster();
    cluster.base = entry.block;
    cluster.joined = at < last && are_neighbours(entry, after);
    item.block += rank;
    memory.plan().item = item;
    return true;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* Whose turn a step is: *blocks_out blocks of keys, from turn *turn_out of the tile's on, are added to this dQ by the
 * cluster. */
template <class S>
__device__ __forceinline__ void turns_of_step(const backward_wide_memory<S> &memory, const query_plan &step,
                                              int *turn_out, int *blocks_out) {
    const cluster_plan &cluster = memory.cluster();
    int first = max(0, step.a0 + step.lo) / S::KEYS, from = max(cluster.base, first),
        to = cluster.base + cluster.joined;
    if (cluster.joined) {
        int64_t seen = (int64_t)min(step.a0 + S::ROWS, step.count) + step.hi; /* keys below */
        to = min(to, ((int)min((int64_t)step.keys, seen) - 1) / S::KEYS);
    }
    *turn_out = step.turn - memory.plan().item.block + from;
    *blocks_out = to - from + 1;
}

/* ---- planner ----------------------------------------------------------------------------------------------------- */

/* dQ of step j is in memory, as far as this CTA has it: its turn is over. */
template <class S> __device__ __forceinline__ void release_step(const backward_wide_memory<S> &memory, int j) {
    const query_plan &step = memory.plan().queries[j % QUERY_PLANS];
    int turn, blocks;
    mbarrier_wait(memory.done(j), j / QUERY_PLANS % 2);
    turns_of_step<S>(memory, step, &turn, &blocks);
    chain_release(step.chain, blocks);
}

/* As plan_queries, for all queries that see a key of either CTA. The planner, which waits for a plan to be free, ends
 * its step's turn too: the fence that this takes is too long for an adder. */
template <class S>
__device__ __forceinline__ void plan_wide(const gpu_backward &args, const backward_wide_memory<S> &memory, int rank) {
    item_plan &plan = memory.plan();
    const bool joined = memory.cluster().joined;
    item_place keys = plan.item; /* those of both CTAs */
    keys.block = joined ? memory.cluster().base / 2 : memory.cluster().base;
    heads_cursor c = joined ? first_heads<S::ROWS, 2 * S::KEYS>(args, keys, keys.first)
                            : first_heads<S::ROWS, S::KEYS>(args, keys, keys.first);
#pragma unroll 1
    for (int j = 0;; j++) {
        query_plan &to = plan.queries[j % QUERY_PLANS];
        bool there = c.at < keys.first + keys.count;
        if (j >= QUERY_PLANS) {
            mbarrier_wait(memory.checked(), 0);
            if (plan.odd_keys) return;
            release_step<S>(memory, j - QUERY_PLANS);
        }
        to.block = there ? c.block : -1;
        if (there) plan_block<S>(args, plan.item, c, &to);
        if (!joined && rank) to.keys = 0;
        mbarrier_arrive(memory.planned(j));
        if (!there) {
            mbarrier_wait(memory.checked(), 0);
            for (int i = max(0, j - QUERY_PLANS + 1); i < j && !plan.odd_keys; i++) release_step<S>(memory, i);
            return;
        }
        c = joined ? next_heads<S::ROWS, 2 * S::KEYS>(args, keys, c) : next_heads<S::ROWS, S::KEYS>(args, keys, c);
    }
}

/* ---- producer ---------------------------------------------------------------------------------------------------- */

/* By a warp. dO of a step behind its Q, and so behind Q of no later step. */
template <class S>
__device__ __forceinline__ void produce_wide(const folded_backward &args, const tensor_maps &maps,
                                             const backward_wide_memory<S> &memory, int lane) {
    item_plan &plan = memory.plan();
#pragma unroll 1
    for (int j = 0;; j++) {
        int stage = j % 2;
        const query_plan &step = plan.queries[j % QUERY_PLANS];
        sums_read<S::ROWS / 32> sums;
        mbarrier_wait(memory.planned(j), j / QUERY_PLANS % 2);
        bool there = step.block >= 0;
        if (there) read_sums<S>(args, plan.item.b, step, lane, sums);
        if (j >= 2) mbarrier_wait(memory.empty(stage), (j / 2 - 1) % 2);
        if (!there) {
            bring_no_more<S>(memory, stage, lane);
            return;
        }
        const CUtensorMap *map = query_maps(maps, step.set);
        if (elected()) {
            mbarrier_expect(memory.full(stage), S::QUERY_TILE);
            copy_tile<S::DIM, S::ROWS>(memory.q(stage), map, step.set.remainder, step.row, step.head, plan.item.b,
                                       memory.full(stage));
        }
        write_sums<S>(args, memory, step, stage, lane, sums);
        mbarrier_arrive(memory.full(stage));
        if (j >= 1) {
            mbarrier_wait(memory.checked(), 0);
            if (plan.odd_keys) return;
            mbarrier_wait(memory.dout_empty(), (j - 1) % 2);
        }
        if (elected()) {
            mbarrier_arrive_expecting(memory.dout_full(), S::QUERY_TILE);
            copy_tile<S::DIM, S::ROWS>(memory.dout(), map + 1, step.set.remainder, step.row, step.head, plan.item.b,
                                       memory.dout_full());
        }
    }
}

/* ---- adders ------------------------------------------------------------------------------------------------------ */

/* One of a step's two pieces of dQ of consumer `group`, when it is there. The buffer is free behind it. */
template <class S>
__device__ __forceinline__ void add_piece(const tensor_maps &maps, const backward_wide_memory<S> &memory,
                                          const query_plan &step, int group, int rank, int piece) {
    mbarrier_wait(memory.dq_full(group), piece);
    global_proxies_meet();
    add_box(query_maps(maps, step.set) + 2, memory.dq(group), (2 * rank + group) * S::DQ_COLUMNS + piece * 32,
            step.set.remainder, step.row, step.head, memory.plan().item.b);
    bulk_commit();
    bulk_wait_read<0>();
    mbarrier_arrive(memory.dq_empty(group));
}

/* One lane for consumer `group`: adds its pieces of each step when the step's turn has come. Whether the next turn has
 * come it asks while the sums of this one are on their way to memory. */
template <class S>
__device__ __forceinline__ void add_pieces(const tensor_maps &maps, const backward_wide_memory<S> &memory, int group,
                                           int rank) {
    const item_plan &plan = memory.plan();
    mbarrier_wait(memory.checked(), 0);
    if (plan.odd_keys) return;
    int turn = 0, blocks, seen = 0;
#pragma unroll 1
    for (int j = 0;; j++) {
        const query_plan &step = plan.queries[j % QUERY_PLANS];
        mbarrier_wait(memory.planned(j), j / QUERY_PLANS % 2);
        bool there = step.block >= 0;
        if (there) {
            turns_of_step<S>(memory, step, &turn, &blocks);
            turn += *step.queued;
            seen = chain_acquire(step.chain);
        }
        if (j) {
            bulk_wait<0>();
            global_proxies_meet();
            mbarrier_arrive(memory.done(j - 1));
        }
        if (!there) return;
        while (seen < S::RELEASES * turn) {
            __nanosleep(40);
            seen = chain_acquire(step.chain);
        }
#pragma unroll 1
        for (int piece = 0; piece < 2; piece++) add_piece<S>(maps, memory, step, group, rank, piece);
    }
}

#endif
