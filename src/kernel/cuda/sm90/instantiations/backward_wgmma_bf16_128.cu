/* Backward on Hopper, bf16, rows of up to 128 elements. */
#include "kernel/cuda/sm90/backward_wgmma.cuh"
#include "kernel/cuda/variants.cuh"

const gpu_backward_variant gpu_backward_wgmma_bf16_128 = backward_wgmma<__nv_bfloat16, 128, 96>::variant();
