/* The forward kernel's shape, its shared memory, and the warpgroup that feeds the others.
 *
 *   Q [ROWS, DIM] | K, V of stage 0 [KEYS, DIM] | K, V of stage 1 | ... | steps | gates
 *
 * Steps are numbered through all the units that a CTA takes. Step t has stage t % STAGES and record t % RECORDS. Q
 * comes with the K of a unit's first step. The feeder waits until the readers have left a place, starts its copies, and
 * announces a tile when its copies have landed: one tile later, or at once where it would have to wait.
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_FEED_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_FEED_CUH

#include "kernel/cuda/sm80/mma.cuh"
#include "kernel/cuda/sm90/forward_panels.cuh"
#include "kernel/cuda/walk_tiles.cuh"

/* Written by the feeder before it announces the step's K; wild before its V. */
struct key_step {
    key_source keys;
    unit_place unit;
    key_cursor next;  /* the unit's keys after these */
    int tile, b0;     /* b0: first key of the block; -1: there is no more work */
    int begins, ends; /* the unit's first or last step */
    int masked;       /* some pairs are not visible, or keys are missing */
    int wild;         /* masked, and V has an infinity or a NaN, which is 0 in shared memory */
};

/* GROUPS warpgroups read, 64 query rows each. ALTERNATE: they issue their products in turns. */
template <class T_, int DIM_, int KEYS_, int GROUPS_, int STAGES_, bool ALTERNATE_> struct forward_wgmma_shape {
    using T = T_;
    static constexpr int DIM = DIM_, KEYS = KEYS_, GROUPS = GROUPS_, STAGES = STAGES_, RECORDS = STAGES + 1;
    static constexpr bool ALTERNATE = ALTERNATE_;
    static constexpr int ROWS = 64 * GROUPS, THREADS = 128 * (GROUPS + 1);
    static constexpr int FEEDER_REGISTERS = 56, READER_REGISTERS = GROUPS == 2 ? 224 : 152;
    static constexpr int KEY_TILE = KEYS * DIM * 2, Q_TILE = ROWS * DIM * 2;
    static constexpr int STEPS_AT = Q_TILE + STAGES * 2 * KEY_TILE;
    static constexpr int GATES_AT = STEPS_AT + RECORDS * (int)sizeof(key_step);
    static constexpr int BYTES = GATES_AT + (4 * STAGES + 1) * 8;
    static_assert(STAGES >= 2, "a step's record outlives the next two plans");
    static_assert(BYTES <= 227 * 1024, "a multiprocessor has no more");
    static_assert(sizeof(key_step) % 8 == 0, "gates are aligned");
};

template <class S> struct forward_memory {
    unsigned char *base;
    __device__ __forceinline__ unsigned char *q() const {
        return base;
    }
    __device__ __forceinline__ unsigned char *k(int t) const {
        return base + S::Q_TILE + t % S::STAGES * 2 * S::KEY_TILE;
    }
    __device__ __forceinline__ unsigned char *v(int t) const {
        return k(t) + S::KEY_TILE;
    }
    __device__ __forceinline__ key_step &step(int t) const {
        return *(key_step *)(base + S::STEPS_AT + t % S::RECORDS * (int)sizeof(key_step));
    }
    __device__ __forceinline__ uint32_t gate(int kind, int t) const {
        return shared_address(base + S::GATES_AT) + (kind * S::STAGES + t % S::STAGES) * 8;
    }
    /* Announced by the feeder: */
    __device__ __forceinline__ uint32_t k_full(int t) const {
        return gate(0, t);
    }
    __device__ __forceinline__ uint32_t v_full(int t) const {
        return gate(1, t);
    }
    /* Left by the readers, one arrival a warp: */
    __device__ __forceinline__ uint32_t k_empty(int t) const {
        return gate(2, t);
    }
    __device__ __forceinline__ uint32_t v_empty(int t) const {
        return gate(3, t);
    }
    __device__ __forceinline__ uint32_t q_empty(void) const {
        return gate(4, 0);
    }
    /* Of the gates when step t is waited for. */
    static __device__ __forceinline__ int parity(int t) {
        return t / S::STAGES & 1;
    }
};

template <class S> __device__ __forceinline__ void make_gates(const forward_memory<S> &memory) {
    for (int t = 0; t < S::STAGES; t++) {
        gate_init(memory.k_full(t), 128);
        gate_init(memory.v_full(t), 128);
        gate_init(memory.k_empty(t), 4 * S::GROUPS);
        gate_init(memory.v_empty(t), 4 * S::GROUPS);
    }
    gate_init(memory.q_empty(), 4 * S::GROUPS);
    shared_writes_to_products();
}

/* Whether the phase of this parity is over. */
__device__ __forceinline__ bool gate_is_open(uint32_t gate, int parity) {
    uint32_t open;
    asm volatile("{\n"
                 ".reg .pred open;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 open, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, open;\n"
                 "}\n"
                 : "=r"(open)
                 : "r"(gate), "r"(parity)
                 : "memory");
    return open;
}

/* ---- plan -----------------------------------------------------------------------------------------------------------
 */

/* A CTA's first unit is that of its own number; the others are taken in their order as late as can be, so that the work
 * ends everywhere at about the same time. */
__device__ __forceinline__ unsigned next_number(const gpu_forward &args) {
    return gridDim.x + atomicAdd(args.ticket, 1u);
}

/* Step t: the keys after those of step t - 1, else the first of the next unit, else no more. By one thread. */
template <class S>
__device__ __forceinline__ void plan_step(const gpu_forward &args, const forward_memory<S> &memory, int t,
                                          unsigned count, unsigned *number) {
    const gpu_problem &p = args.problem;
    key_step &step = memory.step(t);
    const key_step &before = memory.step(t + S::RECORDS - 1);
    key_cursor c;
    bool begins = t == 0 || before.ends, moved = true;
    if (begins) {
        for (;; *number = next_number(args)) {
            if (*number >= count) {
                step.b0 = -1;
                return;
            }
            step.unit = unit_at(args, *number, S::ROWS);
            c = first_keys(p, step.unit, step.unit.tile);
            if (c.tile < step.unit.end) break;
        }
    } else {
        step.unit = before.unit;
        c = before.next;
        moved = c.tile != before.tile;
    }
    if (moved)
        set_keys<typename S::T>(&step.keys, p, step.unit.b, step.unit.h, c.tile);
    else
        step.keys = before.keys;
    int b1 = c.b0 + S::KEYS;
    step.b0 = c.b0;
    step.tile = c.tile;
    step.next = next_keys(p, step.unit, c, S::KEYS);
    step.begins = begins;
    step.ends = step.next.tile == step.unit.end;
    step.masked =
        b1 > step.keys.count || !block_is_full(step.keys.lo, step.keys.hi, step.unit.a0, step.unit.a1, step.b0, b1);
    step.wild = 0;
    if (step.ends) *number = next_number(args);
}

/* ---- tiles that have landed -----------------------------------------------------------------------------------------
 */

/* The maximum of the scores is found before they are scaled, which needs a scale above 0: the sign goes into Q, and a
 * scale of 0 makes Q 0, or NaN where it is not finite. */
template <class S> __device__ __forceinline__ void sign_panels(unsigned char *q, double scale, int thread) {
    using T = typename S::T;
    if (scale > 0) return;
    visit_panels<S::DIM, S::ROWS>(q, thread, [=](uint4 &x) {
        x = make_uint4(signed_pair<T>(x.x, scale), signed_pair<T>(x.y, scale), signed_pair<T>(x.z, scale),
                       signed_pair<T>(x.w, scale));
    });
}

/* What is not finite becomes 0, since 0 times it would be NaN for the rows that do not see it. Returns whether there
 * was any. */
template <class S> __device__ __forceinline__ bool tame_values(unsigned char *v, int thread) {
    using T = typename S::T;
    bool wild = false;
    visit_panels<S::DIM, S::KEYS>(v, thread, [&](uint4 &chunk) {
        uint4 x = chunk;
        if (!(pair_is_wild<T>(x.x) || pair_is_wild<T>(x.y) || pair_is_wild<T>(x.z) || pair_is_wild<T>(x.w))) return;
        wild = true;
        for (int e = 0; e < 8; e++)
            if (!isfinite(element<T>::widen(((T *)&chunk)[e]))) ((T *)&chunk)[e] = (T)0.0f;
    });
    return wild;
}

/* Tile number n is K (n even) or V of step n / 2. */
template <class S>
__device__ __forceinline__ void announce(const gpu_forward &args, const forward_memory<S> &memory, int n, int thread) {
    int t = n / 2;
    key_step &step = memory.step(t);
    if (n % 2 == 0) {
        if (step.begins) sign_panels<S>(memory.q(), args.problem.scale, thread);
    } else if (step.masked) {
        if (tame_values<S>(memory.v(t), thread)) step.wild = 1;
    }
    shared_writes_to_products();
    gate_arrive(n % 2 == 0 ? memory.k_full(t) : memory.v_full(t));
}

/* ---- the feeder -----------------------------------------------------------------------------------------------------
 */

/* Waits for a gate; if it is not open yet, the tile before is announced first. */
template <class S>
__device__ __forceinline__ void wait_to_write(const gpu_forward &args, const forward_memory<S> &memory, uint32_t gate,
                                              int parity, int *announced, int issued, int thread) {
    if (gate_is_open(gate, parity)) return;
    if (*announced < issued) {
        copies_wait_until<0>();
        announce<S>(args, memory, (*announced)++, thread);
    }
    gate_wait(gate, parity);
}

template <class S>
__device__ __forceinline__ void feed(const gpu_forward &args, const forward_memory<S> &memory, unsigned count) {
    using T = typename S::T;
    using M = forward_memory<S>;
    const gpu_problem &p = args.problem;
    int thread = (int)threadIdx.x, announced = 0, units = 0;
    unsigned number = blockIdx.x;
#pragma unroll 1
    for (int t = 0;; t++) {
        if (thread == 0) plan_step<S>(args, memory, t, count, &number);
        named_barrier(1, 128);
        const key_step &step = memory.step(t);
        if (step.b0 < 0) {
            copies_wait_until<0>();
            if (announced < 2 * t) announce<S>(args, memory, announced, thread);
            /* A reader that still waits for the step before last at this gate would take two phases for none. */
            if (t >= S::STAGES) gate_wait(memory.k_empty(t), M::parity(t - S::STAGES));
            gate_arrive(memory.k_full(t));
            return;
        }
        if (t >= S::STAGES)
            wait_to_write<S>(args, memory, memory.k_empty(t), M::parity(t - S::STAGES), &announced, 2 * t, thread);
        if (step.begins) {
            if (units > 0) wait_to_write<S>(args, memory, memory.q_empty(), (units - 1) & 1, &announced, 2 * t, thread);
            units++;
            const gpu_tile &tile = p.tiles[step.unit.tile];
            row_source rows = source_of<T>(args.q, step.unit.b, step.unit.h, tile.q_first, tile.q_stride, NULL);
            copy_panels<T, S::DIM, S::ROWS>(memory.q(), rows, step.unit.a0, step.unit.a1, p.dim, thread);
        }
        copy_panels<T, S::DIM, S::KEYS>(memory.k(t), step.keys.k, step.b0, step.keys.count, p.dim, thread);
        copies_commit();
        if (announced < 2 * t) {
            copies_wait_until<1>();
            announce<S>(args, memory, announced++, thread);
        }
        if (t >= S::STAGES)
            wait_to_write<S>(args, memory, memory.v_empty(t), M::parity(t - S::STAGES), &announced, 2 * t + 1, thread);
        copy_panels<T, S::DIM, S::KEYS>(memory.v(t), step.keys.v, step.b0, step.keys.count, p.dim_v, thread);
        copies_commit();
        if (announced < 2 * t + 1) {
            copies_wait_until<1>();
            announce<S>(args, memory, announced++, thread);
        }
    }
}

#endif
