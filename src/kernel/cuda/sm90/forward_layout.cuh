/* The forward kernel's shape, its shared memory, and its barriers.
 *
 *   Q [ROWS, DIM] | K, V of stage 0 [KEYS, DIM] | K, V of stage 1 | ... | notes | maxima | mbarriers
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
 * The consumers are ever only one step apart from each other, and the producer is at most STAGES ahead of the last.
 *
 * Epilogue. Where a unit's o goes to device memory by the copy engine (STAGED, two consumers), it lies meanwhile in the
 * stage of the unit's last step: that of consumer 0 in K's tile, that of consumer 1 in V's. A consumer writes there
 * when the other one has read the tile, and k_empty or v_empty of that stage is arrived at for the warp when its o has
 * been read:
 *
 *   consumer 0   S | softmax | P V | waits K_READ, arrives V_READ | o to K's tile | S of the next unit | k_empty
 *   consumer 1       S, arrives K_READ | softmax | P V | waits V_READ | o to V's tile | S of the next | v_empty
 *
 * A warp looks at that in the next unit, behind its first products; or a third warp beside the producers, the sender,
 * starts the copies and arrives:
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
    STEP_MASKED = 1,        /* some pairs are not visible, or keys are missing */
    STEP_ENDS = 2,          /* the unit's last */
    STEP_NONE = 4,          /* there is no more work */
    STEP_SHORT = 8,         /* a tile's first, of no more than FEW_KEYS keys */
    STEP_BEFORE_SHORT = 16, /* the step behind it is a short one of the same unit */
};

/* Where the keys that a unit sees of a tile are no multiple of a block's, and not many more, the first block has what
 * is left over: its S and its exponentials are those of so many keys alone, which the main loop knows nothing of. */
enum { FEW_KEYS = 64 };

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

/* What the copy of a step's V needs. map NULL: there is no more work. */
struct value_note {
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

/* BOXES: tiles are brought by bulk tensor copies. TURNS: consumers issue their products in turns, so that one computes
 * a softmax while another multiplies. PLAIN: all rows are of stride 1, maps have 4
 * dimensions (tensor_maps.cuh), and pairs count once. */
template <class T_, int DIM_, int KEYS_, int GROUPS_, int STAGES_, bool TURNS_, bool BOXES_, bool PLAIN_ = false>
struct forward_wgmma_shape {
    using T = T_;
    static constexpr int DIM = DIM_, KEYS = KEYS_, GROUPS = GROUPS_, STAGES = STAGES_;
    static constexpr bool TURNS = TURNS_, BOXES = BOXES_, PLAIN = PLAIN_;
    static constexpr int ROWS = 64 * GROUPS, THREADS = 128 * (GROUPS + 1);
    static constexpr int PRODUCERS = BOXES ? 1 : 128; /* threads that arrive when a tile has been copied */
    /* S, P and o of 192 keys at D = 128 alone are 208 of a consumer's registers. */
    static constexpr int PRODUCER_REGISTERS = GROUPS == 3 ? 32 : !BOXES ? 56 : KEYS * DIM >= 192 * 128 ? 24 : 40;
    static constexpr int CONSUMER_REGISTERS = ((GROUPS == 2 ? 504 : 512) - PRODUCER_REGISTERS) / GROUPS;
    /* P is packed beside the last quarter of the exponentials of the thread's second row, from this block of 8 columns
     * on; KEYS / 8: behind all of them. The former takes the packing out of the way of the next products and costs a
     * branch for each step, which pays where a step has many products: 1.01 of the rate at 176 keys and D = 128 (192
     * have not been timed without it), 1.03 at D = 256, but 0.99 at 128 keys, and 0.96 at D = 64. */
    static constexpr bool PACKS_BESIDE = BOXES && KEYS * DIM >= 80 * 256;
    static constexpr int PACKED_FROM = PACKS_BESIDE ? KEYS / 8 * 3 / 4 / 2 * 2 : KEYS / 8;
    /* It knows of pairs that count several times; with 192 keys at D = 128 there are no registers for that. */
    static constexpr bool COUNTS = !PLAIN && KEYS * DIM < 192 * 128;
    static constexpr bool SHORT_FIRST = BOXES && KEYS >= 3 * FEW_KEYS;
    static constexpr int KEY_TILE = KEYS * DIM * 2, Q_TILE = ROWS * DIM * 2;
    static constexpr int OUTPUT_TILE = 64 * DIM * 4; /* a consumer's o */
    /* o of 64 rows fits into a tile of keys, and there is one for each consumer. */
    static constexpr bool STAGED = BOXES && TURNS && GROUPS == 2 && OUTPUT_TILE <= KEY_TILE;
    /* A warp of its own sends it. With two stages the next unit's second step waits for o's place, and consumers, each
     * of whose warps sends its own rows, are sooner. */
    static constexpr bool SENDER = STAGED && STAGES > 2;
    static constexpr int NOTES_AT = Q_TILE + STAGES * 2 * KEY_TILE;
    static constexpr int TIMES_AT = NOTES_AT + STAGES * (int)sizeof(key_block);
    static constexpr int UNITS = STAGES + 2, UNITS_AT = TIMES_AT + (COUNTS ? STAGES * 4 + 15 : 0) / 16 * 16;
    static constexpr int VALUES_AT = UNITS_AT + (UNITS * (int)sizeof(unit_note) + 15) / 16 * 16;
    static constexpr int MAXIMA_AT = VALUES_AT + (BOXES ? 2 * STAGES * (int)sizeof(value_note) : 0);
    static constexpr int SENDINGS_AT = MAXIMA_AT + ROWS * 4;
    static constexpr int BARRIERS_AT = SENDINGS_AT + (SENDER ? GROUPS * (int)sizeof(sending) : 0);
    static constexpr int PLAN_AT = BARRIERS_AT + (6 * STAGES + 1 + (SENDER ? 2 * GROUPS : 0)) * 8;
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
    __device__ __forceinline__ uint32_t q(void) const {
        return base;
    }
    __device__ __forceinline__ uint32_t k(int stage) const {
        return base + S::Q_TILE + stage * 2 * S::KEY_TILE;
    }
    __device__ __forceinline__ uint32_t v(int stage) const {
        return k(stage) + S::KEY_TILE;
    }
    __device__ __forceinline__ uint32_t barrier(int kind, int stage) const {
        return base + S::BARRIERS_AT + (kind * S::STAGES + stage) * 8;
    }
    __device__ __forceinline__ uint32_t k_full(int stage) const {
        return barrier(0, stage);
    }
    __device__ __forceinline__ uint32_t v_full(int stage) const {
        return barrier(1, stage);
    }
    __device__ __forceinline__ uint32_t k_empty(int stage) const {
        return barrier(2, stage);
    }
    __device__ __forceinline__ uint32_t v_empty(int stage) const {
        return barrier(3, stage);
    }
    __device__ __forceinline__ uint32_t q_empty(void) const {
        return barrier(4, 0);
    }
    /* slot: of 2 STAGES, one for each of as many steps. */
    __device__ __forceinline__ uint32_t v_told(int slot) const {
        return q_empty() + 8 + slot * 8;
    }
    __device__ __forceinline__ uint32_t o_full(int group) const {
        return v_told(2 * S::STAGES + group);
    }
    __device__ __forceinline__ uint32_t o_empty(int group) const {
        return v_told(2 * S::STAGES + S::GROUPS + group);
    }
    __device__ __forceinline__ sending &sending_of(int group) const {
        return ((sending *)(generic + S::SENDINGS_AT))[group];
    }
    /* Where o of a consumer lies until it has been sent, in the stage of the unit's last step, and the mbarrier that
     * the place is left at. */
    __device__ __forceinline__ uint32_t outputs(int group, int stage) const {
        return group == 0 ? k(stage) : v(stage);
    }
    __device__ __forceinline__ uint32_t outputs_empty(int group, int stage) const {
        return group == 0 ? k_empty(stage) : v_empty(stage);
    }
    __device__ __forceinline__ value_note &value(int slot) const {
        return ((value_note *)(generic + S::VALUES_AT))[slot];
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
    mbarrier_init(memory.q_empty(), 4 * S::GROUPS);
    for (int slot = 0; slot < 2 * S::STAGES; slot++) mbarrier_init(memory.v_told(slot), 1);
    for (int group = 0; S::SENDER && group < S::GROUPS; group++) {
        mbarrier_init(memory.o_full(group), 4);
        mbarrier_init(memory.o_empty(group), 1);
    }
    mbarrier_inits_done();
}

#endif
