/* Backward on Hopper, bf16, rows of up to 128 elements. */
#include "kernel/cuda/sm90/backward_wgmma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_wgmma_shape<__nv_bfloat16, 128>;

const gpu_backward_variant gpu_backward_sm90_bf16_128 = {shape::ROWS, shape::KEYS, backward_wgmma_allow<shape>,
                                                         backward_wgmma_launch<shape>};
