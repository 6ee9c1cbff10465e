/* Backward for rows of more than 128 elements on Hopper: shared memory, and what the two CTAs of a cluster tell each
 * other. */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_WIDE_LAYOUT_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_WIDE_LAYOUT_CUH

#include "kernel/cuda/sm90/backward_layout.cuh"
#include "kernel/cuda/sm90/cluster.cuh"

/* What the two CTAs of a cluster do together. */
struct cluster_plan {
    unsigned number;  /* of the item that was taken; in CTA 0 */
    int base, joined; /* its block of keys, which is CTA 0's; whether CTA 1 has the block behind it */
    int peer_odd;     /* the other CTA's K has an infinity or a NaN */
};

/* K, V | Q, dO, Q | dS^T of both CTAs | P^T | dQ of each consumer | K of the other's keys | lse, delta | mbarriers |
 * plan */
template <class T_> struct backward_wide_shape {
    using T = T_;
    static constexpr bool BOXES = true;
    static constexpr int DIM = 256, KEYS = 64, ROWS = 64, THREADS = 384, CTAS = 2;
    static constexpr int PRODUCERS = 32, ENDS = 1, CHECKERS = 1, DQ_WRITERS = 4, DQ_STAGES = 2 /* consumers */;
    static constexpr int STEP_ADDERS = 2, RELEASES = CTAS; /* of a step, in a CTA; of a turn */
    static constexpr int TURNS_TOGETHER = 1;
    static constexpr int OTHER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
    static constexpr int KEY_TILE = KEYS * DIM * 2, QUERY_TILE = ROWS * DIM * 2, PAIR_TILE = KEYS * ROWS * 2;
    static constexpr int DQ_PANEL = ROWS * 128, DQ_TILE = DQ_PANEL, DQ_COLUMNS = 64 /* of a consumer */;
    static constexpr int Q_AT = 2 * KEY_TILE, DS_AT = Q_AT + 3 * QUERY_TILE, P_AT = DS_AT + CTAS * PAIR_TILE;
    static constexpr int IDLE_BYTES = DS_AT; /* as in backward_layout.cuh */
    static constexpr int DQ_AT = P_AT + KEYS * ROWS * 4, OTHER_K_AT = DQ_AT + 2 * DQ_TILE;
    static constexpr int KEY_PANEL = KEYS * PANEL_ROW_BYTES, SUMS_AT = OTHER_K_AT + 2 * KEY_PANEL;
    static constexpr int BARRIERS_AT = SUMS_AT + 4 * ROWS * 4, MORE_BARRIERS = 15 + 2 * QUERY_PLANS;
    static constexpr int PLAN_AT = BARRIERS_AT + (MORE_BARRIERS + 5) * 8;
    static constexpr int CLUSTER_PLAN_AT = PLAN_AT + (int)sizeof(item_plan);
    static constexpr int QUERY_ROWS_AT = CLUSTER_PLAN_AT + (int)sizeof(cluster_plan), BYTES = QUERY_ROWS_AT;
    static_assert(BYTES <= 227 * 1024, "more shared memory than there is");
};

template <class S> struct backward_wide_memory : backward_memory<S> {
    __device__ __forceinline__ uint32_t dout_full(void) const {
        return this->barrier(S::MORE_BARRIERS);
    }
    __device__ __forceinline__ uint32_t dout_empty(void) const {
        return this->barrier(S::MORE_BARRIERS + 1);
    }
    __device__ __forceinline__ uint32_t peer_checked(void) const {
        return this->barrier(S::MORE_BARRIERS + 2);
    }
    __device__ __forceinline__ uint32_t dout(void) const {
        return backward_memory<S>::dout(0);
    }
    __device__ __forceinline__ uint32_t ds(int rank) const { /* of the keys of CTA `rank` */
        return this->base + S::DS_AT + rank * S::PAIR_TILE;
    }
    __device__ __forceinline__ uint32_t ds_full(void) const {
        return this->barrier(S::MORE_BARRIERS + 3);
    }
    __device__ __forceinline__ uint32_t ds_empty(void) const {
        return this->barrier(S::MORE_BARRIERS + 4);
    }
    __device__ __forceinline__ uint32_t other_k(int panel) const {
        return this->base + S::OTHER_K_AT + panel * S::KEY_PANEL;
    }
    __device__ __forceinline__ cluster_plan &cluster(void) const {
        return *(cluster_plan *)(this->generic + S::CLUSTER_PLAN_AT);
    }
    __device__ __forceinline__ uint32_t cluster_plan_address(void) const {
        return this->base + S::CLUSTER_PLAN_AT;
    }
};

#endif
