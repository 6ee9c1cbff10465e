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

/* One element at a time, for rows that are not in chunks of 16 bytes. */
template <class T, int DIM, int ROWS>
__device__ __forceinline__ void copy_elements(unsigned char *to, const row_source &s, int first, int limit, int width,
                                              int thread) {
    panel_share<DIM, ROWS> share(thread);
#pragma unroll 1
    for (int n = 0; n < share.COUNT; n++) {
        int i = first + share.row + n * share.STEP;
        union {
            T element[8];
            uint4 chunk;
        } x;
        x.chunk = make_uint4(0, 0, 0, 0);
        if (i < limit) {
            const T *from = (const T *)(s.base + row_offset<T>(s, i));
#pragma unroll
            for (int e = 0; e < 8; e++)
                if (share.chunk * 8 + e < width) x.element[e] = from[(share.chunk * 8 + e) * s.dim];
        }
        *(uint4 *)(to + share.at + n * share.STEP * PANEL_ROW_BYTES) = x.chunk;
    }
}

/* to [ROWS, DIM] = rows [first, first + ROWS) of the source, `width` elements each; zero beyond them and from row
 * `limit` on. */
template <class T, int DIM, int ROWS>
__device__ __forceinline__ void copy_panels(unsigned char *to, const row_source &s, int first, int limit, int width,
                                            int thread) {
    if (!s.aligned) {
        copy_elements<T, DIM, ROWS>(to, s, first, limit, width, thread);
        return;
    }
    panel_share<DIM, ROWS> share(thread);
    constexpr int STEP_BYTES = share.STEP * PANEL_ROW_BYTES;
    int bytes = max(0, min(16, (width - share.chunk * 8) * 2)), left = limit - first - share.row;
    uint32_t at = shared_address(to) + share.at;
    if (s.index) {
        const int64_t *index = s.index + first + share.row;
        const char *column = s.base + (bytes ? share.chunk * 16 : 0);
#pragma unroll 4
        for (int n = 0; n < share.COUNT; n++) {
            bool there = n * share.STEP < left;
            const char *from = there ? column + s.step * index[n * share.STEP] : s.base;
            copy_16(at + n * STEP_BYTES, from, there ? bytes : 0);
        }
        return;
    }
    const char *from = s.base + (bytes ? s.step * (first + share.row) + share.chunk * 16 : 0);
    int64_t step = bytes ? share.STEP * s.step : 0;
#pragma unroll 4
    for (int n = 0; n < share.COUNT; n++) {
        bool there = n * share.STEP < left;
        copy_16(at + n * STEP_BYTES, there ? from : s.base, there ? bytes : 0);
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
