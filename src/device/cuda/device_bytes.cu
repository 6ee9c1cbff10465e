/* The driver copies and zeroes with kernels that take all multiprocessors, and products of other ranks on the same GPU
 * have to wait for them. These take a third (launch.cuh). */
#include "device/cuda/device_bytes.h"

#include "device/cuda/launch.cuh"

/* What takes the driver no longer than a launch is left to it. */
static const size_t FEW_BYTES = 1 << 20;

enum { MOVED_TOGETHER = 8 };

static bool is_for_kernel(const void *to, const void *from, size_t bytes) {
    return bytes >= FEW_BYTES && (((uintptr_t)to | (uintptr_t)from | bytes) & 15) == 0;
}

static __global__ void __launch_bounds__(BESIDE_THREADS) copy_chunks(uint4 *to, const uint4 *from, int64_t count) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += MOVED_TOGETHER * step) {
        uint4 x[MOVED_TOGETHER];
#pragma unroll
        for (int n = 0; n < MOVED_TOGETHER; n++)
            if (i + n * step < count) x[n] = from[i + n * step];
#pragma unroll
        for (int n = 0; n < MOVED_TOGETHER; n++)
            if (i + n * step < count) to[i + n * step] = x[n];
    }
}

static __global__ void __launch_bounds__(BESIDE_THREADS) zero_chunks(uint4 *to, int64_t count) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        to[i] = make_uint4(0, 0, 0, 0);
}

cudaError_t gpu_bytes_copy(void *to, const void *from, size_t bytes, cudaStream_t stream) {
    int64_t chunks = (int64_t)(bytes / 16);
    if (!is_for_kernel(to, from, bytes)) return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
    return launch_beside(copy_chunks, chunks / 32, stream, (uint4 *)to, (const uint4 *)from, chunks);
}

cudaError_t gpu_bytes_zero(void *to, size_t bytes, cudaStream_t stream) {
    int64_t chunks = (int64_t)(bytes / 16);
    if (!is_for_kernel(to, to, bytes)) return cudaMemsetAsync(to, 0, bytes, stream);
    return launch_beside(zero_chunks, chunks / 32, stream, (uint4 *)to, chunks);
}
