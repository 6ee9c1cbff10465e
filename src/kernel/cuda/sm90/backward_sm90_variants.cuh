/* The Hopper backward instantiations that there are: one object file each. */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_SM90_VARIANTS_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_SM90_VARIANTS_CUH

#include "kernel/cuda/work.cuh"

extern const gpu_backward_variant gpu_backward_sm90_bf16_64, gpu_backward_sm90_bf16_128;
extern const gpu_backward_variant gpu_backward_sm90_f16_64, gpu_backward_sm90_f16_128;

#endif
