/* Products on the FMA units, for f32 and f64. Threads stand in a grid of X columns and Y rows, each with a few rows and
 * columns of the result.
 *
 *   thread (y, x):  rows y + Y i, or in chunks of 16 bytes (WIDE elements) WIDE (y + Y i) on
 *                   columns x + X j, or in chunks likewise
 *   lane of a warp  0 1 2 3 4 5 ...   X = 16
 *   y               0 1 0 1 0 1 ...
 *   x               0 0 1 1 2 2 ...
 *
 * A load of 16 bytes by a warp takes one cycle for each half of it where lanes i and i ^ 1, or i and i ^ 2, read the
 * same, and twice that elsewhere: hence lanes side by side share a column, and every other one a row.
 *
 * Operands are tiles of shared memory, swizzled as in async_copy.cuh: 8 rows a pitch apart, or 8 chunks of one row,
 * meet all banks. The next operands are loaded while the last ones are multiplied.
 */
#ifndef RA_KERNEL_CUDA_FMA_PRODUCTS_CUH
#define RA_KERNEL_CUDA_FMA_PRODUCTS_CUH

#include "kernel/cuda/async_copy.cuh"
#include "kernel/cuda/score.cuh"

template <class REAL> struct chunk_of;

template <> struct chunk_of<float> { using type = float4; };

template <> struct chunk_of<double> { using type = double2; };

/* 16 bytes of elements. */
template <class REAL> union chunk {
    static constexpr int WIDE = 16 / (int)sizeof(REAL);
    typename chunk_of<REAL>::type whole;
    REAL e[WIDE];
};

/* This thread's number, read again at every call: what follows from it is then worked out where it is needed, and holds
 * no registers elsewhere. */
__device__ __forceinline__ int fresh_thread(void) {
    int number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
}

/* A warp has 32 / X whole rows of the grid. */
template <int X_, int THREADS> struct thread_grid {
    static constexpr int X = X_, Y = THREADS / X_;
    static_assert(X == 8 || X == 16 || X == 32, "whole rows in a warp");
    int x, y;
    __device__ __forceinline__ thread_grid(void) {
        int thread = fresh_thread(), lane = thread % 32, warp = thread / 32;
        x = X == 32 ? lane : lane / 2 % X;
        y = X == 32 ? warp : X == 16 ? warp * 2 + lane % 2 : warp * 4 + lane / 16 * 2 + lane % 2;
    }
    /* The result's column number j of this thread. */
    __device__ __forceinline__ int column(int j) const {
        return x + X * j;
    }
    /* And its row number i; those that come in chunks of WIDE. */
    template <int WIDE> __device__ __forceinline__ int row(int i) const {
        return WIDE * (y + Y * (i / WIDE)) + i % WIDE;
    }
    __device__ __forceinline__ int row(int i) const {
        return row<1>(i);
    }
};

/* From an address in shared memory. */
template <class REAL> __device__ __forceinline__ chunk<REAL> load_chunk(uint32_t at) {
    chunk<REAL> c;
    c.whole = *(const typename chunk_of<REAL>::type *)__cvta_shared_to_generic(at);
    return c;
}

template <class REAL, int PITCH> __device__ __forceinline__ REAL &element_of(REAL *tile, int row, int column) {
    constexpr int WIDE = 16 / (int)sizeof(REAL);
    return *(REAL *)((char *)tile + chunk_bytes_at<PITCH, REAL>(row, column / WIDE) +
                     column % WIDE * (int)sizeof(REAL));
}

/* Chunk k of a row is at the address of its chunk 0 with k's bits flipped, as tiles start at multiples of 1024 bytes
 * and of their rows; column c of row r, r < 8, is r rows from that of row 0 with r's bits flipped. One instruction
 * each. */
__device__ __forceinline__ uint32_t flip_chunk(uint32_t at, int k) {
    return at ^ (uint32_t)(k << 4);
}

template <int ROW> __device__ __forceinline__ uint32_t chunk_along(uint32_t at, int k) {
    return ROW <= 1024 ? flip_chunk(at, k) : flip_chunk(at, k & 7) + (uint32_t)((k & ~7) << 4);
}

/* acc [rows, columns] += A [M Y, chunks from a_first on] . B [N X, DEPTH]^T; a_first is a multiple of DEPTH's chunks.
 */
template <class G, int DEPTH, int A_PITCH, int B_PITCH, class REAL, int M, int N>
__device__ __forceinline__ void add_rows_by_rows(REAL (&acc)[M][N], const REAL *a, int a_first, const REAL *b) {
    constexpr int WIDE = chunk<REAL>::WIDE, CHUNKS = DEPTH / WIDE, RING = N < 4 ? N : 4, AHEAD = RING - 1;
    constexpr int A_ROW = A_PITCH * (int)sizeof(REAL), B_ROW = B_PITCH * (int)sizeof(REAL);
    constexpr int A_STEP = G::Y * A_ROW, B_STEP = G::X * B_ROW;
    static_assert(N % RING == 0 && (CHUNKS & (CHUNKS - 1)) == 0, "the ring of columns and the chunks go round");
    static_assert(G::X % 8 == 0 && G::Y % 8 == 0, "a thread's rows are all swizzled alike");
    G g;
    uint32_t a_at = shared_address(a) + chunk_bytes_at<A_PITCH, REAL>(g.y, a_first);
    uint32_t b_at = shared_address(b) + chunk_bytes_at<B_PITCH, REAL>(g.x, 0);
    chunk<REAL> x[M], y[RING];
#pragma unroll
    for (int i = 0; i < M; i++) x[i] = load_chunk<REAL>(a_at + A_STEP * i);
#pragma unroll
    for (int j = 0; j < AHEAD; j++) y[j] = load_chunk<REAL>(b_at + B_STEP * j);
#pragma unroll 2
    for (int k = 0; k < CHUNKS; k++) {
        int next = (k + 1) & (CHUNKS - 1);
        uint32_t a_next = chunk_along<A_ROW>(a_at, next);
        uint32_t b_now = chunk_along<B_ROW>(b_at, k), b_next = chunk_along<B_ROW>(b_at, next);
        chunk<REAL> after[M];
#pragma unroll
        for (int j = 0; j < N; j++) {
            int ahead = j + AHEAD;
            y[ahead % RING] = load_chunk<REAL>((ahead < N ? b_now : b_next) + B_STEP * (ahead % N));
#pragma unroll
            for (int i = j * M / N; i < (j + 1) * M / N; i++) after[i] = load_chunk<REAL>(a_next + A_STEP * i);
#pragma unroll
            for (int e = 0; e < WIDE; e++)
#pragma unroll
                for (int i = 0; i < M; i++) acc[i][j] = fma(x[i].e[e], y[j % RING].e[e], acc[i][j]);
        }
#pragma unroll
        for (int i = 0; i < M; i++) x[i] = after[i];
    }
}

/* One step of a product: acc [chunks] += x y [chunks]. SKIP: elements of x that take no part are left out, so that they
 * make no NaN with an infinity or a NaN in y. */
template <bool SKIP, class REAL, int N>
__device__ __forceinline__ void add_outer(chunk<REAL> (&acc)[N], REAL x, const chunk<REAL> (&y)[N]) {
    if (SKIP && !takes_part(x)) return;
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int d = 0; d < chunk<REAL>::WIDE; d++) acc[j].e[d] = fma(x, y[j].e[d], acc[j].e[d]);
}

/* Every STEP-th chunk. */
template <int STEP, class REAL, int N> __device__ __forceinline__ void load_chunks(chunk<REAL> (&y)[N], uint32_t at) {
#pragma unroll
    for (int j = 0; j < N; j++) y[j] = load_chunk<REAL>(at + 16 * STEP * j);
}

/* acc [rows, chunks] += A [M Y, DEPTH] . B [DEPTH, B_PITCH]. */
template <class G, int DEPTH, int A_PITCH, int B_PITCH, bool SKIP, class REAL, int M, int N>
__device__ __forceinline__ void add_rows_by_columns(chunk<REAL> (&acc)[M][N], const REAL *a, const REAL *b) {
    constexpr int WIDE = chunk<REAL>::WIDE;
    constexpr int A_ROW = A_PITCH * (int)sizeof(REAL), A_STEP = G::Y * A_ROW, B_ROW = B_PITCH * (int)sizeof(REAL);
    static_assert((DEPTH & (DEPTH - 1)) == 0 && DEPTH % 8 == 0, "the depth goes round, 8 rows at a time");
    static_assert(G::Y % 8 == 0, "a thread's rows are all swizzled alike");
    G g;
    uint32_t a_at = shared_address(a) + chunk_bytes_at<A_PITCH, REAL>(g.y, 0), b_at = shared_address(b) + g.x * 16;
    chunk<REAL> x[M], y[2][N];
#pragma unroll
    for (int i = 0; i < M; i++) x[i] = load_chunk<REAL>(a_at + A_STEP * i);
    load_chunks<G::X>(y[0], b_at);
#pragma unroll 1
    for (int from = 0; from < DEPTH; from += 8) {
        int next = (from + 8) & (DEPTH - 1);
        uint32_t a_now = chunk_along<A_ROW>(a_at, from / WIDE), a_next = chunk_along<A_ROW>(a_at, next / WIDE);
        uint32_t b_now = b_at + from * B_ROW, b_next = b_at + next * B_ROW;
        chunk<REAL> after[M];
#pragma unroll
        for (int r = 0; r < 8; r++) {
            int e = r % WIDE, n = r / WIDE + 1; /* n: the chunk of A that comes next */
            load_chunks<G::X>(y[(r + 1) % 2], r < 7 ? flip_chunk(b_now, r + 1) + B_ROW * (r + 1) : b_next);
#pragma unroll
            for (int i = e * M / WIDE; i < (e + 1) * M / WIDE; i++)
                after[i] = load_chunk<REAL>((n < 8 / WIDE ? flip_chunk(a_now, n) : a_next) + A_STEP * i);
#pragma unroll
            for (int i = 0; i < M; i++) add_outer<SKIP>(acc[i], x[i].e[e], y[r % 2]);
#pragma unroll
            for (int i = 0; i < M; i++)
                if (e == WIDE - 1) x[i] = after[i];
        }
    }
}

/* acc [rows in chunks, chunks] += A [DEPTH, A_PITCH]^T . B [DEPTH, B_PITCH]. */
template <class G, int DEPTH, int A_PITCH, int B_PITCH, bool SKIP, class REAL, int M, int N>
__device__ __forceinline__ void add_columns_by_columns(chunk<REAL> (&acc)[M][N], const REAL *a, const REAL *b) {
    constexpr int WIDE = chunk<REAL>::WIDE;
    constexpr int A_ROW = A_PITCH * (int)sizeof(REAL), B_ROW = B_PITCH * (int)sizeof(REAL),
                  A_BITS = swizzle_bits<A_ROW>;
    static_assert((DEPTH & (DEPTH - 1)) == 0 && DEPTH % 8 == 0, "the depth goes round, 8 rows at a time");
    G g;
    chunk<REAL> x[2][M / WIDE], y[2][N];
    uint32_t a_at = shared_address(a) + g.y * 16, b_at = shared_address(b) + g.x * 16;
    load_chunks<G::Y>(x[0], a_at);
    load_chunks<G::X>(y[0], b_at);
#pragma unroll 1
    for (int from = 0; from < DEPTH; from += 8) {
        int next = (from + 8) & (DEPTH - 1);
        uint32_t a_now = a_at + from * A_ROW, a_next = a_at + next * A_ROW;
        uint32_t b_now = b_at + from * B_ROW, b_next = b_at + next * B_ROW;
#pragma unroll
        for (int r = 0; r < 8; r++) {
            load_chunks<G::Y>(x[(r + 1) % 2], r < 7 ? flip_chunk(a_now, (r + 1) & A_BITS) + A_ROW * (r + 1) : a_next);
            load_chunks<G::X>(y[(r + 1) % 2], r < 7 ? flip_chunk(b_now, r + 1) + B_ROW * (r + 1) : b_next);
#pragma unroll
            for (int i = 0; i < M; i++) add_outer<SKIP>(acc[i], x[r % 2][i / WIDE].e[i % WIDE], y[r % 2]);
        }
    }
}

/* x [rows, in chunks of ROWS; chunks] = those of a view's rows [first, ...), 0 beyond the width and in rows that are
 * not wanted(thread's row number, row), of which none is read. Past the first-level cache: other multiprocessors may
 * have written them. */
template <class G, int ROWS, class REAL, int M, int N, class WANTED>
__device__ __forceinline__ void read_chunks_of(chunk<REAL> (&x)[M][N], const row_source &from, int first, int width,
                                               WANTED wanted) {
    constexpr int WIDE = chunk<REAL>::WIDE;
    G g;
#pragma unroll
    for (int i = 0; i < M; i++) {
        int row = first + g.template row<ROWS>(i);
        bool there = wanted(i, row);
        const REAL *data = (const REAL *)from.base;
        if (there) data = (const REAL *)(from.base + row_offset<REAL>(from, row));
#pragma unroll
        for (int j = 0; j < N; j++) {
            int d = g.column(j) * WIDE;
            bool whole = from.aligned && d + WIDE <= width && there;
            if (whole) x[i][j].whole = __ldcg((const typename chunk_of<REAL>::type *)(data + d));
#pragma unroll
            for (int e = 0; e < WIDE; e++)
                if (!whole) x[i][j].e[e] = there && d + e < width ? __ldcg(data + (d + e) * from.dim) : (REAL)0;
        }
    }
}

/* Those before row `limit`. */
template <class G, int ROWS, class REAL, int M, int N>
__device__ __forceinline__ void read_chunks(chunk<REAL> (&x)[M][N], const row_source &from, int first, int limit,
                                            int width) {
    read_chunks_of<G, ROWS>(x, from, first, width, [=](int, int row) { return row < limit; });
}

template <class G, int ROWS, class REAL, int M, int N>
__device__ __forceinline__ void write_chunks(const chunk<REAL> (&x)[M][N], const row_source &to, int first, int limit,
                                             int width) {
    constexpr int WIDE = chunk<REAL>::WIDE;
    G g;
#pragma unroll
    for (int i = 0; i < M; i++) {
        int row = first + g.template row<ROWS>(i);
        if (row >= limit) continue;
        REAL *data = (REAL *)(to.base + row_offset<REAL>(to, row));
#pragma unroll
        for (int j = 0; j < N; j++) {
            int d = g.column(j) * WIDE;
            bool whole = to.aligned && d + WIDE <= width;
            if (whole) __stcg((typename chunk_of<REAL>::type *)(data + d), x[i][j].whole);
#pragma unroll
            for (int e = 0; e < WIDE; e++)
                if (!whole && d + e < width) __stcg(data + (d + e) * to.dim, x[i][j].e[e]);
        }
    }
}

/* old + by * x, where the product is rounded before it is added. */
static __device__ __forceinline__ float sum_of_rounded(float old, float by, float x) {
    return __fadd_rn(old, __fmul_rn(by, x));
}
static __device__ __forceinline__ double sum_of_rounded(double old, double by, double x) {
    return __dadd_rn(old, __dmul_rn(by, x));
}

/* to += by * x. */
template <class REAL, int M, int N>
__device__ __forceinline__ void add_scaled(chunk<REAL> (&to)[M][N], const chunk<REAL> (&x)[M][N], REAL by) {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < chunk<REAL>::WIDE; e++) to[i][j].e[e] = sum_of_rounded(to[i][j].e[e], by, x[i][j].e[e]);
}

#endif
