/* Forward on the FMA units, for f32 and f64. As on the tensor cores, but P goes through shared memory.
 *
 *   Q [ROWS, DIM] stays; for every block of keys:  S = Q K^T,  P = e^{S - m} to shared memory,  O += P V
 *
 * K comes in pieces of some of the columns, V in pieces of some of the keys, into two places in turn: a piece is copied
 * while the one before it is multiplied.
 *
 *   place 0   | K left    | V first keys | next K left ...
 *   place 1        | K right    | V last keys  |
 *
 * A row of S is one warp's: what P of a piece of V needs goes from lane to lane of it, with no barrier.
 */
#ifndef RA_KERNEL_CUDA_FMA_FORWARD_CUH
#define RA_KERNEL_CUDA_FMA_FORWARD_CUH

#include "kernel/cuda/fma/products.cuh"
#include "kernel/cuda/tile_cursor.cuh"

/* K_DIM: the width of a piece of K. X: columns of the grid of threads. */
template <class REAL_, int DIM_, int ROWS_, int KEYS_, int K_DIM_, int X, int THREADS_> struct forward_fma_shape {
    using REAL = REAL_;
    static constexpr int DIM = DIM_, ROWS = ROWS_, KEYS = KEYS_, THREADS = THREADS_, K_DIM = K_DIM_;
    using grid = thread_grid<X, THREADS>;
    static constexpr int M = ROWS / grid::Y, N = KEYS / X, D = DIM / X / chunk<REAL>::WIDE; /* of a thread */
    static constexpr int PIECES = DIM / K_DIM;                                              /* of K, and as many of V */
    static constexpr int V_KEYS = KEYS / PIECES;                                            /* keys of a piece of V */
    static constexpr int V_COLUMNS = N / PIECES; /* of a thread's columns of S, those that meet a piece of V */
    static constexpr int PLACE = KEYS * K_DIM;   /* elements */
    static constexpr int PLACES_AT = ROWS * DIM, P_AT = PLACES_AT + 2 * PLACE;
    static constexpr int SOURCES_AT = (P_AT + ROWS * V_KEYS) * (int)sizeof(REAL);
    static constexpr int BYTES = SOURCES_AT + 2 * (int)sizeof(key_source);
    static constexpr int CTAS = 256 / THREADS; /* of a multiprocessor */
};

/* The grid's rows of the unit; every thread with the same y has the same m, and its own share of l. */
template <class S> struct fma_rows {
    typename S::REAL m[S::M], l[S::M];
    chunk<typename S::REAL> o[S::M][S::D];
};

/* Over the lanes of a row of the grid: those that differ above the lowest bit. */
template <int X, class REAL> __device__ __forceinline__ REAL max_of_row(REAL x) {
    constexpr int LOW = X == 32 ? 1 : 2;
#pragma unroll
    for (int step = LOW; step < LOW * X; step *= 2) x = fmax(x, __shfl_xor_sync(~0u, x, step));
    return x;
}

template <int X, class REAL> __device__ __forceinline__ REAL sum_of_row(REAL x) {
    constexpr int LOW = X == 32 ? 1 : 2;
#pragma unroll
    for (int step = LOW; step < LOW * X; step *= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

/* m and l of the unit's first row, and the elements from one row to the next. */
template <class REAL> struct state_place {
    REAL *m, *l;
    int64_t each;
};

template <class REAL>
__device__ __forceinline__ state_place<REAL> place_in_state(const gpu_forward &args, const unit_place &unit) {
    const gpu_tile &t = args.problem.tiles[unit.tile];
    const ra_query_rows rows = query_rows_of(args, t);
    int64_t first = ((int64_t)unit.b * args.problem.heads_q + unit.h) * rows.rows + t.q_first;
    return {(REAL *)rows.state.m + first, (REAL *)rows.state.l + first, t.q_stride};
}

template <class REAL>
__device__ __forceinline__ row_source output_rows(const gpu_forward &args, const unit_place &unit) {
    const gpu_tile &t = args.problem.tiles[unit.tile];
    return source_of<REAL>(query_rows_of(args, t).state.o, unit.b, unit.h, t.q_first, t.q_stride, NULL);
}

template <class S>
__device__ __forceinline__ void read_fma_state(const gpu_forward &args, const unit_place &unit, fma_rows<S> &rows) {
    using REAL = typename S::REAL;
    state_place<REAL> at = place_in_state<REAL>(args, unit);
    typename S::grid g;
#pragma unroll
    for (int i = 0; i < S::M; i++) {
        int a = unit.a0 + g.row(i);
        bool valid = a < unit.a1;
        rows.m[i] = valid ? at.m[a * at.each] : -(REAL)INFINITY;
        rows.l[i] = valid && g.x == 0 ? at.l[a * at.each] : 0;
    }
    /* A row that has seen nothing has o = 0, whatever is in memory. */
    read_chunks_of<typename S::grid, 1>(rows.o, output_rows<REAL>(args, unit), unit.a0, args.problem.dim_v,
                                        [&](int i, int row) { return row < unit.a1 && rows.m[i] != -(REAL)INFINITY; });
}

/* Where only NaN scores were seen the maximum is still -inf, and has to say that something was. */
template <class S>
__device__ __forceinline__ void write_fma_state(const gpu_forward &args, const unit_place &unit, fma_rows<S> &rows) {
    using REAL = typename S::REAL;
    state_place<REAL> at = place_in_state<REAL>(args, unit);
    typename S::grid g;
#pragma unroll
    for (int i = 0; i < S::M; i++) {
        int a = unit.a0 + g.row(i);
        REAL l = sum_of_row<S::grid::X>(rows.l[i]), m = rows.m[i];
        if (m == -(REAL)INFINITY && l != l) m = l;
        if (a < unit.a1 && g.x == 0) {
            at.m[a * at.each] = m;
            at.l[a * at.each] = l;
        }
    }
    write_chunks<typename S::grid, 1>(rows.o, output_rows<REAL>(args, unit), unit.a0, unit.a1, args.problem.dim_v);
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* Scores become P; m, l and o follow. Pairs count so many times. */
template <class S>
__device__ __forceinline__ void accumulate_fma_scores(typename S::REAL (&s)[S::M][S::N], fma_rows<S> &rows,
                                                      typename S::REAL times) {
    using REAL = typename S::REAL;
#pragma unroll
    for (int i = 0; i < S::M; i++) {
        REAL most = s[i][0];
#pragma unroll
        for (int j = 1; j < S::N; j++) most = fmax(most, s[i][j]);
        most = fmax(rows.m[i], max_of_row<S::grid::X>(most));
        REAL base = most == -(REAL)INFINITY ? 0 : most;
        if (most != rows.m[i]) {
            REAL keep = score_weight(rows.m[i], base);
            rows.m[i] = most;
            rows.l[i] *= keep;
#pragma unroll
            for (int j = 0; j < S::D; j++)
#pragma unroll
                for (int e = 0; e < chunk<REAL>::WIDE; e++) rows.o[i][j].e[e] *= keep;
        }
#pragma unroll
        for (int j = 0; j < S::N; j++) {
            s[i][j] = score_weight(s[i][j], base) * times;
            rows.l[i] += s[i][j];
        }
    }
}

/* p [ROWS, V_KEYS] = the columns of P that meet piece `piece` of V. */
template <class S>
__device__ __forceinline__ void store_p(typename S::REAL *p, const typename S::REAL (&s)[S::M][S::N], int piece) {
    using REAL = typename S::REAL;
    typename S::grid g;
#pragma unroll
    for (int n = 0; n < S::PIECES; n++) {
        if (n != piece) continue;
#pragma unroll
        for (int i = 0; i < S::M; i++)
#pragma unroll
            for (int j = 0; j < S::V_COLUMNS; j++)
                element_of<REAL, S::V_KEYS>(p, g.row(i), g.column(j)) = s[i][n * S::V_COLUMNS + j];
    }
}

template <class S>
__device__ __forceinline__ void make_scores(typename S::REAL (&s)[S::M][S::N],
                                            const gpu_score<typename S::REAL> &score) {
#pragma unroll
    for (int i = 0; i < S::M; i++)
#pragma unroll
        for (int j = 0; j < S::N; j++) s[i][j] = score_of(score, s[i][j]);
}

/* `none` where a pair is not visible. */
template <class S>
__device__ __forceinline__ void mask_pairs(typename S::REAL (&s)[S::M][S::N], const unit_place &unit,
                                           const key_source &keys, int b0, typename S::REAL none) {
    typename S::grid g;
#pragma unroll
    for (int i = 0; i < S::M; i++) {
        int a = unit.a0 + g.row(i);
        int from = a + keys.lo - b0, to = min(a + keys.hi + 1, keys.count) - b0;
#pragma unroll
        for (int j = 0; j < S::N; j++) {
            int key = g.column(j);
            if (key < from || key >= to) s[i][j] = none;
        }
    }
}

/* ---- main loop --------------------------------------------------------------------------------------------------- */

template <class S>
__device__ __forceinline__ void copy_k_piece(typename S::REAL *to, const key_source &keys, int b0, int piece, int dim) {
    using REAL = typename S::REAL;
    row_source rows = keys.k;
    rows.base += piece * S::K_DIM * rows.dim * (int)sizeof(REAL);
    copy_rows<REAL, S::K_DIM, S::KEYS, S::THREADS>(to, rows, b0, keys.count, dim - piece * S::K_DIM);
}

template <class S>
__device__ __forceinline__ void copy_v_piece(typename S::REAL *to, const key_source &keys, int b0, int piece, int dim) {
    copy_rows<typename S::REAL, S::DIM, S::V_KEYS, S::THREADS>(to, keys.v, b0 + piece * S::V_KEYS, keys.count, dim);
}

template <class S> __device__ __forceinline__ bool copied_is_nonfinite_fma(typename S::REAL *v) {
    using REAL = typename S::REAL;
    bool nonfinite = false;
    visit_copied<REAL, S::DIM, S::V_KEYS, S::THREADS>(v, [&](const uint4 &x) {
        const REAL *e = (const REAL *)&x;
        for (int i = 0; i < chunk<REAL>::WIDE; i++) nonfinite |= !isfinite(e[i]);
    });
    return nonfinite;
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::CTAS) forward_fma(const __grid_constant__ gpu_forward args) {
    using REAL = typename S::REAL;
    using grid = typename S::grid;
    extern __shared__ __align__(1024) unsigned char shared[];
    REAL *q = (REAL *)shared, *places = q + S::PLACES_AT, *p = q + S::P_AT;
    key_source *sources = (key_source *)(shared + S::SOURCES_AT);
    const gpu_problem &problem = args.problem;
    unit_place unit = unit_at(args, blockIdx.x, S::ROWS);
    key_cursor at = first_keys(problem, unit, unit.tile);
    if (at.tile == unit.end) return;
    int slot = 0;
    if (threadIdx.x == 0) set_keys<REAL>(&sources[0], problem, unit.b, unit.h, at.tile);
    {
        const gpu_tile &t = problem.tiles[unit.tile];
        row_source rows = source_of<REAL>(query_rows_of(args, t).q, unit.b, unit.h, t.q_first, t.q_stride, NULL);
        copy_rows<REAL, S::DIM, S::ROWS, S::THREADS>(q, rows, unit.a0, unit.a1, problem.dim);
    }
    __syncthreads();
    copy_k_piece<S>(places, sources[0], at.b0, 0, problem.dim);
    fma_rows<S> rows;
    read_fma_state<S>(args, unit, rows);
    int place = 0; /* of the piece that comes next */
#pragma unroll 1
    for (;;) {
        key_cursor next = next_keys(problem, unit, at, S::KEYS);
        int next_slot = next.tile == at.tile ? slot : slot ^ 1;
        bool more = next.tile < unit.end;
        REAL s[S::M][S::N] = {};
#pragma unroll 1
        for (int n = 0; n < S::PIECES; n++, place ^= 1) {
            copies_wait();
            __syncthreads();
            REAL *other = places + (place ^ 1) * S::PLACE;
            if (n + 1 < S::PIECES)
                copy_k_piece<S>(other, sources[slot], at.b0, n + 1, problem.dim);
            else
                copy_v_piece<S>(other, sources[slot], at.b0, 0, problem.dim_v);
            add_rows_by_rows<grid, S::K_DIM, S::DIM, S::K_DIM>(s, q, n * S::K_DIM / chunk<REAL>::WIDE,
                                                               places + place * S::PLACE);
        }
        if (more && next_slot != slot && threadIdx.x == 0)
            set_keys<REAL>(&sources[next_slot], problem, unit.b, unit.h, next.tile);
        int b1 = at.b0 + S::KEYS;
        bool masked =
            b1 > sources[slot].count || !block_is_full(sources[slot].lo, sources[slot].hi, unit.a0, unit.a1, at.b0, b1);
        make_scores<S>(s, {(REAL)problem.scale});
        if (masked) mask_pairs<S>(s, unit, sources[slot], at.b0, -(REAL)INFINITY);
        accumulate_fma_scores<S>(s, rows, (REAL)sources[slot].times);
        if (masked) mask_pairs<S>(s, unit, sources[slot], at.b0, (REAL)NO_PART);
#pragma unroll 1
        for (int n = 0; n < S::PIECES; n++, place ^= 1) {
            REAL *v = places + place * S::PLACE, *other = places + (place ^ 1) * S::PLACE;
            store_p<S>(p, s, n);
            copies_wait();
            bool nonfinite = __syncthreads_or(masked && copied_is_nonfinite_fma<S>(v));
            if (n + 1 < S::PIECES)
                copy_v_piece<S>(other, sources[slot], at.b0, n + 1, problem.dim_v);
            else if (more)
                copy_k_piece<S>(other, sources[next_slot], next.b0, 0, problem.dim);
            if (nonfinite)
                add_rows_by_columns<grid, S::V_KEYS, S::V_KEYS, S::DIM, true>(rows.o, p, v);
            else
                add_rows_by_columns<grid, S::V_KEYS, S::V_KEYS, S::DIM, false>(rows.o, p, v);
            __syncwarp();
        }
        if (!more) break;
        at = next;
        slot = next_slot;
    }
    write_fma_state<S>(args, unit, rows);
}

template <class S> cudaError_t forward_fma_allow(void) {
    return allow_shared_memory(forward_fma<S>, S::BYTES);
}

template <class S> void forward_fma_launch(const gpu_forward *args, unsigned count, cudaStream_t stream) {
    forward_fma<S><<<count, S::THREADS, S::BYTES, stream>>>(*args);
}

template <class S> constexpr gpu_forward_variant forward_fma_variant(const gpu_forward_variant *smaller = NULL) {
    return {S::ROWS, S::BYTES, forward_fma_allow<S>, forward_fma_launch<S>, NULL, smaller};
}

#endif
