/* Rows of device memory to shared memory, and what goes with it.
 *
 * A tile of shared memory has rows of PITCH elements in chunks of 16 bytes. Chunk c of row r stands at c ^ (r & 7), so
 * that both a column of chunks (ldmatrix, products along a row) and a row of them meet all banks:
 *
 *   row 0   0 1 2 3 4 5 6 7
 *   row 1   1 0 3 2 5 4 7 6
 *   row 2   2 3 0 1 6 7 4 5   ...
 *
 * In rows of fewer than 8 chunks, 2 or 4, only as many bits of the row's number have a part in it.
 *
 * Before compute capability 8.0 there are no asynchronous copies: chunks go through registers.
 */
#ifndef RA_KERNEL_CUDA_ASYNC_COPY_CUH
#define RA_KERNEL_CUDA_ASYNC_COPY_CUH

#include "kernel/cuda/kernel_table.h"

__device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800

__device__ __forceinline__ void store_16(uint32_t to, uint4 x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}

__device__ __forceinline__ void store_4(uint32_t to, uint32_t x) {
    asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(to), "r"(x) : "memory");
}

__device__ __forceinline__ void copy_16_or_zeros(uint32_t to, const void *from, bool there) {
    store_16(to, there ? __ldcg((const uint4 *)from) : make_uint4(0, 0, 0, 0));
}

__device__ __forceinline__ void copy_4_or_zeros(uint32_t to, const void *from, bool there) {
    store_4(to, there ? __ldcg((const uint32_t *)from) : 0);
}

__device__ __forceinline__ void copy_4(uint32_t to, const void *from) {
    store_4(to, __ldcg((const uint32_t *)from));
}

__device__ __forceinline__ void copies_wait(void) {
}

#else

/* 16 bytes, or 16 zeros without reading any. Compilers that know of it have a predicate for that, which takes fewer
 * instructions. */
__device__ __forceinline__ void copy_16_or_zeros(uint32_t to, const void *from, bool there) {
#if __CUDACC_VER_MAJOR__ >= 13
    asm volatile("{\n.reg .pred none;\nsetp.eq.s32 none, %2, 0;\n"
                 "cp.async.cg.shared.global [%0], [%1], 16, none;\n}\n" ::"r"(to),
                 "l"(from), "r"((int)there)
                 : "memory");
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
#endif
}

__device__ __forceinline__ void copy_4_or_zeros(uint32_t to, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}

__device__ __forceinline__ void copy_4(uint32_t to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void copies_wait(void) {
    asm volatile("cp.async.wait_all;\n" ::: "memory");
}

#endif

/* Rows of one batch and head of a view: the i-th is at base + i * step, or at base + index[i] * step. */
struct row_source {
    const char *base;
    int64_t step; /* bytes */
    const int64_t *index;
    int64_t dim; /* elements from one element of a row to the next */
    int aligned; /* chunks of 16 bytes can be copied */
};

template <class T>
__device__ __forceinline__ row_source source_of(const ra_view &view, int64_t b, int64_t h, int64_t first,
                                                int64_t stride, const int64_t *index) {
    row_source s;
    int64_t bytes = (int64_t)sizeof(T);
    s.base = (const char *)view.data + (b * view.batch + h * view.head + (index ? 0 : first * view.row)) * bytes;
    s.step = view.row * (index ? 1 : stride) * bytes;
    s.index = index;
    s.dim = view.dim;
    s.aligned = view.dim == 1 && (((uint64_t)s.base | (uint64_t)s.step) & 15) == 0;
    return s;
}

template <class T> __device__ __forceinline__ int64_t row_offset(const row_source &s, int i) {
    return s.step * (s.index ? s.index[i] : (int64_t)i);
}

/* The bits of a row's number that its chunks are swizzled by. */
template <int ROW_BYTES> static constexpr int swizzle_bits = ROW_BYTES >= 128 ? 7 : ROW_BYTES / 16 - 1;

template <int PITCH, class T> __device__ __forceinline__ int chunk_bytes_at(int row, int chunk) {
    return row * PITCH * (int)sizeof(T) + ((chunk ^ (row & swizzle_bits<PITCH *(int)sizeof(T)>)) << 4);
}

/* How many bytes of a row of `width` elements are in one of its chunks: 16, fewer in its last, 0 behind it. */
template <class T> __device__ __forceinline__ int bytes_in_chunk(int width, int chunk) {
    return max(0, min(16, width * (int)sizeof(T) - chunk * 16));
}

/* A chunk that cannot be copied whole, because the row ends in it or its elements do not lie side by side on 16 bytes:
 * `bytes` of row i, 0 beyond them and where `there` is not so. Nothing but these is read: what lies behind a row need
 * not be the caller's, and the partial form of the 16-byte copy is taken for a read of all 16 by who checks accesses.
 */
template <class T>
__device__ __forceinline__ void copy_part_of_chunk(unsigned char *to, const row_source &s, int i, int chunk, int bytes,
                                                   bool there) {
    constexpr int EACH = 16 / (int)sizeof(T);
    const char *from = there ? s.base + row_offset<T>(s, i) : s.base;
    if (s.aligned && bytes % 4 == 0) {
        from += chunk * 16;
#pragma unroll
        for (int at = 0; at < 16; at += 4) copy_4_or_zeros(shared_address(to) + at, from + at, there && at < bytes);
        return;
    }
    union {
        T element[EACH];
        uint4 chunk;
    } x;
    x.chunk = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (there && e * (int)sizeof(T) < bytes) x.element[e] = ((const T *)from)[(chunk * EACH + e) * s.dim];
    *(uint4 *)to = x.chunk;
}

/* to [ROWS, PITCH] = rows [first, first + ROWS) of the source, `width` elements each; zero beyond them and from row
 * `limit` on. By THREADS threads, of which this is number `thread`. It copies the same chunks whenever it is called: it
 * can look at what it copied after its own copies_wait, before any barrier. */
template <class T, int PITCH, int ROWS, int THREADS>
__device__ __forceinline__ void copy_rows(void *to, const row_source &s, int first, int limit, int width,
                                          int thread = (int)threadIdx.x) {
    constexpr int EACH = 16 / (int)sizeof(T), CHUNKS = PITCH / EACH, TOTAL = ROWS * CHUNKS;
    static_assert(TOTAL % THREADS == 0, "every thread copies as many chunks");
    static_assert(THREADS % CHUNKS == 0, "and always the same one of a row");
    constexpr int STEP = THREADS / CHUNKS; /* rows from one of a thread's chunks to the next */
    int row = thread / CHUNKS, chunk = thread % CHUNKS, bytes = bytes_in_chunk<T>(width, chunk);
    if (!s.aligned || bytes % 16) {
#pragma unroll 1
        for (int n = 0; n < TOTAL / THREADS; n++, row += STEP)
            copy_part_of_chunk<T>((unsigned char *)to + chunk_bytes_at<PITCH, T>(row, chunk), s, first + row, chunk,
                                  bytes, first + row < limit);
        return;
    }
    /* What is beyond the rows is copied as zeros, from wherever. */
    uint32_t base = shared_address(to);
    int left = bytes ? limit - first : 0;
    if (s.index) {
#pragma unroll 2
        for (int n = 0; n < TOTAL / THREADS; n++, row += STEP) {
            const char *from = row < left ? s.base + row_offset<T>(s, first + row) + chunk * 16 : s.base;
            copy_16_or_zeros(base + chunk_bytes_at<PITCH, T>(row, chunk), from, row < left);
        }
        return;
    }
    const char *from = s.base + row_offset<T>(s, first + row) + chunk * 16;
    int64_t step = STEP * s.step;
#pragma unroll 4
    for (int n = 0; n < TOTAL / THREADS; n++) {
        copy_16_or_zeros(base + chunk_bytes_at<PITCH, T>(row + n * STEP, chunk), from, row + n * STEP < left);
        from += step;
    }
}

/* Calls visit(uint4 &) for the chunks that this thread copies. */
template <class T, int PITCH, int ROWS, int THREADS, class VISIT>
__device__ __forceinline__ void visit_copied(void *tile, VISIT visit) {
    constexpr int CHUNKS = PITCH * (int)sizeof(T) / 16, TOTAL = ROWS * CHUNKS;
#pragma unroll 4
    for (int n = 0; n < TOTAL / THREADS; n++) {
        int id = n * THREADS + (int)threadIdx.x;
        visit(*(uint4 *)((char *)tile + chunk_bytes_at<PITCH, T>(id / CHUNKS, id % CHUNKS)));
    }
}

#endif
