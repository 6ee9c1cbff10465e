/* The shape of the backward kernel for 16-bit elements, its shared memory and the plan that is in it.
 *
 *   K │ Q 0 │ dO │ Q 1 │ dS │ P │ lse and delta of both stages │ plan
 *                └─ V, before step 0 ┘
 *
 * Q, lse and delta have two stages. V is read into registers once, and what lies on its place in the drawing comes
 * later. P, of f32, is there where two warps have the same keys.
 */
#ifndef RA_KERNEL_CUDA_SM80_BACKWARD_HALF_LAYOUT_CUH
#define RA_KERNEL_CUDA_SM80_BACKWARD_HALF_LAYOUT_CUH

#include "kernel/cuda/sm80/mma.cuh"
#include "kernel/cuda/sm80/split_barrier.cuh"
#include "kernel/cuda/tile_cursor.cuh"

/* Where an item stands. One thread plans, two steps ahead; what it planned is there for all after a barrier. */
struct planned_queries {
    int block;  /* of queries; -1: there is no such step */
    int source; /* index */
    int masked; /* pairs need to be looked at one by one: some are not visible or count several times, or an lse is
                 * large */
    int whole;  /* all of its rows of dQ are there, and lie as the kernel's width has them */
    int *chain; /* of its block of dQ */
};

/* HEADS_TOGETHER: heads that share the keys and are done together, a block of all of them before the next block. As
 * many sources again are of the steps under way, whose heads or tile may be others. */
enum { PLANNED = 8, HEADS_TOGETHER = 4, SOURCES = 2 * HEADS_TOGETHER };

struct half_plan {
    item_place item;
    query_cursor cursor;            /* of the last step planned */
    int head0, head1, source0;      /* the heads [head0, head1) that are done together, and the first one's source */
    planned_queries steps[PLANNED]; /* step j is at j % PLANNED */
    query_source<float> sources[SOURCES];
    uint64_t pairs_done, queries_done, sums_done; /* split barriers of every step */
    uint64_t dout_read, dout_came;                /* more of them, where there are two roles */
};

/* Rows of DIM elements, in shared memory with a pitch of PITCH. A warp has KEY_MT times 16 keys. KEY_WARPS: warps along
 * the keys; with twice as many warps, two have the same keys, in different roles. AT_ONCE: queries of a step that are
 * done at once. Q_WARPS: warps along the rows of dQ. HOLDS_KEYS: a warp has its rows of K in registers, as it has those
 * of V. */
template <class T_, int DIM_, int PITCH_, int ROWS_, int AT_ONCE_, int KEY_MT_, int KEY_WARPS_, int Q_WARPS_,
          bool HOLDS_KEYS_ = false>
struct backward_half_shape {
    using T = T_;
    static constexpr int DIM = DIM_, PITCH = PITCH_, ROWS = ROWS_, AT_ONCE = AT_ONCE_, WARPS = 8, THREADS = WARPS * 32;
    static constexpr int KEY_MT = KEY_MT_, KEY_WARPS = KEY_WARPS_, KEYS = 16 * KEY_MT * KEY_WARPS;
    static constexpr int ROLES = WARPS / KEY_WARPS, NT = AT_ONCE / 8, DEPTH = AT_ONCE / 16;
    static constexpr bool HOLDS_KEYS = HOLDS_KEYS_;
    static constexpr int COPIERS = THREADS / ROLES; /* threads that copy Q, and as many that copy dO */
    static constexpr int Q_WARPS = Q_WARPS_, Q_NT = ROWS / Q_WARPS / 8, Q_MT = DIM / (WARPS / Q_WARPS) / 16;
    static constexpr int KEY_TILE = KEYS * PITCH * 2, QUERY_TILE = ROWS * PITCH * 2, PAIR_TILE = ROWS * KEYS * 2;
    static constexpr int P_TILE = ROLES == 2 ? ROWS * KEYS * 4 : 0;
    static constexpr int Q_AT = KEY_TILE, DOUT_AT = Q_AT + QUERY_TILE, V_AT = Q_AT + 2 * QUERY_TILE;
    static constexpr int DS_AT = Q_AT + 3 * QUERY_TILE, P_AT = DS_AT + PAIR_TILE, P_END = P_AT + P_TILE,
                         V_END = V_AT + KEY_TILE;
    static constexpr int LSE_AT = P_END > V_END ? P_END : V_END, PLAN_AT = LSE_AT + 4 * ROWS * 4;
    static constexpr int BYTES = PLAN_AT + (int)sizeof(half_plan);
    static_assert(BYTES <= 99 * 1024, "what all GPUs from compute capability 8.0 on have");
};

template <class S> struct half_memory {
    unsigned char *base;
    __device__ __forceinline__ unsigned char *k() const {
        return base;
    }
    __device__ __forceinline__ unsigned char *v() const {
        return base + S::V_AT;
    }
    __device__ __forceinline__ unsigned char *q(int stage) const {
        return base + S::Q_AT + stage * 2 * S::QUERY_TILE;
    }
    __device__ __forceinline__ unsigned char *dout() const {
        return base + S::DOUT_AT;
    }
    __device__ __forceinline__ unsigned char *ds() const {
        return base + S::DS_AT;
    }
    __device__ __forceinline__ float4 *p() const {
        return (float4 *)(base + S::P_AT);
    }
    __device__ __forceinline__ float *lse(int stage) const {
        return (float *)(base + S::LSE_AT) + stage * 2 * S::ROWS;
    }
    __device__ __forceinline__ float *delta(int stage) const {
        return lse(stage) + S::ROWS;
    }
    __device__ __forceinline__ half_plan &plan() const {
        return *(half_plan *)(base + S::PLAN_AT);
    }
};

/* dS^T [KEYS, ROWS]: chunks of 8 queries, swizzled so that those of 8 keys on end meet all banks. */
template <int ROWS> __device__ __forceinline__ int pair_swizzle(int key) {
    return ROWS >= 64 ? key & 7 : ROWS == 32 ? key >> 1 & 3 : key >> 2 & 1;
}

/* dS as the B operand of a product along the keys, from dS^T. */
template <int ROWS> struct fragment_ds {
    uint32_t base;
    __device__ __forceinline__ fragment_ds(uint32_t tile, int row0) {
        int lane = lane_anew(), chunk = row0 / 8 + (lane >> 4);
        base = tile + (lane & 15) * ROWS * 2 + ((chunk ^ pair_swizzle<ROWS>(lane & 7)) << 4);
    }
    /* Queries row0 + 16 n on: x[0], x[1] for the first 8 of them, x[2], x[3] for the others. */
    __device__ __forceinline__ void load(uint32_t (&x)[4], int n, int k) const {
        load_matrices<true>(x, (base ^ n << 5) + k * 16 * ROWS * 2);
    }
};

#endif
