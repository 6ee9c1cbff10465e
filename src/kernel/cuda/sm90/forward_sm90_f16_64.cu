/* Forward on Hopper, f16, rows of up to 64 elements. */
#include "kernel/cuda/sm90/forward_tma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_tma_shape<__half, 64, 128, 3, 4, true>;
using rows_copied = forward_wgmma_shape<__half, 64, 128, 2, 4, true>;

const gpu_forward_variant gpu_forward_sm90_f16_64 = {shape::ROWS,
                                                     forward_tma_allow<shape, shape, copied_for_wgmma<rows_copied>>,
                                                     forward_tma_launch<shape, shape, copied_for_wgmma<rows_copied>>,
                                                     forward_tma_list_maps<shape, shape>, rows_copied::ROWS};
