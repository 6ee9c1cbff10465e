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

/* Those that wider rows have not. */
#define GPU_NARROW_VARIANTS(type)                                                                                      \
    extern const gpu_forward_variant gpu_forward_##type##_64, gpu_forward_##type##_128;                                \
    extern const gpu_backward_variant gpu_backward_##type##_64, gpu_backward_##type##_128;

/* f32 on the tensor cores: as tf32, and in two parts of it. */
GPU_NARROW_VARIANTS(tf32)
GPU_NARROW_VARIANTS(parts)

/* For Hopper. */
GPU_NARROW_VARIANTS(sm90_bf16)
GPU_NARROW_VARIANTS(sm90_f16)
extern const gpu_forward_variant gpu_forward_sm90_bf16_256, gpu_forward_sm90_f16_256;

#undef GPU_NARROW_VARIANTS

#endif
