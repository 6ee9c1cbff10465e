/* The producers of the forward kernel, two warps or three. The first goes through the units, one step after the other,
 * writes what others need to know of a step, and starts the copies of Q and K; the second starts those of V. K of a
 * step has its place before V of the step before it has (forward_layout.cuh): one warp that brings both in the order of
 * steps starts K late by what it waits for V. Where consumers are free a third starts the copies of Q. All lanes know
 * the same; one of them, which elect.sync names, does what is done once. */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_PRODUCER_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_PRODUCER_CUH

#include "kernel/cuda/sm90/forward_layout.cuh"
#include "kernel/cuda/unit_order.cuh"

/* A CTA's first unit is that of its own number; the others are taken in their order as late as can be, so that the work
 * ends everywhere at about the same time. By a warp, or, where rows are copied one by one, by a thread. */
template <class S> __device__ __forceinline__ unsigned take_number(const gpu_forward &args) {
    unsigned taken = 0;
    if (!S::BOXES || threadIdx.x == 0) taken = atomicAdd(&args.tally->units, 1u);
    if (S::BOXES) taken = __shfl_sync(~0u, taken, 0);
    return gridDim.x + taken;
}

/* The next unit from *number on that sees something, its place in the launch's order, and its first keys. false: there
 * is none. */
template <class S>
__device__ __forceinline__ bool next_unit(const gpu_forward &args, unsigned count, unsigned *number, unsigned *place,
                                          unit_place *unit, key_cursor *keys) {
    for (; *number < count; *number = take_number<S>(args)) {
        *place = number_in_sections(args, *number);
        *unit = unit_at(args, *place, S::ROWS);
        *keys = first_keys(args.problem, *unit, unit->tile);
        if (keys->tile < unit->end) return true;
    }
    return false;
}

/* Indices are below 2^30 each, but three of them are added. What is beyond a block's rows and keys is all the same. */
__device__ __forceinline__ int near(int64_t x) {
    return (int)max((int64_t)-4096, min((int64_t)4096, x));
}

/* A tile's keys for the head of a unit: what all steps of the tile have in common. */
struct tile_keys {
    const CUtensorMap *map; /* of K; that of V is behind it */
    int head;               /* of the map */
    int remainder, at;      /* of its rows, and which of that remainder's is the tile's first */
    int count, lo, hi;
    float log2_times;
    bool last; /* the unit sees nothing of the tiles behind it; known where consumers are free */
};

template <class S>
__device__ __forceinline__ tile_keys keys_of(const gpu_problem &p, const tensor_maps &maps, const unit_place &unit,
                                             int tile) {
    const gpu_tile &t = p.tiles[tile];
    int head = (int)kv_head_in(kv_rows_of(p, t), unit.h / p.gqa_ratio);
    bool last = S::FREE && first_keys(p, unit, tile + 1).tile == unit.end;
    return {key_map(maps, t), head, t.k_set.remainder, t.k_at, t.k_count, t.lo, t.hi, t.log2_times, last};
}

/* What each consumer sees of a block, and of those behind it: STEP_UNSEEN, STEP_EDGE, STEP_OVER. By a warp; rows: of
 * the unit, which are there. last_tile: blocks behind this one are of the same tile, if there are any. */
template <class S> __device__ __forceinline__ int flags_of_groups(const key_block &block, int rows, bool last_tile) {
    int group = (int)threadIdx.x % 32, first = group * 64, last = min(first + 64, rows) - 1;
    bool there = group < S::GROUPS;
    bool unseen = last < first || max(0, first + block.lo) >= min(min(S::KEYS, block.count), last + block.hi);
    bool full = block.count >= S::KEYS && last + block.lo <= 0 && first + block.hi >= S::KEYS;
    bool over = block.flags & STEP_ENDS || last < first || (last_tile && last + block.hi <= S::KEYS);
    return (int)__ballot_sync(~0u, there && unseen) * STEP_UNSEEN |
           (int)__ballot_sync(~0u, there && !full) * STEP_EDGE | (int)__ballot_sync(~0u, there && over) * STEP_OVER;
}

/* The note on the step of `keys` and those behind them, as far as their tile has them. Made here: left to itself, the
 * compiler makes it where it is stored, while a stage waits for its copy. */
template <class S>
__device__ __forceinline__ key_block block_of(int lo, int hi, int count, bool last_tile, const unit_place &unit,
                                              const key_cursor &keys, bool ends) {
    int b0 = keys.b0, b1 = b0 + S::KEYS;
    bool full = b1 <= count && block_is_full(lo, hi, unit.a0, unit.a1, b0, b1);
    int64_t apart = (int64_t)unit.a0 - b0;
    key_block block = {ends ? STEP_ENDS : 0, near(apart + lo), near(apart + hi + 1), near(count - b0)};
    block.flags |= S::FREE ? flags_of_groups<S>(block, unit.a1 - unit.a0, last_tile) : full ? 0 : STEP_MASKED;
    asm volatile("" : "+r"(block.flags), "+r"(block.lo), "+r"(block.hi), "+r"(block.count));
    return block;
}

/* The place of a step in the rings: the stage and the parity of its phase follow from that of its copy_note. */
template <class S> struct step_place : ring_place<2 * S::STAGES> {
    __device__ __forceinline__ int in_ring(void) const {
        return this->stage % S::STAGES;
    }
    /* Of the phase of empty barriers that is over when the stage has been left. */
    __device__ __forceinline__ uint32_t left_parity(void) const {
        return this->stage < S::STAGES;
    }
};

/* By one lane: the copies of V of the step at `at` may begin when its stage has been left. map NULL: there is none. */
template <class S>
__device__ __forceinline__ void tell_values(const forward_memory<S> &memory, int slot, const copy_note &note) {
    memory.value(slot) = note;
    mbarrier_arrive(memory.v_told(slot));
}

/* By one lane: the unit noted in `slot` has begun. map NULL: there is none. */
template <class S>
__device__ __forceinline__ void tell_queries(const forward_memory<S> &memory, int slot, const copy_note &note) {
    memory.queries(slot) = note;
    mbarrier_arrive(memory.q_told(slot));
}

/* Q of a unit whose first step is in `stage`, when all have read the Q before. */
template <class S>
__device__ __forceinline__ void produce_queries(const forward_memory<S> &memory, const copy_note &note, int stage,
                                                uint32_t parity) {
    mbarrier_wait(memory.q_empty(0), parity);
    if (!elected()) return;
    mbarrier_expect(memory.k_full(stage), S::Q_TILE);
    copy_tile<S::DIM, S::ROWS, S::PLAIN>(memory.q(0), note.map, note.remainder, note.row, note.head, note.batch,
                                         memory.k_full(stage));
}

/* Everything that a copy needs is computed before the stage is waited for, and what consumers are told is written
 * behind the copy: the arrival at k_full, which they wait for too, comes last. */
template <class S>
__device__ __forceinline__ void produce_keys(const gpu_forward &args, const tensor_maps &maps,
                                             const forward_memory<S> &memory, unsigned count) {
    const gpu_problem &p = args.problem;
    const bool lead = elected();
    step_place<S> at = {0, 0};
    unsigned number = blockIdx.x, place;
    uint32_t q_parity = 1;
    int slot = 0;
    unit_place unit;
    key_cursor keys;
    while (next_unit<S>(args, count, &number, &place, &unit, &keys)) {
        bool begins = true, ends;
        tile_keys source = keys_of<S>(p, maps, unit, keys.tile);
#pragma unroll 1
        do {
            int stage = at.in_ring(), row = source.at + keys.b0;
            key_cursor next = next_keys(p, unit, keys, S::KEYS);
            ends = next.tile == unit.end;
            key_block block = block_of<S>(source.lo, source.hi, source.count, source.last, unit, keys, ends);
            if (lead) tell_values<S>(memory, at.stage, {source.map + 1, source.remainder, row, source.head, unit.b});
            mbarrier_wait(memory.k_empty(stage), at.left_parity());
            __syncwarp(); /* or the stage could be left again before a lane has seen that it was left */
            if (lead) {
                mbarrier_expect(memory.k_full(stage), S::KEY_TILE);
                copy_tile<S::DIM, S::KEYS, S::PLAIN>(memory.k(stage), source.map, source.remainder, row, source.head,
                                                     unit.b, memory.k_full(stage));
                memory.note(stage) = block;
                if (S::COUNTS) memory.log2_times(stage) = source.log2_times;
            }
            if (begins) {
                const gpu_tile &t = p.tiles[keys.tile];
                copy_note q = {&maps.map[t.q_set.map], t.q_set.remainder, t.q_at + unit.a0, unit.h, unit.b};
                if (!S::FREE) produce_queries<S>(memory, q, stage, q_parity);
                if (S::FREE && lead) tell_queries<S>(memory, slot, q);
                q_parity ^= 1;
                if (lead) {
                    unit_note note = note_of(args, t, unit, place);
                    note.set = t.q_set;
                    note.row = t.q_at + unit.a0;
                    memory.unit(slot) = note;
                }
            }
            if (lead) mbarrier_arrive(memory.k_full(stage));
            __syncwarp(); /* a lane that is steps behind could wait for the wrong phase */
            at.advance();
            if (!ends && next.tile != keys.tile) source = keys_of<S>(p, maps, unit, next.tile);
            keys = next;
            begins = false;
        } while (!ends);
        number = take_number<S>(args);
        slot = next_slot<S>(slot);
    }
    if (lead) tell_values<S>(memory, at.stage, {NULL, 0, 0, 0, 0});
    if (S::FREE && lead) tell_queries<S>(memory, slot, {NULL, 0, 0, 0, 0});
    mbarrier_wait(memory.k_empty(at.in_ring()), at.left_parity());
    if (lead) {
        memory.note(at.in_ring()) = {STEP_NONE, 0, 0, 0};
        mbarrier_arrive(memory.k_full(at.in_ring()));
    }
}

template <class S> __device__ __forceinline__ void produce_values(const forward_memory<S> &memory) {
    step_place<S> at = {0, 0};
    for (;; at.advance()) {
        int stage = at.in_ring();
        mbarrier_wait(memory.v_told(at.stage), at.parity);
        copy_note note = memory.value(at.stage);
        if (!note.map) return;
        mbarrier_wait(memory.v_empty(stage), at.left_parity());
        __syncwarp(); /* all lanes have read the note, and none is steps behind */
        if (!elected()) continue;
        mbarrier_arrive_expecting(memory.v_full(stage), S::KEY_TILE);
        copy_tile<S::DIM, S::KEYS, S::PLAIN>(memory.v(stage), note.map, note.remainder, note.row, note.head, note.batch,
                                             memory.v_full(stage));
    }
}

/* Where consumers are free: Q of one unit after the other, each consumer's when it has left the one before. */
template <class S> __device__ __forceinline__ void produce_free_queries(const forward_memory<S> &memory) {
    int slot = 0;
    for (uint32_t parity = 1, told = 0;; parity ^= 1) {
        mbarrier_wait(memory.q_told(slot), told);
        copy_note note = memory.queries(slot);
        if (!note.map) return;
#pragma unroll 1
        for (int group = 0; group < S::GROUPS; group++) {
            mbarrier_wait(memory.q_empty(group), parity);
            if (elected()) {
                mbarrier_arrive_expecting(memory.q_full(group), S::Q_TILE / S::GROUPS);
                copy_tile<S::DIM, 64, S::PLAIN>(memory.q(group), note.map, note.remainder, note.row + group * 64,
                                                note.head, note.batch, memory.q_full(group));
            }
            __syncwarp();
        }
        slot = next_slot<S>(slot);
        told ^= slot == 0;
    }
}

#endif
