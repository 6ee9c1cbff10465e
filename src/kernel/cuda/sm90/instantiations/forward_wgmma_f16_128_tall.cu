/* Forward on Hopper, f16, rows of up to 128 elements, in units of 192 rows. */
#include "kernel/cuda/sm90/forward_wgmma.cuh"
#include "kernel/cuda/variants.cuh"

using kernels = forward_wgmma<__half, 128, 80, 3, 3, false, gpu_forward_mma_f16_128, 128>;

/* Its cost is fitted to what both took (docs/tried/forward-hopper.md). */
const gpu_forward_variant gpu_forward_wgmma_f16_128_tall = kernels::variant({0.96, 180, 0.25});
