/* A launch that begins while the kernel before it on the stream ends: CTAs start as soon as those of that kernel have
 * left, not when all that it wrote is in memory, and wait there (CUDA's programmatic dependent launch, from compute
 * capability 9.0 on). A launch for another device is an ordinary one. */
#ifndef RA_KERNEL_CUDA_DEPENDENT_LAUNCH_CUH
#define RA_KERNEL_CUDA_DEPENDENT_LAUNCH_CUH

#include <cuda_runtime.h>

/* Before a thread reads or writes what a kernel before it on the stream may have to do with: until all of them are over
 * and what they wrote is seen. */
__device__ __forceinline__ void wait_for_launches_before(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

/* The blocks of the launch behind this one may be started where there is a place for them. */
__device__ __forceinline__ void let_next_launch_start(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

/* Drivers before 12.3 do not capture such launches in graphs. Asked for once, as this is on the run path. */
static inline bool captures_dependent_launches(void) {
    static const bool captures = [] {
        int version = 0;
        return cudaDriverGetVersion(&version) == cudaSuccess && version >= 12030;
    }();
    return captures;
}

/* The kernel calls wait_for_launches_before() in every thread that does anything. */
template <class... PARAMETERS>
static inline void launch_dependent(void (*kernel)(PARAMETERS...), unsigned ctas, unsigned threads, size_t smem_bytes,
                                    cudaStream_t stream, const PARAMETERS &...arguments) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = smem_bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = captures_dependent_launches() ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, arguments...);
}

#endif
