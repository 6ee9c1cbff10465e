/* A launch that begins while the kernel before it on the stream ends: its CTAs start as soon as those of that kernel
 * have left, not when all that it wrote is in memory, and wait there (CUDA's programmatic dependent launch, from
 * compute capability 9.0 on). The kernel before it must be one of this library's, and an ordinary launch: a wait is for
 * the kernel before alone, and that one has waited for all others. */
#ifndef RA_KERNEL_CUDA_DEPENDENT_LAUNCH_CUH
#define RA_KERNEL_CUDA_DEPENDENT_LAUNCH_CUH

#include <cuda_runtime.h>

/* Before a thread reads or writes what the kernel before may have to do with: until that is over and what it wrote is
 * seen. */
__device__ __forceinline__ void wait_for_launch_before(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

/* By a CTA that depends on none that has not begun: when all CTAs of the kernel have come here, or are over, those of
 * the next one may begin, if it is launched to do so. What they use of this one they wait for, each by itself. */
__device__ __forceinline__ void let_next_launch_begin(void) {
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

/* Whether the kernel waits inside: not where the driver has compiled it from PTX for an older GPU. */
template <auto KERNEL> static inline bool waits_inside(void) {
    static const bool waits = [] {
        cudaFuncAttributes found = {};
        return cudaFuncGetAttributes(&found, KERNEL) == cudaSuccess && found.ptxVersion >= 90;
    }();
    return waits;
}

/* The kernel calls wait_for_launch_before() in every thread that does anything with what it does not wait for
 * otherwise, and in its last CTA in any case: what is launched behind it waits for it alone. Where it cannot wait
 * there, this is an ordinary launch. */
template <auto KERNEL, class... ARGUMENTS>
static inline void launch_dependent(unsigned ctas, unsigned threads, size_t smem_bytes, cudaStream_t stream,
                                    const ARGUMENTS &...arguments) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = smem_bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = captures_dependent_launches() && waits_inside<KERNEL>() ? 1 : 0;
    cudaLaunchKernelEx(&config, KERNEL, arguments...);
}

#endif
