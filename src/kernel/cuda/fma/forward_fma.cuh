/* Forward on the FMA units, for f32 and f64. As on the tensor cores, but P goes through shared memory.
 *
 *   Q [ROWS, DIM] stays; for every block of keys:  S = Q K^T,  P = e^{S - m} to shared memory,  O += P V
 *   V comes during S, the next K during O += P V.
 */
#ifndef RA_KERNEL_CUDA_FMA_FORWARD_CUH
#define RA_KERNEL_CUDA_FMA_FORWARD_CUH

#include "kernel/cuda/fma/products.cuh"
#include "kernel/cuda/walk_tiles.cuh"

template <class REAL_, int DIM_, int ROWS_, int KEYS_> struct forward_fma_shape {
    using REAL = REAL_;
    static constexpr int DIM = DIM_, ROWS = ROWS_, KEYS = KEYS_, THREADS = 256;
    static constexpr int M = ROWS / 16, N = KEYS / 16, D = DIM / 16 / chunk<REAL>::WIDE;        /* of a thread */
    static constexpr int K_AT = ROWS * DIM, V_AT = K_AT + KEYS * DIM, P_AT = V_AT + KEYS * DIM; /* elements */
    static constexpr int SOURCES_AT = (P_AT + ROWS * KEYS) * (int)sizeof(REAL);
    static constexpr int BYTES = SOURCES_AT + 2 * (int)sizeof(key_source);
};

/* Rows y + 16 i of the unit; every thread with the same y has the same m, and its own share of l. */
template <class S> struct fma_rows {
    typename S::REAL m[S::M], l[S::M];
    chunk<typename S::REAL> o[S::M][S::D];
};

template <class REAL> __device__ __forceinline__ REAL max_of_16(REAL x) {
    for (int step = 8; step; step /= 2) x = fmax(x, __shfl_xor_sync(~0u, x, step, 16));
    return x;
}

template <class REAL> __device__ __forceinline__ REAL sum_of_16(REAL x) {
    for (int step = 8; step; step /= 2) x += __shfl_xor_sync(~0u, x, step, 16);
    return x;
}

/* ---- state ----------------------------------------------------------------------------------------------------------
 */

/* The place in m and l of the unit's first row, and the elements from one row to the next. */
struct state_place {
    int64_t first, each;
};

__device__ __forceinline__ state_place place_in_state(const gpu_forward &args, const unit_place &unit) {
    const gpu_tile &t = args.problem.tiles[unit.tile];
    return {((int64_t)unit.b * args.problem.heads_q + unit.h) * args.problem.rows_q + t.q_first, t.q_stride};
}

template <class REAL>
__device__ __forceinline__ row_source output_rows(const gpu_forward &args, const unit_place &unit) {
    const gpu_tile &t = args.problem.tiles[unit.tile];
    return source_of<REAL>(args.o, unit.b, unit.h, t.q_first, t.q_stride, NULL);
}

template <class S>
__device__ __forceinline__ void read_fma_state(const gpu_forward &args, const unit_place &unit, fma_rows<S> &rows) {
    using REAL = typename S::REAL;
    state_place at = place_in_state(args, unit);
#pragma unroll
    for (int i = 0; i < S::M; i++) {
        int a = unit.a0 + thread_y() + 16 * i;
        bool valid = a < unit.a1;
        rows.m[i] = valid ? ((const REAL *)args.m)[at.first + a * at.each] : -(REAL)INFINITY;
        rows.l[i] = valid && thread_x() == 0 ? ((const REAL *)args.l)[at.first + a * at.each] : 0;
    }
    read_chunks(rows.o, output_rows<REAL>(args, unit), unit.a0, unit.a1, args.problem.dim_v);
}

/* Where only NaN scores were seen the maximum is still -inf, and has to say that something was. */
template <class S>
__device__ __forceinline__ void write_fma_state(const gpu_forward &args, const unit_place &unit, fma_rows<S> &rows) {
    using REAL = typename S::REAL;
    state_place at = place_in_state(args, unit);
#pragma unroll
    for (int i = 0; i < S::M; i++) {
        int a = unit.a0 + thread_y() + 16 * i;
        REAL l = sum_of_16(rows.l[i]), m = rows.m[i];
        if (m == -(REAL)INFINITY && l != l) m = l;
        if (a < unit.a1 && thread_x() == 0) {
            ((REAL *)args.m)[at.first + a * at.each] = m;
            ((REAL *)args.l)[at.first + a * at.each] = l;
        }
    }
    write_chunks(rows.o, output_rows<REAL>(args, unit), unit.a0, unit.a1, args.problem.dim_v);
}

/* ---- softmax --------------------------------------------------------------------------------------------------------
 */

/* Scores become P, in shared memory; m, l and o follow. */
template <class S>
__device__ __forceinline__ void fold_fma_scores(typename S::REAL (&s)[S::M][S::N], fma_rows<S> &rows,
                                                typename S::REAL *p) {
    using REAL = typename S::REAL;
#pragma unroll
    for (int i = 0; i < S::M; i++) {
        REAL most = s[i][0];
#pragma unroll
        for (int j = 1; j < S::N; j++) most = fmax(most, s[i][j]);
        most = fmax(rows.m[i], max_of_16(most));
        REAL base = most == -(REAL)INFINITY ? 0 : most;
        if (most != rows.m[i]) {
            REAL keep = exp_of(rows.m[i] - base);
            rows.m[i] = most;
            rows.l[i] *= keep;
#pragma unroll
            for (int j = 0; j < S::D; j++)
#pragma unroll
                for (int e = 0; e < chunk<REAL>::WIDE; e++) rows.o[i][j].e[e] *= keep;
        }
#pragma unroll
        for (int j = 0; j < S::N; j++) {
            REAL x = exp_of(s[i][j] - base);
            rows.l[i] += x;
            element_of<REAL, S::KEYS>(p, thread_y() + 16 * i, thread_x() + 16 * j) = x;
        }
    }
}

template <class S>
__device__ __forceinline__ void scale_and_mask(typename S::REAL (&s)[S::M][S::N], typename S::REAL scale, bool masked,
                                               const unit_place &unit, const key_source &keys, int b0) {
    using REAL = typename S::REAL;
#pragma unroll
    for (int i = 0; i < S::M; i++) {
        int a = unit.a0 + thread_y() + 16 * i;
        int from = a + keys.lo - b0, to = min(a + keys.hi + 1, keys.count) - b0;
#pragma unroll
        for (int j = 0; j < S::N; j++) {
            int key = thread_x() + 16 * j;
            s[i][j] *= scale;
            if (masked && (key < from || key >= to)) s[i][j] = -(REAL)INFINITY;
        }
    }
}

/* ---- main loop ------------------------------------------------------------------------------------------------------
 */

template <class S> __device__ __forceinline__ bool copied_is_wild_fma(typename S::REAL *v) {
    using REAL = typename S::REAL;
    bool wild = false;
    visit_copied<REAL, S::DIM, S::KEYS, S::THREADS>(v, [&](const uint4 &x) {
        const REAL *e = (const REAL *)&x;
        for (int i = 0; i < chunk<REAL>::WIDE; i++) wild |= !isfinite(e[i]);
    });
    return wild;
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1) forward_fma(const __grid_constant__ gpu_forward args) {
    using REAL = typename S::REAL;
    extern __shared__ __align__(1024) unsigned char shared[];
    REAL *q = (REAL *)shared, *k = q + S::K_AT, *v = q + S::V_AT, *p = q + S::P_AT;
    key_source *sources = (key_source *)(shared + S::SOURCES_AT);
    const gpu_problem &problem = args.problem;
    unit_place unit = unit_at(args, blockIdx.x, S::ROWS);
    key_cursor at = first_keys(problem, unit, unit.tile);
    if (at.tile == unit.end) return;
    int slot = 0;
    if (threadIdx.x == 0) set_keys<REAL>(&sources[0], problem, unit.b, unit.h, at.tile);
    {
        const gpu_tile &t = problem.tiles[unit.tile];
        row_source rows = source_of<REAL>(args.q, unit.b, unit.h, t.q_first, t.q_stride, NULL);
        copy_rows<REAL, S::DIM, S::ROWS, S::THREADS>(q, rows, unit.a0, unit.a1, problem.dim);
    }
    __syncthreads();
    copy_rows<REAL, S::DIM, S::KEYS, S::THREADS>(k, sources[0].k, at.b0, sources[0].count, problem.dim);
    fma_rows<S> rows;
    read_fma_state<S>(args, unit, rows);
#pragma unroll 1
    for (;;) {
        copies_wait();
        __syncthreads();
        copy_rows<REAL, S::DIM, S::KEYS, S::THREADS>(v, sources[slot].v, at.b0, sources[slot].count, problem.dim_v);
        key_cursor next = next_keys(problem, unit, at, S::KEYS);
        int next_slot = next.tile == at.tile ? slot : slot ^ 1;
        bool more = next.tile < unit.end;
        if (more && next_slot != slot && threadIdx.x == 0)
            set_keys<REAL>(&sources[next_slot], problem, unit.b, unit.h, next.tile);

        REAL s[S::M][S::N] = {};
        add_rows_by_rows<S::DIM, S::DIM>(s, q, k);
        int b1 = at.b0 + S::KEYS;
        bool masked =
            b1 > sources[slot].count || !block_is_full(sources[slot].lo, sources[slot].hi, unit.a0, unit.a1, at.b0, b1);
        scale_and_mask<S>(s, (REAL)problem.scale, masked, unit, sources[slot], at.b0);
        fold_fma_scores<S>(s, rows, p);
        copies_wait();
        bool wild = __syncthreads_or(masked && copied_is_wild_fma<S>(v));
        if (more)
            copy_rows<REAL, S::DIM, S::KEYS, S::THREADS>(k, sources[next_slot].k, next.b0, sources[next_slot].count,
                                                         problem.dim);
        if (wild)
            add_rows_by_columns<S::KEYS, S::KEYS, S::DIM, true>(rows.o, p, v);
        else
            add_rows_by_columns<S::KEYS, S::KEYS, S::DIM, false>(rows.o, p, v);
        if (!more) break;
        at = next;
        slot = next_slot;
    }
    write_fma_state<S>(args, unit, rows);
}

template <class S> cudaError_t forward_fma_allow(void) {
    return cudaFuncSetAttribute(forward_fma<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
}

template <class S> void forward_fma_launch(const gpu_forward *args, unsigned count, cudaStream_t stream) {
    forward_fma<S><<<count, S::THREADS, S::BYTES, stream>>>(*args);
}

#endif
