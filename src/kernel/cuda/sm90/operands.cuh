/* Operands of products as descriptors whose lower word alone is computed. */
#ifndef RA_KERNEL_CUDA_SM90_OPERANDS_CUH
#define RA_KERNEL_CUDA_SM90_OPERANDS_CUH

#include "kernel/cuda/sm90/wgmma.cuh"

/* A descriptor's two words. The upper one is the same for all operands; the lower ones of a product go on from the
 * first by constants. From one lane: descriptors are in uniform registers, and the compiler must know that they can be.
 * Anew for each product: all of a loop's would take more registers than there are. */
__device__ __forceinline__ uint32_t operand_at(uint32_t tile, uint32_t panel_bytes) {
    asm volatile("" : "+r"(tile));
    return __shfl_sync(~0u, (uint32_t)tile_descriptor(tile, panel_bytes), 0);
}

__device__ __forceinline__ uint64_t operand(uint32_t first, int bytes) {
    return (uint64_t)(SWIZZLE_ROWS_BYTES >> 4 | 1u << 30) << 32 | (first + (bytes >> 4));
}

#endif
