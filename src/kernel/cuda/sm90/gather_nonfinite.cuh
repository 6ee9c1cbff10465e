/* Whether some of many numbers of 16 bits are infinities or NaNs, at one instruction for two of them. */
#ifndef RA_KERNEL_CUDA_SM90_GATHER_NONFINITE_CUH
#define RA_KERNEL_CUDA_SM90_GATHER_NONFINITE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* seen, two elements that are packed, += 0 x: zeros as long as all x were finite; NaN for good where one was not. */
template <class T> __device__ __forceinline__ void gather_nonfinite(uint32_t &seen, uint32_t x);
template <> __device__ __forceinline__ void gather_nonfinite<__nv_bfloat16>(uint32_t &seen, uint32_t x) {
    asm("fma.rn.bf16x2 %0, %1, %2, %0;\n" : "+r"(seen) : "r"(x), "r"(0));
}
template <> __device__ __forceinline__ void gather_nonfinite<__half>(uint32_t &seen, uint32_t x) {
    asm("fma.rn.f16x2 %0, %1, %2, %0;\n" : "+r"(seen) : "r"(x), "r"(0));
}

/* Whether it has. */
__device__ __forceinline__ bool some_were_nonfinite(uint32_t seen) {
    return (seen & 0x7fff7fff) != 0;
}

#endif
