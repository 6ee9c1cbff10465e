/* Forward on Hopper, bf16, rows of up to 64 elements. */
#include "kernel/cuda/sm90/forward_wgmma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_wgmma_shape<__nv_bfloat16, 64, 128, 2, 4, true>;

const gpu_forward_variant gpu_forward_sm90_bf16_64 = {shape::ROWS, forward_wgmma_allow<shape>,
                                                      forward_wgmma_launch<shape>};
