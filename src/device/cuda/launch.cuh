/* Launches of short kernels that run beside the products of other streams. */
#ifndef RA_DEVICE_CUDA_LAUNCH_CUH
#define RA_DEVICE_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* Asked for once, as this is on the run path: the GPUs that have kernels have the same priorities. */
static inline int highest_priority(void) {
    static const int highest = [] {
        int least = 0, greatest = 0;
        cudaDeviceGetStreamPriorityRange(&least, &greatest);
        return greatest;
    }();
    return highest;
}

/* kernel<<<blocks, threads>>>(args...) on the stream, before blocks of other streams that wait for a place: it is
 * short, and what waits for it is long. Without that it would come when a product has no more blocks to start, in a few
 * places, and the next product would leave the others empty meanwhile. */
template <class... PARAMETERS, class... ARGUMENTS>
static cudaError_t launch_urgent(void (*kernel)(PARAMETERS...), unsigned blocks, unsigned threads, void *stream,
                                 ARGUMENTS... arguments) {
    cudaLaunchAttribute urgent = {};
    urgent.id = cudaLaunchAttributePriority;
    urgent.val.priority = highest_priority();
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = (cudaStream_t)stream;
    config.attrs = &urgent;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, (PARAMETERS)arguments...);
}

/* For what other ranks' products on the same GPU run beside. A product needs all of a multiprocessor, so the smallest
 * block keeps it away. A few of the largest blocks, on as many multiprocessors, have loads enough under way to keep
 * memory busy, and leave the others alone. */
enum { BESIDE_THREADS = 1024 };

static inline unsigned multiprocessors(void) {
    static const unsigned count = [] {
        int device = 0, found = 0;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device);
        return (unsigned)(found > 0 ? found : 1);
    }();
    return count;
}

/* The kernel in blocks of BESIDE_THREADS, with at most as many warps, and blocks, as are given. */
template <class... PARAMETERS, class... ARGUMENTS>
static cudaError_t launch_blocks(void (*kernel)(PARAMETERS...), int64_t warps, unsigned most, void *stream,
                                 ARGUMENTS... arguments) {
    int64_t blocks = (warps + BESIDE_THREADS / 32 - 1) / (BESIDE_THREADS / 32);
    return launch_urgent(kernel, blocks < most ? (unsigned)blocks : most, BESIDE_THREADS, stream, arguments...);
}

template <class... PARAMETERS, class... ARGUMENTS>
static cudaError_t launch_beside(void (*kernel)(PARAMETERS...), int64_t warps, void *stream, ARGUMENTS... arguments) {
    unsigned third = multiprocessors() / 3;
    return launch_blocks(kernel, warps, third ? third : 1, stream, arguments...);
}

/* For what a rank does when it has nothing left to multiply. */
template <class... PARAMETERS, class... ARGUMENTS>
static cudaError_t launch_last(void (*kernel)(PARAMETERS...), int64_t warps, void *stream, ARGUMENTS... arguments) {
    return launch_blocks(kernel, warps, multiprocessors(), stream, arguments...);
}

#endif
