/* Backward on the FMA units, for f32 and f64. As on the tensor cores: a block of keys stays, with its dK and dV in
 * registers; the blocks of queries that see it pass by, the last one first; dQ takes turns in device memory.
 *
 *   S = Q K^T   P = e^{S - lse}   dP = dO V^T   dS = P (dP - delta)
 *   dV += P^T dO   dK += dS^T Q   dQ += dS K
 *
 * P^T, then dS^T, stand in one tile of shared memory, dS in another: with K, V, Q and dO that is all there is room for.
 */
#ifndef RA_KERNEL_CUDA_FMA_BACKWARD_CUH
#define RA_KERNEL_CUDA_FMA_BACKWARD_CUH

#include "kernel/cuda/fma/products.cuh"
#include "kernel/cuda/walk_tiles.cuh"

template <class REAL_, int DIM_, int ROWS_, int KEYS_> struct backward_fma_shape {
    using REAL = REAL_;
    static constexpr int DIM = DIM_, ROWS = ROWS_, KEYS = KEYS_, THREADS = 256;
    static constexpr int M = ROWS / 16, N = KEYS / 16, D = DIM / 16 / chunk<REAL>::WIDE;  /* of a thread */
    static constexpr int V_AT = KEYS * DIM, Q_AT = 2 * V_AT, DOUT_AT = Q_AT + ROWS * DIM; /* elements */
    static constexpr int TURNED_AT = DOUT_AT + ROWS * DIM, DS_AT = TURNED_AT + ROWS * KEYS;
    static constexpr int SOURCES_AT = (DS_AT + ROWS * KEYS) * (int)sizeof(REAL);
    static constexpr int BYTES = SOURCES_AT + 2 * (int)sizeof(query_source<REAL>);
};

template <class S> struct fma_memory {
    using REAL = typename S::REAL;
    REAL *k, *v, *q, *dout;
    REAL *turned; /* [KEYS, ROWS]: P^T, then dS^T */
    REAL *ds;     /* [ROWS, KEYS] */
    query_source<REAL> *sources;
    __device__ __forceinline__ fma_memory(unsigned char *base)
        : k((REAL *)base), v(k + S::V_AT), q(k + S::Q_AT), dout(k + S::DOUT_AT), turned(k + S::TURNED_AT),
          ds(k + S::DS_AT), sources((query_source<REAL> *)(base + S::SOURCES_AT)) {
    }
};

template <class S>
__device__ __forceinline__ void copy_queries_fma(const gpu_problem &p, const fma_memory<S> &memory,
                                                 const query_source<typename S::REAL> &s, int block) {
    using REAL = typename S::REAL;
    copy_rows<REAL, S::DIM, S::ROWS, S::THREADS>(memory.q, s.q, block * S::ROWS, s.count, p.dim);
    copy_rows<REAL, S::DIM, S::ROWS, S::THREADS>(memory.dout, s.dout, block * S::ROWS, s.count, p.dim_v);
}

/* The rows of a view of the item's keys. */
template <class REAL>
__device__ __forceinline__ row_source item_rows(const gpu_backward &args, const item_place &item,
                                                const ra_kv_part &part, const ra_view &view) {
    const gpu_tile &t = args.problem.tiles[args.by_key[item.first]];
    int64_t g = (item.g - part.heads.first) / part.heads.stride;
    return source_of<REAL>(view, item.b, g, t.k_first, t.k_stride, t.k_index);
}

/* s, dp become p, ds (without the scale). Rows that saw nothing, by their lse, take no part. Returns whether a pair
 * with p = 0 has a score or dP that is no number: then Q, dO or K hold something that times 0 would spread. */
template <class S>
__device__ __forceinline__ bool differentiate_fma(typename S::REAL (&s)[S::M][S::N], typename S::REAL (&dp)[S::M][S::N],
                                                  const query_source<typename S::REAL> &from, int a0, int b0,
                                                  typename S::REAL scale) {
    using REAL = typename S::REAL;
    bool wild = false;
#pragma unroll
    for (int i = 0; i < S::M; i++) {
        int a = a0 + thread_y() + 16 * i;
        bool there = a < from.count;
        REAL lse = there ? from.lse[a * from.each] : -(REAL)INFINITY, delta = there ? from.delta[a * from.each] : 0;
        int first = a + from.lo - b0, end = isinf(lse) ? first : min(a + from.hi + 1, from.keys) - b0;
#pragma unroll
        for (int j = 0; j < S::N; j++) {
            int key = thread_x() + 16 * j;
            bool seen = key >= first && key < end;
            REAL p = seen ? exp_of(s[i][j] * scale - lse) : 0;
            wild |= p == 0 && !(isfinite(s[i][j]) && isfinite(dp[i][j]));
            s[i][j] = p;
            dp[i][j] = p == 0 ? 0 : p * (dp[i][j] - delta);
        }
    }
    return wild;
}

/* tile [KEYS, ROWS] = x^T. */
template <class S>
__device__ __forceinline__ void store_turned(typename S::REAL *tile, const typename S::REAL (&x)[S::M][S::N]) {
    using REAL = typename S::REAL;
#pragma unroll
    for (int i = 0; i < S::M; i++)
#pragma unroll
        for (int j = 0; j < S::N; j++)
            element_of<REAL, S::ROWS>(tile, thread_x() + 16 * j, thread_y() + 16 * i) = x[i][j];
}

template <class S>
__device__ __forceinline__ void store_straight(typename S::REAL *tile, const typename S::REAL (&x)[S::M][S::N]) {
    using REAL = typename S::REAL;
#pragma unroll
    for (int i = 0; i < S::M; i++)
#pragma unroll
        for (int j = 0; j < S::N; j++)
            element_of<REAL, S::KEYS>(tile, thread_y() + 16 * i, thread_x() + 16 * j) = x[i][j];
}

template <int DEPTH, int A_PITCH, int B_PITCH, class REAL, int M, int N>
__device__ __forceinline__ void add_either(bool wild, chunk<REAL> (&acc)[M][N], const REAL *a, const REAL *b) {
    if (wild)
        add_rows_by_columns<DEPTH, A_PITCH, B_PITCH, true>(acc, a, b);
    else
        add_rows_by_columns<DEPTH, A_PITCH, B_PITCH, false>(acc, a, b);
}

template <class REAL, int M, int N> __device__ __forceinline__ void clear(chunk<REAL> (&x)[M][N]) {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < chunk<REAL>::WIDE; e++) x[i][j].e[e] = 0;
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1) backward_fma(const __grid_constant__ gpu_backward args) {
    using REAL = typename S::REAL;
    enum { PASSER = 0, WAITER = 32 };
    extern __shared__ __align__(1024) unsigned char shared[];
    fma_memory<S> memory(shared);
    const gpu_problem &p = args.problem;
    REAL scale = (REAL)p.scale;
    if (threadIdx.x == 0) *(unsigned *)shared = atomicAdd(args.ticket, 1u);
    __syncthreads();
    item_place item = item_at(args, *(unsigned *)shared);
    __syncthreads();
    int end = item.first + item.count, b0 = item.block * S::KEYS, slot = 0;
    query_cursor at = first_queries<S::ROWS, S::KEYS>(args, item, item.first);
    if (at.at == end) return;
    const gpu_tile &tile = p.tiles[args.by_key[item.first]];
    const ra_kv_part &part = part_of(p, tile.part);
    int keys = tile.k_count;
    if (threadIdx.x == 0) set_queries<REAL, REAL, S::ROWS>(&memory.sources[0], args, item.b, at.at, at.head);
    copy_rows<REAL, S::DIM, S::KEYS, S::THREADS>(memory.k, item_rows<REAL>(args, item, part, part.k), b0, keys, p.dim);
    copy_rows<REAL, S::DIM, S::KEYS, S::THREADS>(memory.v, item_rows<REAL>(args, item, part, part.v), b0, keys,
                                                 p.dim_v);
    __syncthreads();
    copy_queries_fma<S>(p, memory, memory.sources[0], at.block);

    chunk<REAL> dk[S::N][S::D], dv[S::N][S::D];
    clear(dk);
    clear(dv);
#pragma unroll 1
    for (;;) {
        copies_wait();
        __syncthreads();
        const query_source<REAL> &from = memory.sources[slot];
        int *chain = from.chain + at.block;
        int turn = 0, seen = 0;
        if (threadIdx.x == WAITER) {
            turn = turn_of<S::ROWS, S::KEYS>(from, at.block, item.block);
            seen = chain_read(chain);
        }
        REAL s[S::M][S::N] = {}, dp[S::M][S::N] = {};
        add_rows_by_rows<S::DIM, S::DIM>(s, memory.q, memory.k);
        add_rows_by_rows<S::DIM, S::DIM>(dp, memory.dout, memory.v);
        bool wild = differentiate_fma<S>(s, dp, from, at.block * S::ROWS, b0, scale);
        store_turned<S>(memory.turned, s);
        store_straight<S>(memory.ds, dp);
        wild = __syncthreads_or(wild);
        add_either<S::ROWS, S::ROWS, S::DIM>(wild, dv, memory.turned, memory.dout);
        __syncthreads();
        store_turned<S>(memory.turned, dp);
        if (threadIdx.x == WAITER) chain_wait(chain, seen, turn);
        __syncthreads();
        add_either<S::ROWS, S::ROWS, S::DIM>(wild, dk, memory.turned, memory.q);
        {
            chunk<REAL> dq[S::M][S::D], old[S::M][S::D];
            int a0 = at.block * S::ROWS;
            clear(dq);
            read_chunks(old, from.dq, a0, from.count, p.dim);
            add_either<S::KEYS, S::KEYS, S::DIM>(wild, dq, memory.ds, memory.k);
            add_scaled(old, dq, scale);
            write_chunks(old, from.dq, a0, from.count, p.dim);
        }
        query_cursor next = next_queries<S::ROWS, S::KEYS>(args, item, at);
        bool more = next.at < end;
        if (more && (next.at != at.at || next.head != at.head)) {
            slot ^= 1;
            if (threadIdx.x == 0)
                set_queries<REAL, REAL, S::ROWS>(&memory.sources[slot], args, item.b, next.at, next.head);
        }
        __syncthreads();
        if (threadIdx.x == PASSER) chain_pass(chain);
        if (!more) break;
        copy_queries_fma<S>(p, memory, memory.sources[slot], next.block);
        at = next;
    }
    chunk<REAL> old[S::N][S::D];
    row_source to = item_rows<REAL>(args, item, part, part.dv);
    read_chunks(old, to, b0, keys, p.dim_v);
    add_scaled(old, dv, (REAL)1);
    write_chunks(old, to, b0, keys, p.dim_v);
    to = item_rows<REAL>(args, item, part, part.dk);
    read_chunks(old, to, b0, keys, p.dim);
    add_scaled(old, dk, scale);
    write_chunks(old, to, b0, keys, p.dim);
}

template <class S> cudaError_t backward_fma_allow(void) {
    return cudaFuncSetAttribute(backward_fma<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
}

template <class S> void backward_fma_launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
    backward_fma<S><<<count, S::THREADS, S::BYTES, stream>>>(*args);
}

#endif
