/* Backward on the FMA units, for f32 and f64. As on the tensor cores: a block of keys stays, with its dK and dV in
 * registers; the blocks of queries that see it pass by, the last one first; dQ takes turns in device memory.
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
#include "kernel/cuda/walk_tiles.cuh"

/* Where the item stands: in shared memory, as the registers are needed elsewhere. Of two, one is the block of queries
 * at hand and the other, the next one's or the last one's. */
template <class REAL> struct fma_walk {
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
    static constexpr int WALK_AT = (PAIRS_AT + ROWS * KEYS) * (int)sizeof(REAL);
    static constexpr int BYTES = WALK_AT + (int)sizeof(fma_walk<REAL>);
    static constexpr int CTAS = 256 / THREADS; /* of a multiprocessor */
};

template <class S> struct fma_memory {
    using REAL = typename S::REAL;
    REAL *k, *v, *q, *dout;
    REAL *pairs; /* [ROWS, KEYS]: P, then dS */
    fma_walk<REAL> *walk;
    __device__ __forceinline__ fma_memory(unsigned char *base)
        : k((REAL *)base), v(k + S::V_AT), q(k + S::Q_AT), dout(k + S::DOUT_AT), pairs(k + S::PAIRS_AT),
          walk((fma_walk<REAL> *)(base + S::WALK_AT)) {
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

/* The rows of a view of the item's keys. */
template <class REAL>
__device__ __forceinline__ row_source item_rows(const gpu_backward &args, const item_place &item,
                                                const ra_kv_rows &part, const ra_view &view) {
    const gpu_tile &t = args.problem.tiles[args.by_key[item.first]];
    int64_t g = (item.g - part.heads.first) / part.heads.stride;
    return source_of<REAL>(view, item.b, g, t.k_first, t.k_stride, t.k_index);
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
            const query_source<typename S::REAL> &from, int a0, int b0,
            const gpu_score<typename S::REAL> &score) {
    using REAL = typename S::REAL;
    typename S::grid g;
    REAL wild = 0;
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
            wild = fma(s[i][j], (REAL)0, wild);
            element_of<REAL, S::KEYS>(pairs, g.row(i), g.column(j)) = part ? score_weight(x, base) : (REAL)NO_PART;
        }
    }
    return wild;
}

/* dp becomes ds, without the scale, with the P that this thread stored. Returns 0, or NaN where some dP is not finite:
 * then dO or V hold something of that kind. */
template <class S>
__device__ __forceinline__ typename S::REAL
differentiate_fma(typename S::REAL (&dp)[S::M][S::N], const typename S::REAL (&delta)[S::M], typename S::REAL *pairs) {
    using REAL = typename S::REAL;
    typename S::grid g;
    REAL wild = 0;
#pragma unroll
    for (int i = 0; i < S::M; i++)
#pragma unroll
        for (int j = 0; j < S::N; j++) {
            REAL p = element_of<REAL, S::KEYS>(pairs, g.row(i), g.column(j));
            wild = fma(dp[i][j], (REAL)0, wild);
            dp[i][j] = takes_part(p) ? score_slope(p, dp[i][j], delta[i]) : (REAL)NO_PART;
        }
    return wild;
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
__device__ __forceinline__ void add_to_keys(bool wild, chunk<typename S::REAL> (&acc)[M][N],
                                            const typename S::REAL *pairs, const typename S::REAL *b) {
    using grid = typename S::key_grid;
    if (wild)
        add_columns_by_columns<grid, S::ROWS, S::KEYS, S::DIM, true>(acc, pairs, b);
    else
        add_columns_by_columns<grid, S::ROWS, S::KEYS, S::DIM, false>(acc, pairs, b);
}

/* acc [rows] += pairs . b [KEYS, DIM]. */
template <class S, int M, int N>
__device__ __forceinline__ void add_to_rows(bool wild, chunk<typename S::REAL> (&acc)[M][N],
                                            const typename S::REAL *pairs, const typename S::REAL *b) {
    using grid = typename S::grid;
    if (wild)
        add_rows_by_columns<grid, S::KEYS, S::KEYS, S::DIM, true>(acc, pairs, b);
    else
        add_rows_by_columns<grid, S::KEYS, S::KEYS, S::DIM, false>(acc, pairs, b);
}

/* Rows of a view += scale * x, in device memory; fresh: = scale * x. */
template <class S, int M, int N>
__device__ __forceinline__ void add_to_view(const chunk<typename S::REAL> (&x)[M][N], const row_source &to, int b0,
                                            int keys, int width, typename S::REAL scale, int fresh) {
    using REAL = typename S::REAL;
    using grid = typename S::key_grid;
    chunk<REAL> old[M][N];
    read_chunks<grid, S::WIDE>(old, to, b0, fresh ? 0 : keys, width);
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

/* ---- walk -----------------------------------------------------------------------------------------------------------
 */

/* By one thread: takes an item; more: whether it has a block of queries, which is then walk's number 0. */
template <class S>
__device__ __forceinline__ void take_item(const gpu_backward &args, fma_walk<typename S::REAL> *walk) {
    using REAL = typename S::REAL;
    walk->item = item_at(args, atomicAdd(args.ticket, 1u));
    walk->at[0] = first_queries<S::ROWS, S::KEYS>(args, walk->item, walk->item.first);
    walk->slot[0] = 0;
    walk->more = walk->at[0].at < walk->item.first + walk->item.count;
    if (walk->more)
        set_queries<REAL, REAL, S::ROWS>(&walk->sources[0], args, walk->item.b, walk->at[0].at, walk->at[0].head);
}

/* By one thread: what comes after block number n. */
template <class S>
__device__ __forceinline__ void look_ahead(const gpu_backward &args, fma_walk<typename S::REAL> *walk, int n) {
    using REAL = typename S::REAL;
    const query_cursor &at = walk->at[n];
    query_cursor next = next_queries<S::ROWS, S::KEYS>(args, walk->item, at);
    int slot = walk->slot[n];
    walk->more = next.at < walk->item.first + walk->item.count;
    if (walk->more && (next.at != at.at || next.head != at.head)) {
        slot ^= 1;
        set_queries<REAL, REAL, S::ROWS>(&walk->sources[slot], args, walk->item.b, next.at, next.head);
    }
    walk->at[n ^ 1] = next;
    walk->slot[n ^ 1] = slot;
}

/* The counter of block number n of the walk. */
template <class REAL> __device__ __forceinline__ int *chain_of(const fma_walk<REAL> *walk, int n) {
    return walk->sources[walk->slot[n]].chain + walk->at[n].block;
}

/* ---- main loop ------------------------------------------------------------------------------------------------------
 */

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::CTAS) backward_fma(const __grid_constant__ gpu_backward args) {
    using REAL = typename S::REAL;
    using grid = typename S::grid;
    enum { PASSER = 0, WAITER = 32 };
    extern __shared__ __align__(1024) unsigned char shared[];
    fma_memory<S> memory(shared);
    fma_walk<REAL> *walk = memory.walk;
    const gpu_problem &p = args.problem;
    if (threadIdx.x == PASSER) take_item<S>(args, walk);
    __syncthreads();
    if (!walk->more) return;
    {
        const gpu_tile &tile = p.tiles[args.by_key[walk->item.first]];
        const ra_kv_rows &part = part_of(p, tile.part);
        int b0 = walk->item.block * S::KEYS;
        row_source rows = item_rows<REAL>(args, walk->item, part, part.k);
        copy_rows<REAL, S::DIM, S::KEYS, S::THREADS>(memory.k, rows, b0, tile.k_count, p.dim);
        rows = item_rows<REAL>(args, walk->item, part, part.v);
        copy_rows<REAL, S::DIM, S::KEYS, S::THREADS>(memory.v, rows, b0, tile.k_count, p.dim_v);
    }
    copy_q_fma<S>(p, memory, walk->sources[0], walk->at[0].block);
    copy_dout_fma<S>(p, memory, walk->sources[0], walk->at[0].block);

    chunk<REAL> dk[S::KEY_M][S::KEY_D], dv[S::KEY_M][S::KEY_D];
    clear(dk);
    clear(dv);
    bool begun = false;
    int n = 0;
#pragma unroll 1
    for (;; n ^= 1) {
        copies_wait();
        __syncthreads();
        if (threadIdx.x == PASSER) {
            if (begun) chain_pass(chain_of(walk, n ^ 1));
            look_ahead<S>(args, walk, n);
        }
        begun = true;
        const query_source<REAL> &from = walk->sources[walk->slot[n]];
        int a0 = walk->at[n].block * S::ROWS;
        REAL wild;
        {
            REAL s[S::M][S::N] = {}, lse[S::M];
            read_rows<S>(lse, from.lse, from.each, a0, from.count, -(REAL)INFINITY);
            add_rows_by_rows<grid, S::DIM, S::DIM, S::DIM>(s, memory.q, 0, memory.k);
            wild = store_p_fma<S>(memory.pairs, s, lse, from, a0, walk->item.block * S::KEYS, {(REAL)p.scale});
        }
        bool skip;
        {
            REAL dp[S::M][S::N] = {}, delta[S::M];
            read_rows<S>(delta, from.delta, from.each, a0, from.count, 0);
            add_rows_by_rows<grid, S::DIM, S::DIM, S::DIM>(dp, memory.dout, 0, memory.v);
            wild += differentiate_fma<S>(dp, delta, memory.pairs);
            skip = __syncthreads_or(wild != 0);
            add_to_keys<S>(skip, dv, memory.pairs, memory.dout);
            __syncthreads();
            if (walk->more) copy_dout_fma<S>(p, memory, walk->sources[walk->slot[n ^ 1]], walk->at[n ^ 1].block);
            store_ds_fma<S>(memory.pairs, dp);
        }
        if (threadIdx.x == WAITER) {
            const int *chain = chain_of(walk, n);
            chain_wait(chain, chain_read(chain), turn_of<S::ROWS, S::KEYS>(from, walk->at[n].block, walk->item.block));
        }
        __syncthreads();
        add_to_keys<S>(skip, dk, memory.pairs, memory.q);
        __syncthreads();
        if (walk->more) copy_q_fma<S>(p, memory, walk->sources[walk->slot[n ^ 1]], walk->at[n ^ 1].block);
        {
            chunk<REAL> dq[S::M][S::D], old[S::M][S::D];
            clear(dq);
            read_chunks<grid, 1>(old, from.dq, a0, from.count, p.dim);
            add_to_rows<S>(skip, dq, memory.pairs, memory.k);
            add_scaled(old, dq, (REAL)p.scale);
            write_chunks<grid, 1>(old, from.dq, a0, from.count, p.dim);
        }
        if (!walk->more) break;
    }
    __syncthreads();
    if (threadIdx.x == PASSER) chain_pass(chain_of(walk, n));
    const gpu_tile &tile = p.tiles[args.by_key[walk->item.first]];
    const ra_kv_rows &part = part_of(p, tile.part);
    int b0 = walk->item.block * S::KEYS;
    add_to_view<S>(dv, item_rows<REAL>(args, walk->item, part, part.dv), b0, tile.k_count, p.dim_v, (REAL)1,
                   args.fresh);
    add_to_view<S>(dk, item_rows<REAL>(args, walk->item, part, part.dk), b0, tile.k_count, p.dim, (REAL)p.scale,
                   args.fresh);
}

template <class S> cudaError_t backward_fma_allow(void) {
    return cudaFuncSetAttribute(backward_fma<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
}

template <class S> void backward_fma_launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
    backward_fma<S><<<count, S::THREADS, S::BYTES, stream>>>(*args);
}

#endif
