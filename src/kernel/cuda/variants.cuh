/* The instantiations that there are: one object file each, in the folders of that name. */
#ifndef RA_KERNEL_CUDA_VARIANTS_CUH
#define RA_KERNEL_CUDA_VARIANTS_CUH

#include "kernel/cuda/work.cuh"

#define GPU_NARROW_VARIANTS(name)                                                                                      \
    extern const gpu_forward_variant gpu_forward_##name##_64, gpu_forward_##name##_128;                                \
    extern const gpu_backward_variant gpu_backward_##name##_64, gpu_backward_##name##_128;

#define GPU_VARIANTS(name)                                                                                             \
    GPU_NARROW_VARIANTS(name)                                                                                          \
    extern const gpu_forward_variant gpu_forward_##name##_256;                                                         \
    extern const gpu_backward_variant gpu_backward_##name##_256;

/* On the FMA units. */
GPU_VARIANTS(fma_f32)
GPU_VARIANTS(fma_f64)

/* mma.sync. */
GPU_VARIANTS(mma_bf16)
GPU_VARIANTS(mma_f16)
extern const gpu_backward_variant gpu_backward_mma_bf16_256_square, gpu_backward_mma_f16_256_square;

/* mma.sync, f32: as tf32, and split into two numbers of tf32. */
GPU_NARROW_VARIANTS(mma_tf32)
GPU_NARROW_VARIANTS(mma_split)

/* For compute capability 7.5: f16 on mma.sync, f32 on the FMA units. */
GPU_VARIANTS(sm75_f16)
GPU_VARIANTS(sm75_f32)

/* Hopper's wgmma; tall: with units of 192 rows. */
GPU_VARIANTS(wgmma_bf16)
GPU_VARIANTS(wgmma_f16)
extern const gpu_forward_variant gpu_forward_wgmma_bf16_128_tall, gpu_forward_wgmma_f16_128_tall;

#undef GPU_VARIANTS
#undef GPU_NARROW_VARIANTS

#endif
