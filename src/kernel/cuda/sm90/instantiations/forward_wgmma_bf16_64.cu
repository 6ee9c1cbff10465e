/* Forward on Hopper, bf16, rows of up to 64 elements. */
#include "kernel/cuda/sm90/forward_wgmma.cuh"
#include "kernel/cuda/variants.cuh"

using kernels = forward_wgmma<__nv_bfloat16, 64, 128, 3, 4, true, gpu_forward_mma_bf16_64, 128>;

const gpu_forward_variant gpu_forward_wgmma_bf16_64 = kernels::variant();
