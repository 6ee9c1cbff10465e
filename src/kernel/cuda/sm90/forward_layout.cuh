/* The forward kernel's shape, its shared memory, and its barriers.
 *
 *   Q [ROWS, DIM] | K, V of stage 0 [KEYS, DIM] | K, V of stage 1 | ... | o | notes | maxima | mbarriers
 *
 * The producer goes through the units that the CTA takes and brings their tiles: two warps that start bulk copies, one
 * of Q and K and one of V, or a warpgroup that copies row by row. GROUPS warpgroups, the consumers, compute, 64 query
 * rows each. Steps (a block of keys for a unit) are numbered through all units; a step has a stage, a stage has four
 * mbarriers, and Q has one:
 *
 *             producer                              consumers
 *   k_full    writes the note, arrives   ────────►  wait, read the note, S = Q K^T
 *             (copies of K, and of a unit's first
 *             step's Q, have landed)
 *   k_empty   waits before it writes again ◄──────  every warp arrives when S has come
 *   v_full    arrives (V has landed) ─────────────► wait, O += P V
 *   v_empty   waits ◄─────────────────────────────  every warp arrives when O has come
 *   q_empty   waits before a unit's Q ◄───────────  every warp arrives when the unit's last S has come
 *
 * Where there are two warps, the first tells the second of every step: v_told, of which there are 2 STAGES, as there
 * are of the notes that go with it. It tells of step n + STAGES when K of step n - 1 has been left, so that V of step n
 * - 2 has landed, whose note has been read.
 *
 * When S of step n has come, K of step n + STAGES can be copied; V of step n + STAGES - 1 only when P V of step n - 1
 * has come, which is multiplied behind S of step n, and P of step n has been exponentiated to three quarters.
 *
 * Turns. Consumers issue their products one after the other, so that one computes a softmax while another multiplies.
 * They are ever only one step apart from each other, and the producer is at most STAGES ahead of the last.
 *
 * Free. With three consumers of 64 rows and small blocks, products and softmaxes of different consumers meet without
 * turns. Each goes through a unit by itself, up to STAGES - 1 steps ahead of the last: it has a tile of Q of its own,
 * with a q_empty, and leaves steps at once of which its rows see nothing. A third warp brings Q:
 *
 *             producers                             consumer g
 *   q_told    the first arrives when a unit begins; of these there are as many as there are notes on units
 *   q_full    the third arrives (Q has landed) ───► waits before the unit's first S
 *   q_empty   the third waits ◄───────────────────  every warp arrives when the unit's last K has been left
 *
 *   K, V      ▇▇▇▇▇▇▇▇▇▇▇▇▇▇│▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇     a unit under a causal mask, and the next:
 *   rows 0    ▇▇▇▇▇▇▇▇▇▇··     │▇▇▇▇▇▇▇▇▇▇▇▇▇··     ▇ computed, · left at once
 *   rows 64   ▇▇▇▇▇▇▇▇▇▇▇▇·    │▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇·
 *   rows 128  ▇▇▇▇▇▇▇▇▇▇▇▇▇▇   │▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇
 *
 * Epilogue, free: a warp puts its o into a place of its consumer's own, starts the copies to device memory, and waits
 * before it writes there again. Epilogue, turns (SENDER, two consumers): o lies in the stage of the unit's last step
 * meanwhile, that of consumer 0 in K's tile, that of consumer 1 in V's. A consumer writes there when the other one has
 * read the tile:
 *
 *   consumer 0   S | softmax | P V | waits K_READ, arrives V_READ | o to K's tile | S of the next unit
 *   consumer 1       S, arrives K_READ | softmax | P V | waits V_READ | o to V's tile | S of the next
 *
 * The sender, a warp beside the producers, starts the copies, and arrives at k_empty or v_empty of that stage for all
 * warps when o has been read:
 *
 *             consumer                              sender
 *   o_full    every warp arrives when its o lies ─► waits, starts the copies to device memory
 *             in its place
 *   o_empty   waits before it tells of the next ◄── arrives when they have been read
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_LAYOUT_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_LAYOUT_CUH

#include "kernel/cuda/finished_rows.cuh"
#include "kernel/cuda/sm90/bulk_copy.cuh"
#include "kernel/cuda/sm90/tensor_maps.cuh"
#include "kernel/cuda/sm90/wgmma.cuh"
#include "kernel/cuda/tile_cursor.cuh"

enum step_flags {
    STEP_MASKED = 1, /* some pairs are not visible, or keys are missing */
    STEP_ENDS = 2,   /* the unit's last */
    STEP_NONE = 4,   /* there is no more work */
    /* Where consumers are free, of consumer g, shifted by g: */
    STEP_EDGE = 1 << 8,    /* some of its pairs are not visible */
    STEP_UNSEEN = 1 << 12, /* none is */
    STEP_OVER = 1 << 16,   /* none is in all steps of the unit that follow */
};

/* What consumers need of a step. Row r of the unit sees keys c of the block with r + lo <= c < min(r + hi, count). */
struct __align__(16) key_block {
    int flags, lo, hi, count;
};

/* What they need of a unit. Of the notes on units there are STAGES + 2: the producer begins a unit when all consumers
 * have at least come to the one that is STAGES before it, and o of the one before that has been sent. */
struct unit_note {
    unit_place unit;
    int64_t q_first, q_stride; /* of its tile, whose row a is q_first + a q_stride of the pass's rows */
    unsigned number;           /* of the unit in the launch */
    gpu_row_set set;           /* where there are tensor maps: of its queries */
    int row;                   /* and which of the set's rows is its first */
    int queries;               /* of which rank they are */
    float *lse;                /* of the unit's first row; NULL: not wanted */
    int64_t lse_step;
};

/* All but the set and its row. */
__device__ __forceinline__ unit_note note_of(const gpu_forward &args, const gpu_tile &t, const unit_place &unit,
                                             unsigned number) {
    const ra_view lse = query_rows_of(args, t).lse_out;
    float *first = lse.data ? query_row<float>(unit, lse, t.q_first + unit.a0 * t.q_stride) : NULL;
    return {unit, t.q_first, t.q_stride, number, {0, 0}, 0, t.queries, first, t.q_stride * lse.row};
}

/* What a copy of a step's V, or of a unit's Q, needs. map NULL: there is no more work. */
struct copy_note {
    const CUtensorMap *map;
    int remainder, row, head, batch;
};

/* What the copy engine does with a warp's o. */
enum send_how { SEND_NOTHING, SEND_STORE, SEND_ADD, SEND_NO_MORE };

/* What a consumer tells the sender of a unit: how the o of each of its warps is sent, and the unit's last stage. */
struct __align__(16) sending {
    int how[4], stage;
};

/* Named barriers of the consumers, behind those of the turns and of the warpgroups. */
enum { K_READ_BARRIER = 8, V_READ_BARRIER = 9 };

/* A consumer's barrier. */
__device__ __forceinline__ int group_barrier(int group) {
    return 5 + group;
}

/* A step as it is planned for those who copy row by row; two of them, since the next is planned while this one's rows
 * are copied. */
struct row_step {
    key_source keys;
    unit_place unit;
    key_cursor at, next; /* next: the unit's keys after these */
    int begins, ends;    /* the unit's first or last step */
    int none;            /* there is no more work */
    unsigned number;
};

enum { ROW_PLAN_BYTES = 2 * sizeof(row_step) };

/* BOXES: tiles are brought by bulk tensor copies. TURNS: consumers issue their products in turns. PLAIN: all rows are
 * of stride 1, maps have 4 dimensions (tensor_maps.cuh), and pairs count once. */
template <class T_, int DIM_, int KEYS_, int GROUPS_, int STAGES_, bool TURNS_, bool BOXES_, bool PLAIN_ = false>
struct forward_wgmma_shape {
    using T = T_;
    static constexpr int DIM = DIM_, KEYS = KEYS_, GROUPS = GROUPS_, STAGES = STAGES_;
    static constexpr bool TURNS = TURNS_, FREE = !TURNS_, BOXES = BOXES_, PLAIN = PLAIN_;
    static_assert(TURNS || BOXES, "rows that are copied one by one are for consumers in turns");
    static constexpr int ROWS = 64 * GROUPS, THREADS = 128 * (GROUPS + 1);
    static constexpr int PRODUCERS = BOXES ? 1 : 128; /* threads that arrive when a tile has been copied */
    static constexpr int PRODUCER_REGISTERS = GROUPS == 3 ? 32 : !BOXES ? 56 : 40;
    static constexpr int CONSUMER_REGISTERS = ((GROUPS == 2 ? 504 : 512) - PRODUCER_REGISTERS) / GROUPS;
    /* P is packed beside the last quarter of the exponentials of the thread's second row, from this block of 8 columns
     * on; KEYS / 8: behind all of them. The former takes the packing out of the way of the next products and costs a
     * branch for each step, which pays where a step has many products: 1.03 of the rate at D = 256, but 0.99 at 128
     * keys, 0.98 at 80 keys of free consumers, where registers are spilled for it, and 0.96 at D = 64. */
    static constexpr bool PACKS_BESIDE = BOXES && KEYS * DIM >= 80 * 256;
    static constexpr int PACKED_FROM = PACKS_BESIDE ? KEYS / 8 * 3 / 4 / 2 * 2 : KEYS / 8;
    static constexpr bool COUNTS = !PLAIN; /* it knows of pairs that count several times */
    static constexpr int KEY_TILE = KEYS * DIM * 2, Q_TILE = ROWS * DIM * 2;
    /* Q lies in tiles of so many rows, each of which has a q_empty. */
    static constexpr int Q_ROWS = FREE ? 64 : ROWS, Q_TILES = ROWS / Q_ROWS;
    static constexpr int OUTPUT_TILE = 64 * DIM * 4; /* a consumer's o */
    /* o of 64 rows fits into a tile of keys, and there is one for each consumer. */
    static constexpr bool SENDER = BOXES && TURNS && GROUPS == 2 && OUTPUT_TILE <= KEY_TILE;
    static constexpr bool STAGED = SENDER || FREE; /* o leaves by the copy engine */
    /* Of a warp, where each has one: 16 rows of 16 bits, or half of the columns of f32. */
    static constexpr int OUTPUT_PLACE = 16 * DIM * 2;
    static constexpr int OUTPUTS_AT = Q_TILE + STAGES * 2 * KEY_TILE;
    static constexpr int NOTES_AT = OUTPUTS_AT + (FREE ? 4 * GROUPS * OUTPUT_PLACE : 0);
    static constexpr int TIMES_AT = NOTES_AT + STAGES * (int)sizeof(key_block);
    static constexpr int UNITS = STAGES + 2, UNITS_AT = TIMES_AT + (COUNTS ? STAGES * 4 + 15 : 0) / 16 * 16;
    static constexpr int VALUES_AT = UNITS_AT + (UNITS * (int)sizeof(unit_note) + 15) / 16 * 16;
    static constexpr int QUERIES_AT = VALUES_AT + (BOXES ? 2 * STAGES * (int)sizeof(copy_note) : 0);
    static constexpr int MAXIMA_AT = QUERIES_AT + (FREE ? UNITS * (int)sizeof(copy_note) : 0);
    static constexpr int SENDINGS_AT = MAXIMA_AT + ROWS * 4;
    static constexpr int BARRIERS_AT = SENDINGS_AT + (SENDER ? GROUPS * (int)sizeof(sending) : 0);
    /* Those of stages, of tiles of Q, and of steps whose V is told of; behind them those of the sender, or of Q where
     * consumers are free. */
    static constexpr int BARRIERS = 4 * STAGES + Q_TILES + 2 * STAGES +
                                    (FREE     ? GROUPS + UNITS
                                     : SENDER ? 2 * GROUPS
                                              : 0);
    static constexpr int PLAN_AT = BARRIERS_AT + BARRIERS * 8;
    static constexpr int BYTES = PLAN_AT + (BOXES ? 0 : ROW_PLAN_BYTES);
    static_assert(KEYS % 16 == 0 && KEYS * PANEL_ROW_BYTES % 1024 == 0, "panels start at multiples of 1024 bytes");
    static_assert(BYTES <= 227 * 1024, "a multiprocessor has no more");
};

template <class S> struct forward_memory {
    unsigned char *generic;
    uint32_t base; /* the same, as an address in shared memory */
    __device__ __forceinline__ key_block &note(int stage) const {
        return ((key_block *)(generic + S::NOTES_AT))[stage];
    }
    /* Of how often each pair of the step counts. Only where S::COUNTS. */
    __device__ __forceinline__ float &log2_times(int stage) const {
        return ((float *)(generic + S::TIMES_AT))[stage];
    }
    __device__ __forceinline__ unit_note &unit(int slot) const {
        return ((unit_note *)(generic + S::UNITS_AT))[slot];
    }
    /* [ROWS]: the m that the unit's rows had in device memory. */
    __device__ __forceinline__ float *maxima(void) const {
        return (float *)(generic + S::MAXIMA_AT);
    }
    /* Of a consumer's first query. */
    __device__ __forceinline__ uint32_t q(int group) const {
        return base + group * (S::FREE ? S::Q_TILE / S::GROUPS : 64 * PANEL_ROW_BYTES);
    }
    __device__ __forceinline__ uint32_t k(int stage) const {
        return base + S::Q_TILE + stage * 2 * S::KEY_TILE;
    }
    __device__ __forceinline__ uint32_t v(int stage) const {
        return k(stage) + S::KEY_TILE;
    }
    __device__ __forceinline__ uint32_t barrier(int number) const {
        return base + S::BARRIERS_AT + number * 8;
    }
    __device__ __forceinline__ uint32_t k_full(int stage) const {
        return barrier(stage);
    }
    __device__ __forceinline__ uint32_t v_full(int stage) const {
        return barrier(S::STAGES + stage);
    }
    __device__ __forceinline__ uint32_t k_empty(int stage) const {
        return barrier(2 * S::STAGES + stage);
    }
    __device__ __forceinline__ uint32_t v_empty(int stage) const {
        return barrier(3 * S::STAGES + stage);
    }
    /* Of the tile of Q that a consumer's rows are in. */
    __device__ __forceinline__ uint32_t q_empty(int group) const {
        return barrier(4 * S::STAGES + (S::FREE ? group : 0));
    }
    /* slot: of 2 STAGES, one for each of as many steps. */
    __device__ __forceinline__ uint32_t v_told(int slot) const {
        return barrier(4 * S::STAGES + S::Q_TILES + slot);
    }
    __device__ __forceinline__ uint32_t q_full(int group) const {
        return v_told(2 * S::STAGES + group);
    }
    /* slot: of a unit's note. */
    __device__ __forceinline__ uint32_t q_told(int slot) const {
        return q_full(S::GROUPS + slot);
    }
    __device__ __forceinline__ uint32_t o_full(int group) const {
        return v_told(2 * S::STAGES + group);
    }
    __device__ __forceinline__ uint32_t o_empty(int group) const {
        return o_full(S::GROUPS + group);
    }
    __device__ __forceinline__ sending &sending_of(int group) const {
        return ((sending *)(generic + S::SENDINGS_AT))[group];
    }
    /* Where o of a consumer lies until the sender has sent it, in the stage of the unit's last step, and the mbarrier
     * that the place is left at. */
    __device__ __forceinline__ uint32_t outputs(int group, int stage) const {
        return group == 0 ? k(stage) : v(stage);
    }
    __device__ __forceinline__ uint32_t outputs_empty(int group, int stage) const {
        return group == 0 ? k_empty(stage) : v_empty(stage);
    }
    /* A warp's own, of all consumers' warps. */
    __device__ __forceinline__ uint32_t own_outputs(int warp) const {
        return base + S::OUTPUTS_AT + warp * S::OUTPUT_PLACE;
    }
    __device__ __forceinline__ copy_note &value(int slot) const {
        return ((copy_note *)(generic + S::VALUES_AT))[slot];
    }
    __device__ __forceinline__ copy_note &queries(int slot) const {
        return ((copy_note *)(generic + S::QUERIES_AT))[slot];
    }
};

/* A warp has read what is in a stage. */
__device__ __forceinline__ void leave_stage(uint32_t empty) {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty);
}

/* The next of the notes on units. */
template <class S> __device__ __forceinline__ int next_slot(int slot) {
    return slot == S::UNITS - 1 ? 0 : slot + 1;
}

/* By one thread; the others see it behind a barrier. */
template <class S> __device__ __forceinline__ void make_barriers(const forward_memory<S> &memory) {
    for (int stage = 0; stage < S::STAGES; stage++) {
        mbarrier_init(memory.k_full(stage), S::PRODUCERS);
        mbarrier_init(memory.v_full(stage), S::PRODUCERS);
        mbarrier_init(memory.k_empty(stage), 4 * S::GROUPS);
        mbarrier_init(memory.v_empty(stage), 4 * S::GROUPS);
    }
    for (int tile = 0; tile < S::Q_TILES; tile++) mbarrier_init(memory.q_empty(tile), 4 * S::GROUPS / S::Q_TILES);
    for (int group = 0; S::FREE && group < S::GROUPS; group++) mbarrier_init(memory.q_full(group), 1);
    for (int slot = 0; S::FREE && slot < S::UNITS; slot++) mbarrier_init(memory.q_told(slot), 1);
    for (int slot = 0; slot < 2 * S::STAGES; slot++) mbarrier_init(memory.v_told(slot), 1);
    for (int group = 0; S::SENDER && group < S::GROUPS; group++) {
        mbarrier_init(memory.o_full(group), 4);
        mbarrier_init(memory.o_empty(group), 1);
    }
    mbarrier_inits_done();
}

#endif
