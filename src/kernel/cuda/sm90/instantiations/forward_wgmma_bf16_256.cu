/* Forward on Hopper, bf16, rows of up to 256 elements. */
#include "kernel/cuda/sm90/forward_wgmma.cuh"
#include "kernel/cuda/variants.cuh"

using kernels = forward_wgmma<__nv_bfloat16, 256, 80, 2, 2, true, gpu_forward_mma_bf16_256, 128>;

const gpu_forward_variant gpu_forward_wgmma_bf16_256 = kernels::variant();
