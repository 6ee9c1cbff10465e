/* Rows of device memory to tiles of panels (wgmma.cuh), where there are no tensor maps: chunk by chunk. */
#ifndef RA_KERNEL_CUDA_SM90_ROW_PANELS_CUH
#define RA_KERNEL_CUDA_SM90_ROW_PANELS_CUH

#include "kernel/cuda/async_copy.cuh"
#include "kernel/cuda/sm90/wgmma.cuh"

__device__ __forceinline__ void copies_commit(void) {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Until at most LEFT groups of this thread's copies are under way. */
template <int LEFT> __device__ __forceinline__ void copies_wait_until(void) {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT) : "memory");
}

/* to, an address in shared memory, panels of ROWS rows = rows [first, first + ROWS) of the source, `width` elements
 * each; zero beyond them and from row `limit` on. By THREADS threads. One has one chunk of a row and of every STEP-th
 * row after it, so that the swizzle of its chunks takes two values at most. */
template <class T, int DIM, int ROWS, int THREADS>
__device__ __forceinline__ void copy_panels(uint32_t to, const row_source &s, int first, int limit, int width,
                                            int thread) {
    constexpr int CHUNKS = DIM / 8, STEP = THREADS / CHUNKS, UNROLL = THREADS / 64; /* for few, few registers */
    static_assert((STEP == 4 || STEP % 8 == 0) && ROWS % (2 * STEP) == 0, "rows whose swizzles differ in one bit");
    int row = thread / CHUNKS, chunk = thread % CHUNKS;
    /* What is beyond the rows is copied as zeros, from wherever. */
    int bytes = bytes_in_chunk<T>(width, chunk), left = bytes ? limit - first - row : 0;
    if (!s.aligned || bytes % 16) {
        unsigned char *tile = (unsigned char *)__cvta_shared_to_generic(to);
#pragma unroll 1
        for (int n = 0; n < ROWS; n += STEP)
            copy_part_of_chunk<T>(tile + panel_chunk_at<ROWS>(row + n, chunk), s, first + row + n, chunk, bytes,
                                  n < left);
        return;
    }
    uint32_t even = to + panel_chunk_at<ROWS>(row, chunk), odd = even ^ STEP % 8 << 4;
    if (s.index) {
        const int64_t *index = s.index + first + row;
        const char *column = s.base + chunk * 16;
        constexpr int AT_ONCE = UNROLL * UNROLL * 2; /* numbers of rows are far away: many are asked for at one time */
#pragma unroll AT_ONCE
        for (int n = 0; n < ROWS; n += STEP) {
            const char *from = n < left ? column + s.step * index[n] : s.base;
            copy_16_or_zeros((n & 4 ? odd : even) + n * PANEL_ROW_BYTES, from, n < left);
        }
        return;
    }
    const char *from = s.base + s.step * (first + row) + chunk * 16;
    int64_t step = STEP * s.step;
#pragma unroll UNROLL
    for (int n = 0; n < ROWS; n += 2 * STEP) {
        copy_16_or_zeros(even + n * PANEL_ROW_BYTES, from, n < left);
        from += step;
        copy_16_or_zeros(odd + (n + STEP) * PANEL_ROW_BYTES, from, n + STEP < left);
        from += step;
    }
}

#endif
