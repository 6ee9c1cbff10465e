/* Forward on Hopper, f16, rows of up to 128 elements. */
#include "kernel/cuda/sm90/forward_wgmma.cuh"
#include "kernel/cuda/variants.cuh"

using kernels = forward_wgmma<__half, 128, 128, 2, 3, true, gpu_forward_mma_f16_128, 128>;

const gpu_forward_variant gpu_forward_wgmma_f16_128 = kernels::variant({1, 180, 1}, &gpu_forward_wgmma_f16_128_tall);
