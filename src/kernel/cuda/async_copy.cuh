/* Rows of device memory to shared memory, and what goes with it.
 *
 * A tile of shared memory has rows of PITCH elements in chunks of 16 bytes. Chunk c of row r stands at c ^ (r & 7), so
 * that both a column of chunks (ldmatrix, products along a row) and a row of them meet all banks:
 *
 *   row 0   0 1 2 3 4 5 6 7
 *   row 1   1 0 3 2 5 4 7 6
 *   row 2   2 3 0 1 6 7 4 5   ...
 */
#ifndef RA_KERNEL_CUDA_ASYNC_COPY_CUH
#define RA_KERNEL_CUDA_ASYNC_COPY_CUH

#include "kernel/cuda/kernel_table.h"

__device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes, of which `bytes` are read and the rest are zero. */
__device__ __forceinline__ void copy_16(uint32_t to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/* 16 bytes, or 16 zeros. Compilers that know of it have a predicate for that, which takes fewer instructions. */
__device__ __forceinline__ void copy_16_or_zeros(uint32_t to, const void *from, bool there) {
#if __CUDACC_VER_MAJOR__ >= 13
    asm volatile("{\n.reg .pred none;\nsetp.eq.s32 none, %2, 0;\n"
                 "cp.async.cg.shared.global [%0], [%1], 16, none;\n}\n" ::"r"(to),
                 "l"(from), "r"((int)there)
                 : "memory");
#else
    copy_16(to, from, there ? 16 : 0);
#endif
}

__device__ __forceinline__ void copy_4(uint32_t to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void copies_wait(void) {
    asm volatile("cp.async.wait_all;\n" ::: "memory");
}

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

template <int PITCH, class T> __device__ __forceinline__ int chunk_bytes_at(int row, int chunk) {
    return row * PITCH * (int)sizeof(T) + ((chunk ^ (row & 7)) << 4);
}

/* to [ROWS, PITCH] = rows [first, first + ROWS) of the source, `width` elements each; zero beyond them and from row
 * `limit` on. Thread t copies the same chunks whenever it is called: it can look at what it copied after its own
 * copies_wait, before any barrier. */
template <class T, int PITCH, int ROWS, int THREADS>
__device__ __forceinline__ void copy_rows(void *to, const row_source &s, int first, int limit, int width) {
    constexpr int EACH = 16 / (int)sizeof(T), CHUNKS = PITCH / EACH, TOTAL = ROWS * CHUNKS;
    static_assert(TOTAL % THREADS == 0, "every thread copies as many chunks");
    static_assert(THREADS % CHUNKS == 0, "and always the same one of a row");
    constexpr int STEP = THREADS / CHUNKS; /* rows from one of a thread's chunks to the next */
    if (s.aligned) {
        int row = (int)threadIdx.x / CHUNKS, chunk = (int)threadIdx.x % CHUNKS;
        int bytes = max(0, min(16, (width - chunk * EACH) * (int)sizeof(T)));
        uint32_t base = shared_address(to);
        if (s.index) {
#pragma unroll 2
            for (int n = 0; n < TOTAL / THREADS; n++, row += STEP) {
                bool there = bytes && first + row < limit;
                const char *from = there ? s.base + row_offset<T>(s, first + row) + chunk * 16 : s.base;
                copy_16(base + chunk_bytes_at<PITCH, T>(row, chunk), from, there ? bytes : 0);
            }
            return;
        }
        const char *from = s.base + (bytes ? row_offset<T>(s, first + row) + chunk * 16 : 0);
        int64_t step = bytes ? STEP * s.step : 0;
#pragma unroll 4
        for (int n = 0; n < TOTAL / THREADS; n++) {
            bool there = first + row + n * STEP < limit;
            copy_16(base + chunk_bytes_at<PITCH, T>(row + n * STEP, chunk), there ? from : s.base, there ? bytes : 0);
            from += step;
        }
        return;
    }
#pragma unroll 1
    for (int n = 0; n < TOTAL / THREADS; n++) {
        int id = n * THREADS + (int)threadIdx.x, row = id / CHUNKS, chunk = id % CHUNKS;
        union {
            T element[EACH];
            uint4 chunk;
        } x;
        x.chunk = make_uint4(0, 0, 0, 0);
        if (first + row < limit) {
            const T *from = (const T *)(s.base + row_offset<T>(s, first + row));
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (chunk * EACH + e < width) x.element[e] = from[(chunk * EACH + e) * s.dim];
        }
        *(uint4 *)((char *)to + chunk_bytes_at<PITCH, T>(row, chunk)) = x.chunk;
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
