/* Backward on Hopper, bf16, rows of up to 256 elements. */
#include "kernel/cuda/sm90/backward_wide.cuh"
#include "kernel/cuda/variants.cuh"

using calls = backward_wide_calls<__nv_bfloat16, gpu_backward_mma_bf16_256_square>;

const gpu_backward_variant gpu_backward_wgmma_bf16_256 = calls::variant();
