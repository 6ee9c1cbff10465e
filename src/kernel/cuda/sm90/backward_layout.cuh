/* The Hopper backward kernel's shape, its shared memory, and what its roles tell each other.
 *
 *   K, V      [KEYS, DIM] each, for the whole item
 *   Q, dO     [ROWS, DIM] each, two stages
 *   dS^T      [KEYS, ROWS], two stages
 *   dQ        [ROWS, DIM] of f32, rows padded so that a warp's accumulators meet all banks
 *   zeros     16 rows of a panel, which stand in for any operand
 *
 * Gates: planned[j % 4], step j has been planned; done[j % 4], its dQ is in device memory, and nobody needs the plan
 * (the loaders have left it, since products wait for the load after it before they give dQ out); full[stage], Q and dO
 * have come; empty[stage], they have been used; dq_full, dQ can be added to device memory; dq_empty, it has been read.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_LAYOUT_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_LAYOUT_CUH

#include "kernel/cuda/backward_tiles.cuh"
#include "kernel/cuda/sm80/mma.cuh"
#include "kernel/cuda/sm90/wgmma.cuh"
#include "kernel/cuda/walk_tiles.cuh"

/* One step: a block of queries against the item's keys. */
struct backward_step {
    int a0; /* first query; -1: there is no such step */
    int lo, hi, keys;
    int full; /* every pair is visible */
};

/* The planner is up to so many steps ahead of the last who needs a plan, the adder. */
enum { PLANS = 4 };

struct planned_queries {
    query_source<float> source;
    backward_step step;
    int block; /* of queries; -1: there is no such step */
    int turn;  /* of the item, at the block's dQ */
};

struct backward_plan {
    item_place item;
    backward_step steps[2]; /* one for each stage */
    planned_queries queries[PLANS];
};

template <class T_, int DIM_> struct backward_wgmma_shape {
    using T = T_;
    static constexpr int DIM = DIM_, KEYS = 128, ROWS = 8192 / DIM, THREADS = 384;
    /* LOADER_REGISTERS + 2 * PRODUCT_REGISTERS <= 504, what 384 threads get at launch. With 24 and 240 the compiler
     * need not put products one after the other, but loaders and adder spill, and all wait for them: a tenth slower. */
    static constexpr int LOADER_REGISTERS = 40, PRODUCT_REGISTERS = 232;
    static constexpr int LOADERS = 64; /* threads */
    static constexpr int KEY_TILE = KEYS * DIM * 2, QUERY_TILE = ROWS * DIM * 2, PAIR_TILE = KEYS * ROWS * 2;
    static constexpr int DQ_PITCH = DIM * 4 + 32, ZERO_BYTES = 16 * PANEL_ROW_BYTES;
    static constexpr int Q_AT = 2 * KEY_TILE, DS_AT = Q_AT + 4 * QUERY_TILE, ZEROS_AT = DS_AT + 2 * PAIR_TILE;
    static constexpr int DQ_AT = ZEROS_AT + ZERO_BYTES, LSE_AT = DQ_AT + ROWS * DQ_PITCH;
    static constexpr int GATES_AT = LSE_AT + 4 * ROWS * 4, PLAN_AT = GATES_AT + (6 + 2 * PLANS) * 8;
    static constexpr int BYTES = PLAN_AT + (int)sizeof(backward_plan);
    static_assert(DIM == 64 || DIM == 128, "dQ is shared out by columns or by rows of 64");
    static_assert(BYTES <= 227 * 1024, "more shared memory than there is");
};

template <class S> struct backward_room : backward_tiles<S> {
    using backward_tiles<S>::base;
    __device__ __forceinline__ unsigned char *ds(int stage) const {
        return base + S::DS_AT + stage * S::PAIR_TILE;
    }
    __device__ __forceinline__ unsigned char *zeros() const {
        return base + S::ZEROS_AT;
    }
    __device__ __forceinline__ unsigned char *dq() const {
        return base + S::DQ_AT;
    }
    __device__ __forceinline__ uint32_t gate(int i) const {
        return shared_address(base + S::GATES_AT) + i * 8;
    }
    __device__ __forceinline__ uint32_t full(int stage) const {
        return gate(stage);
    }
    __device__ __forceinline__ uint32_t empty(int stage) const {
        return gate(2 + stage);
    }
    __device__ __forceinline__ uint32_t dq_full(void) const {
        return gate(4);
    }
    __device__ __forceinline__ uint32_t dq_empty(void) const {
        return gate(5);
    }
    __device__ __forceinline__ uint32_t planned(int j) const {
        return gate(6 + j % PLANS);
    }
    __device__ __forceinline__ uint32_t done(int j) const {
        return gate(6 + PLANS + j % PLANS);
    }
    __device__ __forceinline__ backward_plan &plan() const {
        return *(backward_plan *)(base + S::PLAN_AT);
    }
};

enum { GROUP_BARRIER = 1 /* and 2 */, PRODUCTS_BARRIER = 3 };

/* By one thread; the others see it behind a barrier. */
template <class S> __device__ __forceinline__ void open_gates(const backward_room<S> &room) {
    for (int stage = 0; stage < 2; stage++) {
        gate_init(room.full(stage), S::LOADERS);
        gate_init(room.empty(stage), 8); /* warps that multiply */
    }
    gate_init(room.dq_full(), 256);
    gate_init(room.dq_empty(), 1);
    for (int j = 0; j < PLANS; j++) {
        gate_init(room.planned(j), 1);
        gate_init(room.done(j), 1);
    }
}

/* A named barrier that says whether one of its threads said so. */
__device__ __forceinline__ bool barrier_any(int id, int threads, bool mine) {
    int any;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.b32 p, %3, 0;\nbar.red.or.pred q, %1, %2, p;\nselp.b32 %0, 1, 0, q;\n}\n"
                 : "=r"(any)
                 : "r"(id), "r"(threads), "r"((int)mine)
                 : "memory");
    return any != 0;
}

template <class T, int ROWS>
__device__ __forceinline__ float panel_element(const unsigned char *tile, int row, int column) {
    return element<T>::widen(*(const T *)(tile + panel_chunk_at<ROWS>(row, column / 8) + column % 8 * 2));
}

#endif
