/* Forward on Hopper, bf16, rows of up to 128 elements. */
#include "kernel/cuda/sm90/forward_wgmma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_wgmma_shape<__nv_bfloat16, 128, 128, 2, 2, true>;

const gpu_forward_variant gpu_forward_sm90_bf16_128 = {shape::ROWS, forward_wgmma_allow<shape>,
                                                       forward_wgmma_launch<shape>};
