/* Rows of device memory to tiles of panels (wgmma.cuh), by one warpgroup.
 *
 * A thread copies the same chunk of every STEP-th row. STEP is a multiple of 8, so that its place in the swizzle is
 * always the same, and addresses on both sides go on by constants.
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_PANELS_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_PANELS_CUH

#include "kernel/cuda/async_copy.cuh"
#include "kernel/cuda/sm90/wgmma.cuh"

/* What thread `thread` of the 128 copies of a tile [ROWS, DIM] of 16-bit elements. */
template <int DIM, int ROWS> struct panel_share {
    static constexpr int CHUNKS = DIM / 8, STEP = 128 / CHUNKS, COUNT = ROWS / STEP;
    static_assert(STEP % 8 == 0 && ROWS % STEP == 0, "every thread copies as many chunks, all at one place of a row");
    int row, chunk, at; /* of the first; at: byte in the tile */
    __device__ __forceinline__ panel_share(int thread)
        : row(thread / CHUNKS), chunk(thread % CHUNKS), at(panel_chunk_at<ROWS>(row, chunk)) {
    }
};

__device__ __forceinline__ void copies_commit(void) {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Until at most LEFT groups of this thread's copies are under way. */
template <int LEFT> __device__ __forceinline__ void copies_wait_until(void) {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT) : "memory");
}

/* to [ROWS, DIM] = rows [first, first + ROWS) of the source, `width` elements each; zero beyond them and from row
 * `limit` on. */
template <class T, int DIM, int ROWS>
__device__ __forceinline__ void copy_panels(unsigned char *to, const row_source &s, int first, int limit, int width,
                                            int thread) {
    panel_share<DIM, ROWS> share(thread);
    constexpr int STEP_BYTES = share.STEP * PANEL_ROW_BYTES;
    int bytes = bytes_in_chunk<T>(width, share.chunk), left = limit - first - share.row;
    if (!s.aligned || bytes % 16) {
#pragma unroll 1
        for (int n = 0; n < share.COUNT; n++)
            copy_part_of_chunk<T>(to + share.at + n * STEP_BYTES, s, first + share.row + n * share.STEP, share.chunk,
                                  bytes, n * share.STEP < left);
        return;
    }
    /* What is beyond the rows is copied as zeros, from wherever. */
    uint32_t at = shared_address(to) + share.at;
    if (!bytes) left = 0;
    if (s.index) {
        const int64_t *index = s.index + first + share.row;
        const char *column = s.base + share.chunk * 16;
#pragma unroll 4
        for (int n = 0; n < share.COUNT; n++) {
            bool there = n * share.STEP < left;
            copy_16_or_zeros(at + n * STEP_BYTES, there ? column + s.step * index[n * share.STEP] : s.base, there);
        }
        return;
    }
    const char *from = s.base + s.step * (first + share.row) + share.chunk * 16;
    int64_t step = share.STEP * s.step;
#pragma unroll 4
    for (int n = 0; n < share.COUNT; n++) {
        copy_16_or_zeros(at + n * STEP_BYTES, from, n * share.STEP < left);
        from += step;
    }
}

/* Calls visit(uint4 &) for the chunks that this thread copied. */
template <int DIM, int ROWS, class VISIT>
__device__ __forceinline__ void visit_panels(unsigned char *tile, int thread, VISIT visit) {
    panel_share<DIM, ROWS> share(thread);
#pragma unroll 1
    for (int n = 0; n < share.COUNT; n++) visit(*(uint4 *)(tile + share.at + n * share.STEP * PANEL_ROW_BYTES));
}

#endif
