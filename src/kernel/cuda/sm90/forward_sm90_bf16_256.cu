/* Forward on Hopper, bf16, rows of up to 256 elements. */
#include "kernel/cuda/sm90/forward_tma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_tma_shape<__nv_bfloat16, 256, 80, 2, 2, true>;
using copied = copied_for_mma<&gpu_forward_bf16_256>;

const gpu_forward_variant gpu_forward_sm90_bf16_256 = {shape::ROWS, forward_tma_allow<shape, shape, copied>,
                                                       forward_tma_launch<shape, shape, copied>,
                                                       forward_tma_list_maps<shape, shape>};
