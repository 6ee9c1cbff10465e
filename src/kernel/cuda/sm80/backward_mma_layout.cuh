/* The backward kernel's shape, its shared memory and the plan that is in it. */
#ifndef RA_KERNEL_CUDA_SM80_BACKWARD_MMA_LAYOUT_CUH
#define RA_KERNEL_CUDA_SM80_BACKWARD_MMA_LAYOUT_CUH

#include "kernel/cuda/backward_tiles.cuh"
#include "kernel/cuda/sm80/half_products.cuh"
#include "kernel/cuda/tile_cursor.cuh"

/* Where an item stands. One thread plans, two steps ahead; what it planned is there for all after a barrier. It is in
 * shared memory, since registers are short. */
struct planned_step {
    int block;  /* of queries; -1: there is no such step */
    int source; /* index */
};

struct item_plan {
    item_place item;
    query_cursor cursor;   /* of the last step planned */
    planned_step steps[4]; /* step j is at j % 4 */
    query_source<float> sources[3];
};

/* The warps lie over [ROWS, KEYS] of S with S_WARPS along the rows, over [KEYS, DIM] of dK and dV with KV_WARPS along
 * the keys, over [ROWS, DIM] of dQ with Q_WARPS along the rows. */
template <class T_, int DIM_, int ROWS_, int KEYS_, int S_WARPS_, int KV_WARPS_, int Q_WARPS_, int STAGES_,
          class PRODUCTS = half_products<T_>, int WARPS_ = 8>
struct backward_mma_shape {
    using T = T_;
    using products = PRODUCTS;
    static constexpr int DIM = DIM_, ROWS = ROWS_, KEYS = KEYS_, STAGES = STAGES_, WARPS = WARPS_, THREADS = WARPS * 32;
    static constexpr int S_WARPS = S_WARPS_, KV_WARPS = KV_WARPS_, Q_WARPS = Q_WARPS_;
    static constexpr int S_MT = ROWS / S_WARPS / 16, S_NT = KEYS / (WARPS / S_WARPS) / 8;
    static constexpr int KV_MT = KEYS / KV_WARPS / 16, KV_NT = DIM / (WARPS / KV_WARPS) / 8;
    static constexpr int Q_MT = ROWS / Q_WARPS / 16, Q_NT = DIM / (WARPS / Q_WARPS) / 8;
    /* Bytes of shared memory: K, V, then for each stage Q and dO, then P, dS, then for each stage lse and delta. */
    static constexpr int KEY_TILE = KEYS * DIM * (int)sizeof(T), QUERY_TILE = ROWS * DIM * (int)sizeof(T);
    static constexpr int PAIR_TILE = ROWS * KEYS * (int)sizeof(T);
    static constexpr int Q_AT = 2 * KEY_TILE, P_AT = Q_AT + STAGES * 2 * QUERY_TILE, LSE_AT = P_AT + 2 * PAIR_TILE;
    static constexpr int PLAN_AT = LSE_AT + STAGES * 2 * ROWS * 4;
    static constexpr int BYTES = PLAN_AT + (int)sizeof(item_plan);
};

template <class S> struct backward_memory : backward_tiles<S> {
    using backward_tiles<S>::base;
    __device__ __forceinline__ unsigned char *p() const {
        return base + S::P_AT;
    }
    __device__ __forceinline__ unsigned char *ds() const {
        return base + S::P_AT + S::PAIR_TILE;
    }
    __device__ __forceinline__ item_plan &plan() const {
        return *(item_plan *)(base + S::PLAN_AT);
    }
};

#endif
