/* The producer of the forward kernel: a warp that goes through the units, one step after the other, writes what
 * consumers need to know of a step, and starts its copies. All lanes know the same; the first does what is done once.
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_PRODUCER_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_PRODUCER_CUH

#include "kernel/cuda/sm90/forward_layout.cuh"

/* A CTA's first unit is that of its own number; the others are taken in their order as late as can be, so that the work
 * ends everywhere at about the same time. By a warp, or, where rows are copied one by one, by a thread. */
template <class S> __device__ __forceinline__ unsigned take_number(const gpu_forward &args) {
    unsigned taken = 0;
    if (!S::BOXES || threadIdx.x == 0) taken = atomicAdd(&args.tally->units, 1u);
    if (S::BOXES) taken = __shfl_sync(~0u, taken, 0);
    return gridDim.x + taken;
}

/* Units are done in sections of heads, so that the keys and values that are read at one time fit into the cache: the
 * n-th that is taken, by sections, is this one in the launch's order, by entries. */
__device__ __forceinline__ unsigned number_in_sections(const gpu_forward &args, unsigned n, unsigned count) {
    unsigned each = (unsigned)args.problem.per_entry, entries = count / each, first = n / (entries * args.section);
    unsigned start = first * args.section, width = min((unsigned)args.section, each - start);
    unsigned in = n - start * entries;
    return in / width * each + start + in % width;
}

/* The next unit from *number on that sees something, its place in the launch's order, and its first keys. false: there
 * is none. */
template <class S>
__device__ __forceinline__ bool next_unit(const gpu_forward &args, unsigned count, unsigned *number, unsigned *place,
                                          unit_place *unit, key_cursor *keys) {
    for (; *number < count; *number = take_number<S>(args)) {
        *place = number_in_sections(args, *number, count);
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

template <class S>
__device__ __forceinline__ key_block block_of(const gpu_tile &t, const unit_place &unit, int b0, bool ends) {
    int b1 = b0 + S::KEYS;
    bool full = b1 <= t.k_count && block_is_full(t.lo, t.hi, unit.a0, unit.a1, b0, b1);
    int64_t apart = (int64_t)unit.a0 - b0;
    return {(full ? 0 : STEP_MASKED) | (ends ? STEP_ENDS : 0), near(apart + t.lo), near(apart + t.hi + 1),
            near(t.k_count - b0)};
}

template <class S>
__device__ __forceinline__ void produce(const gpu_forward &args, const tensor_maps &maps,
                                        const forward_memory<S> &memory, unsigned count) {
    const gpu_problem &p = args.problem;
    const bool lead = threadIdx.x == 0;
    ring_place<S::STAGES> at = {0, 0};
    unsigned number = blockIdx.x, place;
    uint32_t q_parity = 1;
    int slot = 0;
    unit_place unit;
    key_cursor keys;
    while (next_unit<S>(args, count, &number, &place, &unit, &keys)) {
        bool begins = true, ends;
#pragma unroll 1
        do {
            const gpu_tile &t = p.tiles[keys.tile];
            const CUtensorMap *k_map = key_map(maps, t);
            int g = (int)kv_head_in(kv_rows_of(p, t), unit.h / p.gqa_ratio), row = t.k_at + keys.b0;
            key_cursor next = next_keys(p, unit, keys, S::KEYS);
            ends = next.tile == unit.end;
            mbarrier_wait(memory.k_empty(at.stage), at.parity ^ 1);
            if (lead) memory.note(at.stage) = block_of<S>(t, unit, keys.b0, ends);
            if (begins) {
                if (lead) memory.unit(slot) = {unit, t.q_first, t.q_stride, place, t.q_map, t.q_at + unit.a0};
                mbarrier_wait(memory.q_empty(), q_parity);
                q_parity ^= 1;
            }
            if (lead) {
                mbarrier_arrive_expecting(memory.k_full(at.stage), (begins ? S::Q_TILE : 0) + S::KEY_TILE);
                if (begins)
                    copy_tile<S::DIM, S::ROWS>(memory.q(), &maps.map[t.q_map], t.q_at + unit.a0, unit.h, unit.b,
                                               memory.k_full(at.stage));
                copy_tile<S::DIM, S::KEYS>(memory.k(at.stage), k_map, row, g, unit.b, memory.k_full(at.stage));
            }
            mbarrier_wait(memory.v_empty(at.stage), at.parity ^ 1);
            if (lead) {
                mbarrier_arrive_expecting(memory.v_full(at.stage), S::KEY_TILE);
                copy_tile<S::DIM, S::KEYS>(memory.v(at.stage), k_map + 1, row, g, unit.b, memory.v_full(at.stage));
            }
            __syncwarp(); /* a lane that is steps behind could wait for the wrong phase */
            at.advance();
            keys = next;
            begins = false;
        } while (!ends);
        number = take_number<S>(args);
        slot = next_slot<S>(slot);
    }
    mbarrier_wait(memory.k_empty(at.stage), at.parity ^ 1);
    if (lead) {
        memory.note(at.stage) = {STEP_NONE, 0, 0, 0};
        mbarrier_arrive(memory.k_full(at.stage));
    }
}

#endif
