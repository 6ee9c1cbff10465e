/* Forward on Hopper, bf16, rows of up to 128 elements. */
#include "kernel/cuda/sm90/forward_wgmma.cuh"
#include "kernel/cuda/variants.cuh"

using kernels = forward_wgmma<__nv_bfloat16, 128, 128, 2, 3, true, gpu_forward_mma_bf16_128, 128>;

const gpu_forward_variant gpu_forward_wgmma_bf16_128 = kernels::variant({1, 180, 1}, &gpu_forward_wgmma_bf16_128_tall);
