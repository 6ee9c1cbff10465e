/* The producer of the forward kernel where there are no tensor maps: a warpgroup, whose first thread plans the steps
 * and all of whose threads copy rows, chunk by chunk.
 *
 * A tile is announced when its copies have landed: one tile later, or at once where the producer would have to wait. At
 * most one has not been announced, therefore, `pending`.
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_ROW_PRODUCER_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_ROW_PRODUCER_CUH

#include "kernel/cuda/sm90/forward_producer.cuh"
#include "kernel/cuda/sm90/row_panels.cuh"

/* ---- plan -------------------------------------------------------------------------------------------------------- */

/* step: the keys after those of `before`, else the first of the next unit, else none. By one thread. */
template <class S>
__device__ __forceinline__ void plan_row_step(const gpu_forward &args, unsigned count, unsigned *number,
                                              const row_step *before, row_step *step) {
    const gpu_problem &p = args.problem;
    bool moved = true;
    step->begins = !before || before->ends;
    step->none = 0;
    if (step->begins) {
        step->none = !next_unit<S>(args, count, number, &step->number, &step->unit, &step->at);
        if (step->none) return;
    } else {
        step->unit = before->unit;
        step->number = before->number;
        step->at = before->next;
        moved = step->at.tile != before->at.tile;
    }
    if (moved)
        set_keys<typename S::T>(&step->keys, p, step->unit.b, step->unit.h, step->at.tile);
    else
        step->keys = before->keys;
    step->next = next_keys(p, step->unit, step->at, S::KEYS);
    step->ends = step->next.tile == step->unit.end;
    if (step->ends) *number = take_number<S>(args);
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* The mbarrier of a tile that has been copied and not announced; 0: none. */
struct pending_tile {
    uint32_t full;
    __device__ __forceinline__ void announce(void) {
        if (full) {
            shared_writes_to_products();
            mbarrier_arrive(full);
        }
        full = 0;
    }
    /* The copies of one more tile have been started. */
    __device__ __forceinline__ void follow(uint32_t next) {
        copies_commit();
        copies_wait_until<1>();
        announce();
        full = next;
    }
    /* Until a stage may be written. */
    __device__ __forceinline__ void wait_empty(uint32_t barrier, uint32_t parity) {
        if (mbarrier_is_over(barrier, parity)) return;
        copies_wait_until<0>();
        announce();
        mbarrier_wait(barrier, parity);
    }
};

template <class S>
__device__ __forceinline__ void copy_query_panels(const gpu_forward &args, const forward_memory<S> &memory,
                                                  const unit_place &unit, int thread) {
    const gpu_tile &tile = args.problem.tiles[unit.tile];
    const ra_view q = query_rows_of(args, tile).q;
    row_source rows = source_of<typename S::T>(q, unit.b, unit.h, tile.q_first, tile.q_stride, NULL);
    copy_panels<typename S::T, S::DIM, S::ROWS, S::PRODUCERS>(memory.q(0), rows, unit.a0, unit.a1, args.problem.dim,
                                                              thread);
}

/* ---- producer ---------------------------------------------------------------------------------------------------- */

template <class S>
__device__ __forceinline__ void produce_rows(const gpu_forward &args, const forward_memory<S> &memory, row_step *plan,
                                             unsigned count) {
    using T = typename S::T;
    const gpu_problem &p = args.problem;
    int thread = (int)threadIdx.x;
    ring_place<S::STAGES> at = {0, 0};
    unsigned number = blockIdx.x;
    uint32_t q_parity = 1;
    int slot = 0;
    pending_tile pending = {0};
#pragma unroll 1
    for (int t = 0;; t++) {
        row_step &step = plan[t % 2];
        if (thread == 0) plan_row_step<S>(args, count, &number, t ? &plan[(t + 1) % 2] : NULL, &step);
        named_barrier(1, S::PRODUCERS);
        pending.wait_empty(memory.k_empty(at.stage), at.parity ^ 1);
        if (step.none) break;
        if (thread == 0) {
            const gpu_tile &t = p.tiles[step.at.tile];
            memory.note(at.stage) = block_of<S>(t.lo, t.hi, t.k_count, false, step.unit, step.at, step.ends);
            memory.log2_times(at.stage) = t.log2_times;
        }
        if (step.begins) {
            const gpu_tile &tile = p.tiles[step.unit.tile];
            if (thread == 0) memory.unit(slot) = note_of(args, tile, step.unit, step.number);
            slot = next_slot<S>(slot);
            pending.wait_empty(memory.q_empty(0), q_parity);
            q_parity ^= 1;
            copy_query_panels<S>(args, memory, step.unit, thread);
        }
        copy_panels<T, S::DIM, S::KEYS, S::PRODUCERS>(memory.k(at.stage), step.keys.k, step.at.b0, step.keys.count,
                                                      p.dim, thread);
        pending.follow(memory.k_full(at.stage));
        pending.wait_empty(memory.v_empty(at.stage), at.parity ^ 1);
        copy_panels<T, S::DIM, S::KEYS, S::PRODUCERS>(memory.v(at.stage), step.keys.v, step.at.b0, step.keys.count,
                                                      p.dim_v, thread);
        pending.follow(memory.v_full(at.stage));
        at.advance();
    }
    copies_wait_until<0>();
    pending.announce();
    if (thread == 0) memory.note(at.stage) = {STEP_NONE, 0, 0, 0};
    mbarrier_arrive(memory.k_full(at.stage));
}

#endif
