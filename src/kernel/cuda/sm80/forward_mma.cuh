/* Forward on mma.sync: FlashAttention-2 (Dao, 2023), with the state read first and written last. How elements are
 * multiplied is the products' affair: half_products.cuh for 16-bit elements, tf32_products.cuh for f32.
 *
 *   Q [ROWS, DIM] stays in shared memory, or in registers; a warp owns 16 MT of its rows, their scores and their
 * outputs in registers. For every block of keys that some row of the unit sees, over all tiles of its group:
 *
 *     copy V ────────────────┐          copy the next K ───────────┐
 *     S = Q K^T              │ barrier  P = e^{S - m}   O += P V   │ barrier
 *
 * or, with two stages of K and V:
 *
 *     copy the next K and V ────────────────────────┐
 *     S = Q K^T   P = e^{S - m}   O += P V          │ barrier
 *
 * The maximum that P is relative to follows the true one lazily: as long as no score of a warp's rows is more than 2^8
 * above it, nothing is rescaled. o and l are always relative to the m that is stored.
 */
#ifndef RA_KERNEL_CUDA_SM80_FORWARD_MMA_CUH
#define RA_KERNEL_CUDA_SM80_FORWARD_MMA_CUH

#include "kernel/cuda/dependent_launch.cuh"
#include "kernel/cuda/finished_rows.cuh"
#include "kernel/cuda/sm80/copy_tiles.cuh"
#include "kernel/cuda/sm80/half_products.cuh"

/* Where a unit stands. One thread plans, two steps ahead; what it planned is there for all after a barrier. It is in
 * shared memory, since registers are short. */
struct planned_keys {
    int b0;     /* first key of the block; -1: there is no such step */
    int source; /* index */
    int masked; /* some pairs are not visible */
};

struct unit_plan {
    unit_place unit;
    key_cursor cursor;     /* of the last step planned */
    planned_keys steps[4]; /* step j is at j % 4 */
    key_source sources[3];
};

/* Rows of DIM elements, in shared memory with a pitch of PITCH. HELD: queries are in registers, and keys and values
 * come where they were. STAGES: of K and V, 1 or 2. */
template <class T_, int DIM_, int KEYS_, int WARPS_, int MT_, int CTAS_, class PRODUCTS = half_products<T_>,
          bool HELD_ = false, int PITCH_ = DIM_, int STAGES_ = 1>
struct forward_mma_shape {
    using T = T_;
    using products = PRODUCTS;
    static constexpr int DIM = DIM_, PITCH = PITCH_, KEYS = KEYS_, WARPS = WARPS_, MT = MT_, CTAS = CTAS_;
    static constexpr bool HELD = HELD_;
    static constexpr int STAGES = STAGES_;
    static constexpr int THREADS = WARPS * 32, ROWS = WARPS * 16 * MT, KEY_TILE = KEYS * PITCH * (int)sizeof(T);
    static constexpr int QUERY_TILE = ROWS * PITCH * (int)sizeof(T), K_AT = HELD ? 0 : QUERY_TILE;
    static constexpr int V_AT = K_AT + KEY_TILE, STAGE = 2 * KEY_TILE, END = K_AT + STAGES * STAGE;
    static constexpr int PLAN_AT = END > QUERY_TILE ? END : QUERY_TILE;
    static constexpr int BYTES = PLAN_AT + (int)sizeof(unit_plan);
};

/* What a thread has of its warp's rows: row r is 16 (r / 2) + 8 (r % 2) + lane / 4 of the warp's. */
template <class S> struct forward_rows {
    float m[2 * S::MT], l[2 * S::MT]; /* l: this thread's share */
    float o[S::MT][S::DIM / 8][4];
};

/* ---- state ------------------------------------------------------------------------------------------------------- */

/* Of the thread's row r among the unit's rows. */
template <class S> __device__ __forceinline__ int row_in_unit(int r) {
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    return (warp * S::MT + r / 2) * 16 + r % 2 * 8 + lane / 4;
}

template <class S>
__device__ __forceinline__ void read_state(const gpu_forward &args, const unit_place &unit, forward_rows<S> &rows) {
    unit_state state = state_of_unit(args, unit);
#pragma unroll
    for (int r = 0; r < 2 * S::MT; r++)
        read_state_row<S::DIM / 8>(state, row_in_unit<S>(r), rows.m[r], rows.l[r], [&](int n, float2 x) {
            rows.o[r / 2][n][r % 2 * 2] = x.x;
            rows.o[r / 2][n][r % 2 * 2 + 1] = x.y;
        });
}

template <class S>
__device__ __forceinline__ void write_state(const gpu_forward &args, const unit_place &unit, forward_rows<S> &rows) {
    unit_state state = state_of_unit(args, unit);
#pragma unroll
    for (int r = 0; r < 2 * S::MT; r++)
        write_state_row<S::DIM / 8>(state, row_in_unit<S>(r), rows.m[r], rows.l[r], [&](int n) {
            return make_float2(rows.o[r / 2][n][r % 2 * 2], rows.o[r / 2][n][r % 2 * 2 + 1]);
        });
}

/* ---- mask -------------------------------------------------------------------------------------------------------- */

/* Pairs that are not visible get a score of -inf. */
template <class S>
__device__ __forceinline__ void mask_scores(const unit_place &unit, const key_source &keys, int b0,
                                            float (&s)[S::MT][S::KEYS / 8][4]) {
    int quad = (int)threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2 * S::MT; r++) {
        int a = unit.a0 + row_in_unit<S>(r);
        int from = a + keys.lo - b0, to = min(a + keys.hi + 1, keys.count) - b0;
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int key = n * 8 + quad * 2 + e;
                if (key < from || key >= to) s[r / 2][n][r % 2 * 2 + e] = -INFINITY;
            }
    }
}

/* V holds an infinity or a NaN. Rows that the key is visible to take it over as it is, whatever its weight: 0 times it
 * is NaN. Then it becomes tame in V, for the others. */
template <class S>
__device__ __forceinline__ void take_nonfinite_values(const unit_place &unit, const key_source &keys, int b0,
                                                      unsigned char *v, forward_rows<S> &rows) {
    using T = typename S::T;
    using products = typename S::products;
    constexpr int EACH = 16 / (int)sizeof(T);
    int quad = (int)(threadIdx.x & 3); /* seen to be below 4: chunks are then known, and their addresses few */
#pragma unroll
    for (int r = 0; r < 2 * S::MT; r++) {
        int a = unit.a0 + row_in_unit<S>(r);
        int first = max(a + keys.lo - b0, 0), end = min(min(a + keys.hi + 1, keys.count) - b0, S::KEYS);
#pragma unroll 1
        for (int key = first; key < end; key++)
#pragma unroll
            for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    int d = n * 8 + quad * 2 + e;
                    const T *chunk = (const T *)(v + chunk_bytes_at<S::PITCH, T>(key, d / EACH));
                    float x = products::seen(chunk[d % EACH]);
                    if (!isfinite(x)) rows.o[r / 2][n][r % 2 * 2 + e] += x;
                }
    }
    __syncthreads();
    visit_copied<T, S::PITCH, S::KEYS, S::THREADS>(v, [](uint4 &chunk) {
        T *x = (T *)&chunk;
        for (int e = 0; e < EACH; e++) x[e] = products::made_finite(x[e]);
    });
    __syncthreads();
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* Scores become P, relative to the maxima, and are added to l. LARGE: maxima may be large. log2_times: of how often
 * pairs count. */
template <class S, bool LARGE>
__device__ __forceinline__ void exponentiate(float (&s)[S::MT][S::KEYS / 8][4], forward_rows<S> &rows,
                                             const gpu_score<float> &score, float log2_times) {
#pragma unroll
    for (int r = 0; r < 2 * S::MT; r++) {
        float m = rows.m[r] == -INFINITY ? 0 : rows.m[r], sum = 0;
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
            for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++) {
                float x = s[r / 2][n][e];
                float p =
                    LARGE ? score_weight(score_of(score, x), m, log2_times) : score_weight_of(score, x, m, log2_times);
                s[r / 2][n][e] = p;
                sum += p;
            }
        rows.l[r] += sum;
    }
}

/* Scores become P; l, and where the maximum has moved far enough m and o, follow. */
template <class S>
__device__ __forceinline__ void accumulate_scores(float (&s)[S::MT][S::KEYS / 8][4], forward_rows<S> &rows,
                                                  const gpu_score<float> &score, float log2_times) {
    float most[2 * S::MT];
    bool far = false;
#pragma unroll
    for (int r = 0; r < 2 * S::MT; r++) {
        float x = s[r / 2][0][r % 2 * 2];
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++) x = fmaxf(x, fmaxf(s[r / 2][n][r % 2 * 2], s[r / 2][n][r % 2 * 2 + 1]));
        most[r] = fmaxf(rows.m[r], score_of(score, quad_max(x)));
        far |= (most[r] - rows.m[r]) * LOG2_E > RESCALE_ABOVE;
    }
    if (__any_sync(~0u, far)) {
#pragma unroll
        for (int r = 0; r < 2 * S::MT; r++) {
            float keep = move_maximum(rows.m[r], most[r]);
            rows.l[r] *= keep;
#pragma unroll
            for (int n = 0; n < S::DIM / 8; n++) {
                rows.o[r / 2][n][r % 2 * 2] *= keep;
                rows.o[r / 2][n][r % 2 * 2 + 1] *= keep;
            }
        }
    }
    if (some_are_large(rows.m))
        exponentiate<S, true>(s, rows, score, log2_times);
    else
        exponentiate<S, false>(s, rows, score, log2_times);
}

/* ---- main loop --------------------------------------------------------------------------------------------------- */

/* Step j is the cursor's. */
template <class S> __device__ __forceinline__ void put_keys(unit_plan &plan, int j, int source) {
    planned_keys &step = plan.steps[j % 4];
    const key_source &keys = plan.sources[source];
    int b0 = plan.cursor.b0, b1 = b0 + S::KEYS;
    step.b0 = b0;
    step.source = source;
    step.masked = b1 > keys.count || !block_is_full(keys.lo, keys.hi, plan.unit.a0, plan.unit.a1, b0, b1);
}

/* Step j is the first of a tile, from `tile` on, or there is none. Not inline: seldom needed, and one thread's business
 * must not cost the others registers. */
template <class S>
__device__ __noinline__ void put_other_keys(const gpu_forward &args, unit_plan &plan, int j, int tile, int source) {
    const unit_place &unit = plan.unit;
    plan.steps[j % 4].b0 = -1;
    plan.cursor = first_keys(args.problem, unit, tile);
    if (plan.cursor.tile >= unit.end) return;
    set_keys<typename S::T>(&plan.sources[source], args.problem, unit.b, unit.h, plan.cursor.tile);
    put_keys<S>(plan, j, source);
}

template <class S> __device__ __forceinline__ void plan_keys(const gpu_forward &args, unit_plan &plan, int j) {
    const planned_keys &before = plan.steps[(j - 1) % 4];
    int b0 = before.b0 + S::KEYS;
    if (before.b0 < 0) {
        plan.steps[j % 4].b0 = -1;
    } else if (b0 < plan.cursor.to) {
        plan.cursor.b0 = b0;
        put_keys<S>(plan, j, before.source);
    } else {
        put_other_keys<S>(args, plan, j, plan.cursor.tile + 1, (before.source + 1) % 3);
    }
}

template <class S>
__device__ __forceinline__ void plan_unit(const gpu_forward &args, unit_plan &plan, unsigned number) {
    plan.unit = unit_at(args, number, S::ROWS);
    put_other_keys<S>(args, plan, 0, plan.unit.tile, 0);
    plan_keys<S>(args, plan, 1);
}

template <class S>
__device__ __forceinline__ void copy_block(void *to, const row_source &from, const key_source &keys, int b0,
                                           int width) {
    copy_tile<typename S::T, S::PITCH, S::KEYS, S::THREADS>(to, from, b0, keys.count, width);
}

/* The queries of a warp, where they are multiplied from. */
template <class S, bool HELD = S::HELD> struct unit_queries {
    __device__ __forceinline__ void read(const unsigned char *) {
    }
    __device__ __forceinline__ void add_scores(float (&s)[S::MT][S::KEYS / 8][4], const unsigned char *q,
                                               const unsigned char *k) const {
        S::products::template add_scores<S>(s, q, k);
    }
};

template <class S> struct unit_queries<S, true> {
    static_assert(S::MT == 1, "16 rows of a warp");
    uint32_t held[1][S::DIM / 16][4];
    __device__ __forceinline__ void read(const unsigned char *q) {
        fragment_a<S::PITCH, true> from(shared_address(q), (int)threadIdx.x / 32 * 16);
#pragma unroll
        for (int d = 0; d < S::DIM / 16; d++) from.load(held[0][d], 0, d);
    }
    __device__ __forceinline__ void add_scores(float (&s)[1][S::KEYS / 8][4], const unsigned char *,
                                               const unsigned char *k) const {
        add_product<typename S::T, S::DIM / 16>(s, fragment_a_packed<1, S::DIM / 16>(held),
                                                fragment_b<S::PITCH, true>(shared_address(k), 0));
    }
};

template <class S> __device__ __forceinline__ gpu_score<float> score_of_problem(const gpu_problem &p) {
    return {p.scale == 0 ? 1.0f : fabsf((float)p.scale)}; /* its sign is in Q */
}

/* Waits until the CTA's copies have come. Returns whether the values v have infinities or NaNs that take more than the
 * product: in a masked block, or where products spread them. */
template <class S> __device__ __forceinline__ bool values_come(bool masked, unsigned char *v) {
    using products = typename S::products;
    copies_wait();
    if (masked || products::SPREADS) return __syncthreads_or(products::template copied_is_nonfinite<S>(v));
    __syncthreads();
    return false;
}

/* All steps of a unit, one stage: the first K is on its way. */
template <class S>
__device__ __forceinline__ void loop_over_keys(const gpu_forward &args, unsigned char *shared, forward_rows<S> &rows,
                                               const unit_queries<S> &queries) {
    using products = typename S::products;
    unsigned char *q = shared, *k = shared + S::K_AT, *v = shared + S::V_AT;
    unit_plan &plan = *(unit_plan *)(shared + S::PLAN_AT);
    const gpu_problem &p = args.problem;
    gpu_score<float> score = score_of_problem<S>(p);
#pragma unroll 1
    for (int j = 0;; j++) {
        copies_wait();
        __syncthreads();
        const planned_keys &step = plan.steps[j % 4];
        const key_source &source = plan.sources[step.source];
        copy_block<S>(v, source.v, source, step.b0, p.dim_v);
        if (threadIdx.x == 0) plan_keys<S>(args, plan, j + 2);

        float s[S::MT][S::KEYS / 8][4] = {};
        queries.add_scores(s, q, k);

        bool nonfinite = values_come<S>(step.masked, v);
        if (step.masked) mask_scores<S>(plan.unit, source, step.b0, s);
        planned_keys next = plan.steps[(j + 1) % 4];
        if (next.b0 >= 0) copy_block<S>(k, plan.sources[next.source].k, plan.sources[next.source], next.b0, p.dim);
        accumulate_scores<S>(s, rows, score, source.log2_times);
        if (nonfinite) take_nonfinite_values<S>(plan.unit, source, step.b0, v, rows);
        products::template add_values<S>(rows.o, s, v);
        if (next.b0 < 0) break;
    }
}

/* The same, two stages of K and V. */
template <class S>
__device__ __forceinline__ void loop_over_stages(const gpu_forward &args, unsigned char *shared, forward_rows<S> &rows,
                                                 const unit_queries<S> &queries) {
    using products = typename S::products;
    unsigned char *q = shared, *k = shared + S::K_AT, *v = shared + S::V_AT;
    unit_plan &plan = *(unit_plan *)(shared + S::PLAN_AT);
    const gpu_problem &p = args.problem;
    gpu_score<float> score = score_of_problem<S>(p);
    copy_block<S>(v, plan.sources[0].v, plan.sources[0], plan.steps[0].b0, p.dim_v);
#pragma unroll 1
    for (int j = 0;; j++) {
        const planned_keys &step = plan.steps[j % 4], &next = plan.steps[(j + 1) % 4];
        const key_source &source = plan.sources[step.source];
        int here = j % 2 * S::STAGE, there = S::STAGE - here;
        bool nonfinite = values_come<S>(step.masked, v + here);
        bool last = next.b0 < 0;
        if (!last) {
            const key_source &from = plan.sources[next.source];
            copy_block<S>(k + there, from.k, from, next.b0, p.dim);
            copy_block<S>(v + there, from.v, from, next.b0, p.dim_v);
        }
        if (threadIdx.x == 0) plan_keys<S>(args, plan, j + 2);
        float s[S::MT][S::KEYS / 8][4] = {};
        queries.add_scores(s, q, k + here);
        if (step.masked) mask_scores<S>(plan.unit, source, step.b0, s);
        accumulate_scores<S>(s, rows, score, source.log2_times);
        if (nonfinite) take_nonfinite_values<S>(plan.unit, source, step.b0, v + here, rows);
        products::template add_values<S>(rows.o, s, v + here);
        if (last) break;
    }
}

/* The unit, or piece of one, that has this number. */
template <class S> __device__ __forceinline__ void attend_unit(const gpu_forward &args, unsigned number) {
    using T = typename S::T;
    using products = typename S::products;
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char *q = shared, *k = shared + S::K_AT;
    unit_plan &plan = *(unit_plan *)(shared + S::PLAN_AT);
    const gpu_problem &p = args.problem;
    if (threadIdx.x == 0) plan_unit<S>(args, plan, number);
    __syncthreads();
    const unit_place &unit = plan.unit;
    if (plan.steps[0].b0 < 0) return;
    {
        const gpu_tile &t = p.tiles[unit.tile];
        row_source rows = source_of<T>(query_rows_of(args, t).q, unit.b, unit.h, t.q_first, t.q_stride, NULL);
        copy_rows<T, S::PITCH, S::ROWS, S::THREADS>(q, rows, unit.a0, unit.a1, p.dim);
    }
    if (!S::HELD) copy_block<S>(k, plan.sources[0].k, plan.sources[0], plan.steps[0].b0, p.dim);
    forward_rows<S> rows;
    read_state<S>(args, unit, rows);
    copies_wait();
    products::template prepare_queries<S>(q, p.scale);
    unit_queries<S> queries;
    if (S::HELD) {
        __syncthreads();
        queries.read(q);
        __syncthreads();
        copy_block<S>(k, plan.sources[0].k, plan.sources[0], plan.steps[0].b0, p.dim);
    }

    if constexpr (S::STAGES == 1)
        loop_over_keys<S>(args, shared, rows, queries);
    else
        loop_over_stages<S>(args, shared, rows, queries);
    write_state<S>(args, unit, rows);
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::CTAS) forward_mma(const __grid_constant__ gpu_forward args) {
    attend_unit<S>(args, blockIdx.x);
}

/* The pieces that are listed, normally none. The last CTA to end makes the tally 0: then all have read it. */
template <class S>
__global__ void __launch_bounds__(S::THREADS, S::CTAS) forward_mma_redo(const __grid_constant__ gpu_forward args) {
    wait_for_launch_before();
    for (unsigned i = blockIdx.x; i < args.tally->pieces; i += gridDim.x) {
        attend_unit<S>(args, i);
        if (args.finish) finish_rows<typename S::T>(args, unit_at(args, i, S::ROWS));
        __syncthreads();
    }
    if (threadIdx.x == 0 && atomicAdd(&args.tally->ended, 1u) == gridDim.x - 1) *args.tally = gpu_tally();
}

/* NARROW: as S, but for rows of fewer elements. What is redone is seldom, and done by S. */
template <class S, class NARROW> struct forward_mma_calls {
    static_assert(S::ROWS == NARROW::ROWS, "the same units");
    static cudaError_t allow(void) {
        cudaError_t error = allow_shared_memory(forward_mma<S>, S::BYTES);
        if (!error) error = allow_shared_memory(forward_mma<NARROW>, NARROW::BYTES);
        return error ? error : allow_shared_memory(forward_mma_redo<S>, S::BYTES);
    }
    static void launch(const gpu_forward *args, unsigned count, cudaStream_t stream) {
        const gpu_problem &p = args->problem;
        if (p.dim <= NARROW::DIM && p.dim_v <= NARROW::DIM)
            forward_mma<NARROW><<<count, NARROW::THREADS, NARROW::BYTES, stream>>>(*args);
        else
            forward_mma<S><<<count, S::THREADS, S::BYTES, stream>>>(*args);
    }
    static void launch_redo(const gpu_forward *args, unsigned ctas, cudaStream_t stream) {
        launch_dependent<forward_mma_redo<S>>(ctas, S::THREADS, S::BYTES, stream, *args);
    }
};

template <class S, class NARROW = S>
constexpr gpu_forward_variant forward_mma_variant(const gpu_forward_variant *smaller = NULL) {
    using calls = forward_mma_calls<S, NARROW>;
    constexpr int BYTES = S::BYTES > NARROW::BYTES ? S::BYTES : NARROW::BYTES;
    return {S::ROWS, BYTES, calls::allow, calls::launch, calls::launch_redo, smaller};
}

#endif
