/* Backward on the FMA units, for f32 and f64. As on the tensor cores: a block of keys stays, with its dK and dV in
 * registers; the blocks of queries that see it go by, the last one first; dQ takes turns in device memory.
 *
 *   S = Q K^T   P = e^{S - lse}   dP = dO V^T   dS = P (dP - delta)
 *   dV += P^T dO   dK += dS^T Q   dQ += dS K
 *
 * P, then dS, stand in one tile of shared memory, which is read along its rows for dQ and across them for dV and dK. As
 * soon as dV is done with dO, and dK with Q, the next block's are copied.
 */
#ifndef RA_KERNEL_CUDA_FMA_BACKWARD_CUH
#define RA_KERNEL_CUDA_FMA_BACKWARD_CUH

#include "kernel/cuda/fma/products.cuh"
#include "kernel/cuda/tile_cursor.cuh"

/* Where the item stands: in shared memory, as the registers are needed elsewhere. Of two, one is the block of queries
 * at hand and the other, the next one's or the last one's. */
template <class REAL> struct fma_loop {
    query_source<REAL> sources[2];
    query_cursor at[2];
    int slot[2]; /* which of the sources */
    int more;    /* whether there is a next block */
    item_place item;
};

/* X: columns of the grid of threads. */
template <class REAL_, int DIM_, int ROWS_, int KEYS_, int X, int THREADS_> struct backward_fma_shape {
    using REAL = REAL_;
    static constexpr int DIM = DIM_, ROWS = ROWS_, KEYS = KEYS_, THREADS = THREADS_, WIDE = chunk<REAL>::WIDE;
    using grid = thread_grid<X, THREADS>;                                      /* S and dP; dQ */
    static constexpr int M = ROWS / grid::Y, N = KEYS / X, D = DIM / X / WIDE; /* of a thread */
    /* dK and dV: the keys in chunks. */
    static constexpr int KEY_CHUNKS = KEYS / WIDE;
    using key_grid = thread_grid<(THREADS / X <= KEY_CHUNKS ? X : THREADS / KEY_CHUNKS), THREADS>;
    static constexpr int KEY_M = KEYS / key_grid::Y, KEY_D = DIM / key_grid::X / WIDE;
    static constexpr int V_AT = KEYS * DIM, Q_AT = 2 * V_AT, DOUT_AT = Q_AT + ROWS * DIM; /* elements */
    static constexpr int PAIRS_AT = DOUT_AT + ROWS * DIM;
    static constexpr int LOOP_AT = (PAIRS_AT + ROWS * KEYS) * (int)sizeof(REAL);
    static constexpr int BYTES = LOOP_AT + (int)sizeof(fma_loop<REAL>);
    static constexpr int CTAS = 256 / THREADS; /* of a multiprocessor */
};

template <class S> struct fma_memory {
    using REAL = typename S::REAL;
    REAL *k, *v, *q, *dout;
    REAL *pairs; /* [ROWS, KEYS]: P, then dS */
    fma_loop<REAL> *loop;
    __device__ __forceinline__ fma_memory(unsigned char *base)
        : k((REAL *)base), v(k + S::V_AT), q(k + S::Q_AT), dout(k + S::DOUT_AT), pairs(k + S::PAIRS_AT),
          loop((fma_loop<REAL> *)(base + S::LOOP_AT)) {
    }
};

template <class S>
__device__ __forceinline__ void copy_q_fma(const gpu_problem &p, const fma_memory<S> &memory,
                                           const query_source<typename S::REAL> &s, int block) {
    copy_rows<typename S::REAL, S::DIM, S::ROWS, S::THREADS>(memory.q, s.q, block * S::ROWS, s.count, p.dim);
}

template <class S>
__device__ __forceinline__ void copy_dout_fma(const gpu_problem &p, const fma_memory<S> &memory,
                                              const query_source<typename S::REAL> &s, int block) {
    copy_rows<typename S::REAL, S::DIM, S::ROWS, S::THREADS>(memory.dout, s.dout, block * S::ROWS, s.count, p.dim_v);
}

/* x [rows] = those of lse or delta, or `none` beyond the tile. */
template <class S>
__device__ __forceinline__ void read_rows(typename S::REAL (&x)[S::M], const typename S::REAL *from, int64_t each,
                                          int a0, int count, typename S::REAL none) {
    typename S::grid g;
#pragma unroll
    for (int i = 0; i < S::M; i++) {
        int a = a0 + g.row(i);
        x[i] = a < count ? from[a * each] : none;
    }
}

/* pairs = P. Rows that saw nothing, by their lse, take no part; an lse of +inf, which the forward pass never gives,
 * counts as NaN. Returns 0, or NaN where some score is not finite: then Q or K hold something that times 0 would
 * spread. */
template <class S>
__device__ __forceinline__ typename S::REAL
store_p_fma(typename S::REAL *pairs, const typename S::REAL (&s)[S::M][S::N], const typename S::REAL (&lse)[S::M],
            const query_source<typename S::REAL> &from, int a0, int b0, const gpu_score<typename S::REAL> &score) {
    using REAL = typename S::REAL;
    typename S::grid g;
    REAL nonfinite = 0;
#pragma unroll
    for (int i = 0; i < S::M; i++) {
        int a = a0 + g.row(i);
        REAL base = counted_lse(lse[i]);
        int first = a + from.lo - b0, end = base == -(REAL)INFINITY ? first : min(a + from.hi + 1, from.keys) - b0;
#pragma unroll
        for (int j = 0; j < S::N; j++) {
            int key = g.column(j);
            REAL x = score_of(score, s[i][j]);
            bool part = key >= first && key < end && x != -(REAL)INFINITY;
            nonfinite = fma(s[i][j], (REAL)0, nonfinite);
            element_of<REAL, S::KEYS>(pairs, g.row(i), g.column(j)) =
                part ? score_weight(x, base) * (REAL)from.times : (REAL)NO_PART;
        }
    }
    return nonfinite;
}

/* dp becomes ds, without the scale, with the P that this thread stored. Returns 0, or NaN where some dP is not finite:
 * then dO or V hold something of that kind. */
template <class S>
__device__ __forceinline__ typename S::REAL
differentiate_fma(typename S::REAL (&dp)[S::M][S::N], const typename S::REAL (&delta)[S::M], typename S::REAL *pairs) {
    using REAL = typename S::REAL;
    typename S::grid g;
    REAL nonfinite = 0;
#pragma unroll
    for (int i = 0; i < S::M; i++)
#pragma unroll
        for (int j = 0; j < S::N; j++) {
            REAL p = element_of<REAL, S::KEYS>(pairs, g.row(i), g.column(j));
            nonfinite = fma(dp[i][j], (REAL)0, nonfinite);
            dp[i][j] = takes_part(p) ? score_slope(p, dp[i][j], delta[i]) : (REAL)NO_PART;
        }
    return nonfinite;
}

template <class S>
__device__ __forceinline__ void store_ds_fma(typename S::REAL *pairs, const typename S::REAL (&ds)[S::M][S::N]) {
    using REAL = typename S::REAL;
    typename S::grid g;
#pragma unroll
    for (int i = 0; i < S::M; i++)
#pragma unroll
        for (int j = 0; j < S::N; j++) element_of<REAL, S::KEYS>(pairs, g.row(i), g.column(j)) = ds[i][j];
}

/* acc [keys] += pairs^T . b [ROWS, DIM]. */
template <class S, int M, int N>
__device__ __forceinline__ void add_to_keys(bool nonfinite, chunk<typename S::REAL> (&acc)[M][N],
                                            const typename S::REAL *pairs, const typename S::REAL *b) {
    using grid = typename S::key_grid;
    if (nonfinite)
        add_columns_by_columns<grid, S::ROWS, S::KEYS, S::DIM, true>(acc, pairs, b);
    else
        add_columns_by_columns<grid, S::ROWS, S::KEYS, S::DIM, false>(acc, pairs, b);
}

/* acc [rows] += pairs . b [KEYS, DIM]. */
template <class S, int M, int N>
__device__ __forceinline__ void add_to_rows(bool nonfinite, chunk<typename S::REAL> (&acc)[M][N],
                                            const typename S::REAL *pairs, const typename S::REAL *b) {
    using grid = typename S::grid;
    if (nonfinite)
        add_rows_by_columns<grid, S::KEYS, S::KEYS, S::DIM, true>(acc, pairs, b);
    else
        add_rows_by_columns<grid, S::KEYS, S::KEYS, S::DIM, false>(acc, pairs, b);
}

/* Rows of a view += scale * x, in device memory; overwrite: = scale * x. */
template <class S, int M, int N>
__device__ __forceinline__ void add_to_view(const chunk<typename S::REAL> (&x)[M][N], const row_source &to, int b0,
                                            int keys, int width, typename S::REAL scale, int overwrite) {
    using REAL = typename S::REAL;
    using grid = typename S::key_grid;
    chunk<REAL> old[M][N];
    read_chunks<grid, S::WIDE>(old, to, b0, overwrite ? 0 : keys, width);
    add_scaled(old, x, scale);
    write_chunks<grid, S::WIDE>(old, to, b0, keys, width);
}

template <class REAL, int M, int N> __device__ __forceinline__ void clear(chunk<REAL> (&x)[M][N]) {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < chunk<REAL>::WIDE; e++) x[i][j].e[e] = 0;
}

/* ---- loop -------------------------------------------------------------------------------------------------------- */

/* By one thread: takes an item; more: whether it has a block of queries, which is then number 0 of the two. */
template <class S>
__device__ __forceinline__ void take_item(const gpu_backward &args, fma_loop<typename S::REAL> *loop) {
    using REAL = typename S::REAL;
    loop->item = item_at(args, atomicAdd(args.ticket, 1u));
    loop->at[0] = first_queries<S::ROWS, S::KEYS>(args, loop->item, loop->item.first);
    loop->slot[0] = 0;
    loop->more = loop->at[0].at < loop->item.first + loop->item.count;
    if (loop->more)
        set_queries<REAL, REAL, S::ROWS>(&loop->sources[0], args, loop->item.b, loop->at[0].at, loop->at[0].head);
}

/* By one thread: what comes after block number n. */
template <class S>
__device__ __forceinline__ void look_ahead(const gpu_backward &args, fma_loop<typename S::REAL> *loop, int n) {
    using REAL = typename S::REAL;
    const query_cursor &at = loop->at[n];
    query_cursor next = next_queries<S::ROWS, S::KEYS>(args, loop->item, at);
    int slot = loop->slot[n];
    loop->more = next.at < loop->item.first + loop->item.count;
    if (loop->more && (next.at != at.at || next.head != at.head)) {
        slot ^= 1;
        set_queries<REAL, REAL, S::ROWS>(&loop->sources[slot], args, loop->item.b, next.at, next.head);
    }
    loop->at[n ^ 1] = next;
    loop->slot[n ^ 1] = slot;
}

/* The counter of block number n of the loop. */
template <class REAL> __device__ __forceinline__ int *chain_of(const fma_loop<REAL> *loop, int n) {
    return loop->sources[loop->slot[n]].chain + loop->at[n].block;
}

/* ---- main loop --------------------------------------------------------------------------------------------------- */

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::CTAS) backward_fma(const __grid_constant__ gpu_backward args) {
    using REAL = typename S::REAL;
    using grid = typename S::grid;
    enum { RELEASER = 0, WAITER = 32 };
    extern __shared__ __align__(1024) unsigned char shared[];
    fma_memory<S> memory(shared);
    fma_loop<REAL> *loop = memory.loop;
    const gpu_problem &p = args.problem;
    if (threadIdx.x == RELEASER) take_item<S>(args, loop);
    __syncthreads();
    if (!loop->more) return;
    {
        int b0 = loop->item.block * S::KEYS, count = item_tile(args, loop->item).k_count;
        row_source rows = item_rows<REAL, &ra_kv_rows::k>(args, loop->item);
        copy_rows<REAL, S::DIM, S::KEYS, S::THREADS>(memory.k, rows, b0, count, p.dim);
        rows = item_rows<REAL, &ra_kv_rows::v>(args, loop->item);
        copy_rows<REAL, S::DIM, S::KEYS, S::THREADS>(memory.v, rows, b0, count, p.dim_v);
    }
    copy_q_fma<S>(p, memory, loop->sources[0], loop->at[0].block);
    copy_dout_fma<S>(p, memory, loop->sources[0], loop->at[0].block);

    chunk<REAL> dk[S::KEY_M][S::KEY_D], dv[S::KEY_M][S::KEY_D];
    clear(dk);
    clear(dv);
    bool begun = false;
    int n = 0;
#pragma unroll 1
    for (;; n ^= 1) {
        copies_wait();
        __syncthreads();
        if (threadIdx.x == RELEASER) {
            if (begun) chain_release(chain_of(loop, n ^ 1));
            look_ahead<S>(args, loop, n);
        }
        begun = true;
        const query_source<REAL> &from = loop->sources[loop->slot[n]];
        int a0 = loop->at[n].block * S::ROWS;
        REAL nonfinite;
        {
            REAL s[S::M][S::N] = {}, lse[S::M];
            read_rows<S>(lse, from.lse, from.each, a0, from.count, -(REAL)INFINITY);
            add_rows_by_rows<grid, S::DIM, S::DIM, S::DIM>(s, memory.q, 0, memory.k);
            nonfinite = store_p_fma<S>(memory.pairs, s, lse, from, a0, loop->item.block * S::KEYS, {(REAL)p.scale});
        }
        bool skip;
        {
            REAL dp[S::M][S::N] = {}, delta[S::M];
            read_rows<S>(delta, from.delta, from.each, a0, from.count, 0);
            add_rows_by_rows<grid, S::DIM, S::DIM, S::DIM>(dp, memory.dout, 0, memory.v);
            nonfinite += differentiate_fma<S>(dp, delta, memory.pairs);
            skip = __syncthreads_or(nonfinite != 0);
            add_to_keys<S>(skip, dv, memory.pairs, memory.dout);
            __syncthreads();
            if (loop->more) copy_dout_fma<S>(p, memory, loop->sources[loop->slot[n ^ 1]], loop->at[n ^ 1].block);
            store_ds_fma<S>(memory.pairs, dp);
        }
        if (threadIdx.x == WAITER) {
            const int *chain = chain_of(loop, n);
            chain_wait(chain, chain_read(chain), turn_of<S::ROWS, S::KEYS>(from, loop->at[n].block, loop->item.block));
        }
        __syncthreads();
        add_to_keys<S>(skip, dk, memory.pairs, memory.q);
        __syncthreads();
        if (loop->more) copy_q_fma<S>(p, memory, loop->sources[loop->slot[n ^ 1]], loop->at[n ^ 1].block);
        {
            chunk<REAL> dq[S::M][S::D], old[S::M][S::D];
            clear(dq);
            read_chunks<grid, 1>(old, from.dq, a0, from.count, p.dim);
            add_to_rows<S>(skip, dq, memory.pairs, memory.k);
            add_scaled(old, dq, (REAL)p.scale);
            write_chunks<grid, 1>(old, from.dq, a0, from.count, p.dim);
        }
        if (!loop->more) break;
    }
    __syncthreads();
    if (threadIdx.x == RELEASER) chain_release(chain_of(loop, n));
    int b0 = loop->item.block * S::KEYS, count = item_tile(args, loop->item).k_count;
    add_to_view<S>(dv, item_rows<REAL, &ra_kv_rows::dv>(args, loop->item), b0, count, p.dim_v, (REAL)1, args.overwrite);
    add_to_view<S>(dk, item_rows<REAL, &ra_kv_rows::dk>(args, loop->item), b0, count, p.dim, (REAL)p.scale,
                   args.overwrite);
}

template <class S> cudaError_t backward_fma_allow(void) {
    return allow_shared_memory(backward_fma<S>, S::BYTES);
}

template <class S> void backward_fma_launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
    backward_fma<S><<<count, S::THREADS, S::BYTES, stream>>>(*args);
}

template <class S> constexpr gpu_backward_variant backward_fma_variant(const gpu_backward_variant *smaller = NULL) {
    return {S::ROWS, S::KEYS, S::BYTES, backward_fma_allow<S>, backward_fma_launch<S>, smaller};
}

#endif
