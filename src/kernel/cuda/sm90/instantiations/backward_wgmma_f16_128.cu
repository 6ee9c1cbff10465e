/* Backward on Hopper, f16, rows of up to 128 elements. */
#include "kernel/cuda/sm90/backward_wgmma.cuh"
#include "kernel/cuda/variants.cuh"

const gpu_backward_variant gpu_backward_wgmma_f16_128 = backward_wgmma<__half, 128, 96>::variant();
