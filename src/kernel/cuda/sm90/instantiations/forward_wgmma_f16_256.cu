/* Forward on Hopper, f16, rows of up to 256 elements. */
#include "kernel/cuda/sm90/forward_wgmma.cuh"
#include "kernel/cuda/variants.cuh"

using kernels = forward_wgmma<__half, 256, 80, 2, 2, true, gpu_forward_mma_f16_256, 128>;

const gpu_forward_variant gpu_forward_wgmma_f16_256 = kernels::variant();
