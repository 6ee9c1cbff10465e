/* Rows to shared memory in the main loops of the mma.sync kernels: copy_rows of async_copy.cuh with few instructions
 * for rows that lie on 16 bytes, end there, and are not listed. */
#ifndef RA_KERNEL_CUDA_SM80_COPY_TILES_CUH
#define RA_KERNEL_CUDA_SM80_COPY_TILES_CUH

#include "kernel/cuda/async_copy.cuh"

/* to [ROWS, PITCH] = rows [first, first + ROWS) of the source, `width` elements each; zero beyond them and from row
 * `limit` on. By THREADS threads, of which this is number `thread`; it copies the chunks that it copies in copy_rows.
 */
template <class T, int PITCH, int ROWS, int THREADS>
__device__ __forceinline__ void copy_tile(void *to, const row_source &s, int first, int limit, int width,
                                          int thread = (int)threadIdx.x) {
    constexpr int EACH = 16 / (int)sizeof(T), CHUNKS = PITCH / EACH, STEP = THREADS / CHUNKS;
    if (!s.aligned || s.index || width % EACH) {
        copy_rows<T, PITCH, ROWS, THREADS>(to, s, first, limit, width, thread);
        return;
    }
    int row = thread / CHUNKS, chunk = thread % CHUNKS, left = chunk * EACH < width ? limit - first : 0;
    int64_t step = s.step; /* read once: the copies below might change it, for all that the compiler knows */
    const char *from = s.base + step * (first + row) + chunk * 16;
    static_assert(STEP % 4 == 0, "rows that are swizzled alike, or whose chunks are 4 apart");
    uint32_t at = shared_address(to) + chunk_bytes_at<PITCH, T>(row, chunk);
#pragma unroll
    for (int n = 0; n < ROWS / STEP; n++)
        copy_16_or_zeros((at ^ (n * STEP % 8 << 4)) + n * STEP * PITCH * (int)sizeof(T), from + n * STEP * step,
                         row + n * STEP < left);
}

#endif
