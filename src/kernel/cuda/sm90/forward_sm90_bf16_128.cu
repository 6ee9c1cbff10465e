/* Forward on Hopper, bf16, rows of up to 128 elements. */
#include "kernel/cuda/sm90/forward_tma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_tma_shape<__nv_bfloat16, 128, 128, 2, 3, true>;
using long_shape = forward_tma_shape<__nv_bfloat16, 128, 176, 2, 2, true>;
using rows_copied = forward_wgmma_shape<__nv_bfloat16, 128, 128, 2, 2, true>;

const gpu_forward_variant gpu_forward_sm90_bf16_128 = {
    shape::ROWS, forward_tma_allow<shape, long_shape, copied_for_wgmma<rows_copied>>,
    forward_tma_launch<shape, long_shape, copied_for_wgmma<rows_copied>>, forward_tma_list_maps<shape, long_shape>};
