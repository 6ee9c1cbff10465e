/* The Hopper backward kernel's shape, its shared memory, and its barriers.
 *
 *   K, V      [KEYS, DIM] each, for the whole item
 *   Q, dO     [ROWS, DIM] each, two stages
 *   dS^T      [KEYS, ROWS], two stages
 *   dQ        [ROWS, DIM] of f32: two stages, in panels of 32 columns, swizzled as the copy engine reads boxes; or one
 *             stage of rows, padded so that a warp's accumulators meet all banks
 *   lse, -delta [ROWS] each, two stages; lse as what it adds to exponents (backward_score.cuh), or as it is where
 *             scores are looked at one by one
 *   dV, dK    [KEYS, DIM] of f32 each, when the last products have come, from K on (backward_keys.cuh)
 *
 * One thread takes the item, makes the barriers and, where tiles come by boxes, starts the copies of K, V and the first
 * step's Q and dO, of which the list says where they are: the planner needs longer to find them. Behind a barrier of
 * all threads they have roles: the planner (a lane), producers, adders, and two warpgroups of consumers. Step j is a
 * block of queries; it has stage j % 2 and the plan j % QUERY_PLANS.
 *
 *                  tiles come by boxes                              row by row
 *   planner        lane 0 of warp 1                                 lane 0 of warp 2
 *   producers      warp 0: one lane starts bulk copies              warps 0 and 1
 *   adders         a lane of warps 2 and 3, for every second step   warp 3
 *
 *   keys_full         K has come
 *   values_full       V has come
 *   planned[plan]     planner ──► producers, adders   the plan has been written
 *   done[plan]        adder ──► planner               dQ is in memory, and nobody needs the plan
 *   full[stage]       producers ──► consumers         Q, dO, lse, delta, look have come; through it, the plan,
 *                                                     unless the step is one that came with K
 *   empty[stage]      consumers ──► producers         they have been used
 *   ds_full[stage]    consumers ──► consumers         dS of both is there
 *   ds_empty[stage]   consumers ──► consumers         both have multiplied dQ with it
 *   dq_full[stage]    consumers ──► adder             dQ can be added to device memory
 *   dq_empty[stage]   adder ──► consumers             it has been read
 *   checked           adders ──► all                  whether K has infinities or NaNs: then the consumers do the item
 *                                                     alone; where rows come one by one they look through K themselves
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_LAYOUT_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_LAYOUT_CUH

#include "kernel/cuda/sm80/mma.cuh"
#include "kernel/cuda/sm90/backward_turns.cuh"
#include "kernel/cuda/sm90/bulk_copy.cuh"
#include "kernel/cuda/sm90/tensor_maps.cuh"
#include "kernel/cuda/sm90/wgmma.cuh"
#include "kernel/cuda/tile_cursor.cuh"

enum { QUERY_PLANS = 8 };

/* A block of queries against the item's keys. */
struct query_plan {
    int block;        /* -1: there is no such step */
    int a0, count;    /* first query, and the tile's queries */
    int lo, hi, keys; /* of the tile */
    float log2_times; /* likewise */
    gpu_row_set set;  /* of Q, dO and dQ, which have three maps for each that is listed */
    int row;          /* which of the set's rows is the block's first */
    int head;
    int queries;       /* of which rank its queries are */
    int turn;          /* of the item among those of its tile, at the block's dQ, in the order of keys */
    const int *queued; /* device memory: how many turns come before the tile's; looked up by the adder */
    int *chain;
    int64_t first, each; /* the block's first row, and rows from one query to the next */
};

/* Where the rows of a step's queries are, for those who copy and add row by row. */
struct query_rows {
    row_source q, dout, dq;
};

/* Which lse and delta a step needs: `count` of them, of the rows first, first + each and so on of a head. */
struct sums_place {
    int64_t first, each;
    int queries; /* of which rank they are */
    int head, count;
    int full; /* first step: all of its pairs are visible */
};

/* Where dk and dv of the item's keys go. */
struct key_outputs {
    row_source dk, dv; /* of the tile's rows */
    int count;         /* of those */
};

/* What consumers have to look at to make P of a step. */
enum pair_look {
    LOOK_AT_NOTHING, /* all pairs are visible, and lse of all queries are finite and not large */
    LOOK_AT_PLACES,  /* the latter alone */
    LOOK_AT_SCORES,  /* a query may have seen nothing, scores may be large, and pairs may not be visible */
    LOOK_NO_MORE,    /* there is no such step */
};

struct item_plan {
    item_place item;
    int odd_keys;      /* K has an infinity or a NaN */
    pair_look look[2]; /* for each stage */
    int begun;         /* the first step's Q and dO have been asked for with K */
    key_outputs outputs;
    query_plan queries[QUERY_PLANS];
};

/* WIDTH: columns that are multiplied, a multiple of 32; tiles have DIM of them, whole panels. BOXES: tiles are brought
 * by bulk tensor copies, and dQ is added by them. */
template <class T_, int DIM_, int WIDTH_, bool BOXES_> struct backward_wgmma_shape {
    using T = T_;
    static constexpr bool BOXES = BOXES_;
    static constexpr int DIM = DIM_, WIDTH = WIDTH_, KEYS = 128, ROWS = 8192 / DIM, THREADS = 384;
    static constexpr int PRODUCERS = BOXES ? 32 : 64 /* threads */, ADDERS = BOXES ? 2 : 1;
    static constexpr int ENDS = ADDERS;                  /* plans of no step, behind the last */
    static constexpr int CHECKERS = BOXES ? ADDERS : 1;  /* that say what they have found in K */
    static constexpr int DQ_WRITERS = 256, RELEASES = 1; /* threads that write dQ; of a turn */
    static constexpr int STEP_ADDERS = 1;                /* of a step's dQ, in this CTA */
    static constexpr int TURNS_TOGETHER = TURN_GROUP;
    /* OTHER + 2 * CONSUMER = 504, what there is. With 24 the planner spills, to a cache that every turn empties; DIM 64
     * has 128 queries, and its consumers would spill with less than 240. */
    static constexpr int OTHER_REGISTERS = DIM > 64 ? 40 : 24, CONSUMER_REGISTERS = DIM > 64 ? 232 : 240;
    static constexpr int KEY_TILE = KEYS * DIM * 2, QUERY_TILE = ROWS * DIM * 2, PAIR_TILE = KEYS * ROWS * 2;
    static constexpr int DQ_STAGES = BOXES ? 2 : 1, DQ_PITCH = DIM * 4 + 32 /* of rows */, DQ_PANEL = ROWS * 128;
    static constexpr int DQ_TILE = ROWS * (BOXES ? DIM * 4 : DQ_PITCH);
    static constexpr int Q_AT = 2 * KEY_TILE, DS_AT = Q_AT + 4 * QUERY_TILE, DQ_AT = DS_AT + 2 * PAIR_TILE;
    static constexpr int IDLE_BYTES = DQ_AT; /* which nobody uses any more when an item's last products have come */
    static constexpr int SUMS_AT = DQ_AT + DQ_STAGES * DQ_TILE, BARRIERS_AT = SUMS_AT + 4 * ROWS * 4;
    static constexpr int BARRIERS = 15 + 2 * QUERY_PLANS, PLAN_AT = BARRIERS_AT + BARRIERS * 8;
    static constexpr int QUERY_ROWS_AT = PLAN_AT + (int)sizeof(item_plan);
    static constexpr int BYTES = QUERY_ROWS_AT + (BOXES ? 0 : QUERY_PLANS * (int)sizeof(query_rows));
    static_assert(WIDTH <= DIM && WIDTH > DIM - PANEL_WIDTH && WIDTH % 32 == 0, "dQ is in panels of 32 columns");
    static_assert(DIM == 64 || DIM == 128, "dQ is shared out by columns or by rows of 64");
    static_assert(BYTES <= 227 * 1024, "more shared memory than there is");
};

template <class S> struct backward_memory {
    unsigned char *generic;
    uint32_t base; /* the same, as an address in shared memory */
    __device__ __forceinline__ uint32_t k(void) const {
        return base;
    }
    __device__ __forceinline__ uint32_t v(void) const {
        return base + S::KEY_TILE;
    }
    __device__ __forceinline__ uint32_t q(int stage) const {
        return base + S::Q_AT + stage * 2 * S::QUERY_TILE;
    }
    __device__ __forceinline__ uint32_t dout(int stage) const {
        return q(stage) + S::QUERY_TILE;
    }
    __device__ __forceinline__ uint32_t ds(int stage) const {
        return base + S::DS_AT + stage * S::PAIR_TILE;
    }
    __device__ __forceinline__ uint32_t dq(uint32_t j) const {
        return base + S::DQ_AT + j % S::DQ_STAGES * S::DQ_TILE;
    }
    __device__ __forceinline__ float *lse(int stage) const {
        return (float *)(generic + S::SUMS_AT) + stage * 2 * S::ROWS;
    }
    __device__ __forceinline__ float *minus_delta(int stage) const {
        return lse(stage) + S::ROWS;
    }
    __device__ __forceinline__ item_plan &plan(void) const {
        return *(item_plan *)(generic + S::PLAN_AT);
    }
    /* Of the first step, until it is full: nobody writes dS before. */
    __device__ __forceinline__ sums_place &first_sums(void) const {
        return *(sums_place *)(generic + S::DS_AT);
    }
    __device__ __forceinline__ query_rows &rows_of(int j) const {
        return ((query_rows *)(generic + S::QUERY_ROWS_AT))[j % QUERY_PLANS];
    }
    __device__ __forceinline__ uint32_t barrier(int i) const {
        return base + S::BARRIERS_AT + i * 8;
    }
    __device__ __forceinline__ uint32_t keys_full(void) const {
        return barrier(0);
    }
    __device__ __forceinline__ uint32_t checked(void) const {
        return barrier(1);
    }
    __device__ __forceinline__ uint32_t full(int stage) const {
        return barrier(2 + stage);
    }
    __device__ __forceinline__ uint32_t empty(int stage) const {
        return barrier(4 + stage);
    }
    __device__ __forceinline__ uint32_t dq_full(uint32_t j) const {
        return barrier(6 + j % S::DQ_STAGES);
    }
    __device__ __forceinline__ uint32_t dq_empty(uint32_t j) const {
        return barrier(8 + j % S::DQ_STAGES);
    }
    __device__ __forceinline__ uint32_t planned(int j) const {
        return barrier(10 + j % QUERY_PLANS);
    }
    __device__ __forceinline__ uint32_t done(int j) const {
        return barrier(10 + QUERY_PLANS + j % QUERY_PLANS);
    }
    __device__ __forceinline__ uint32_t ds_full(int stage) const {
        return barrier(10 + 2 * QUERY_PLANS + stage);
    }
    __device__ __forceinline__ uint32_t ds_empty(int stage) const {
        return barrier(12 + 2 * QUERY_PLANS + stage);
    }
    __device__ __forceinline__ uint32_t values_full(void) const {
        return barrier(14 + 2 * QUERY_PLANS);
    }
};

/* Named barriers of the consumers. PAIRS_BARRIER: when P and dS are written (backward_nonfinite.cuh). ORDER_BARRIER +
 * g: consumer g may start its products of a step (backward_wgmma.cuh). */
enum { PAIRS_BARRIER = 3, ORDER_BARRIER = 10 };

/* By one thread; the others see it behind a barrier. */
template <class S> __device__ __forceinline__ void make_barriers(const backward_memory<S> &memory) {
    mbarrier_init(memory.keys_full(), S::BOXES ? 1 : S::PRODUCERS);
    mbarrier_init(memory.values_full(), S::BOXES ? 1 : S::PRODUCERS);
    mbarrier_init(memory.checked(), S::CHECKERS);
    for (int stage = 0; stage < 2; stage++) {
        mbarrier_init(memory.full(stage), S::PRODUCERS);
        mbarrier_init(memory.empty(stage), 8);
        mbarrier_init(memory.ds_full(stage), 8);
        mbarrier_init(memory.ds_empty(stage), 8);
    }
    for (int stage = 0; stage < S::DQ_STAGES; stage++) {
        mbarrier_init(memory.dq_full(stage), S::DQ_WRITERS);
        mbarrier_init(memory.dq_empty(stage), 1);
    }
    for (int j = 0; j < QUERY_PLANS; j++) {
        mbarrier_init(memory.planned(j), 1);
        mbarrier_init(memory.done(j), S::STEP_ADDERS);
    }
    mbarrier_inits_done();
}

template <class T, int ROWS>
__device__ __forceinline__ float panel_element(const unsigned char *tile, int row, int column) {
    return element<T>::widen(*(const T *)(tile + panel_chunk_at<ROWS>(row, column / 8) + column % 8 * 2));
}

/* A barrier of the consumers that says whether one of their threads said so. */
__device__ __forceinline__ bool consumers_any(bool mine) {
    int any;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.b32 p, %1, 0;\nbar.red.or.pred q, 4, 256, p;\nselp.b32 %0, 1, 0, q;\n}\n"
                 : "=r"(any)
                 : "r"((int)mine)
                 : "memory");
    return any != 0;
}

#endif
