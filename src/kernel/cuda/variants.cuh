/* The instantiations that there are: one object file each. */
#ifndef RA_KERNEL_CUDA_VARIANTS_CUH
#define RA_KERNEL_CUDA_VARIANTS_CUH

#include "kernel/cuda/work.cuh"

#define GPU_VARIANTS(type)                                                                                             \
    extern const gpu_forward_variant gpu_forward_##type##_64, gpu_forward_##type##_128, gpu_forward_##type##_256;      \
    extern const gpu_backward_variant gpu_backward_##type##_64, gpu_backward_##type##_128, gpu_backward_##type##_256;

GPU_VARIANTS(bf16)
GPU_VARIANTS(f16)
GPU_VARIANTS(f32)
GPU_VARIANTS(f64)

#undef GPU_VARIANTS

/* f32 multiplied as tf32; wider rows have the ones above. */
extern const gpu_forward_variant gpu_forward_tf32_64, gpu_forward_tf32_128;
extern const gpu_backward_variant gpu_backward_tf32_64, gpu_backward_tf32_128;

/* Those for Hopper; other types and widths there have the ones above. */
#define GPU_VARIANTS_SM90(type)                                                                                        \
    extern const gpu_forward_variant gpu_forward_sm90_##type##_64, gpu_forward_sm90_##type##_128;                      \
    extern const gpu_backward_variant gpu_backward_sm90_##type##_64, gpu_backward_sm90_##type##_128;

GPU_VARIANTS_SM90(bf16)
GPU_VARIANTS_SM90(f16)

#undef GPU_VARIANTS_SM90

#endif
