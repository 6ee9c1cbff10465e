/* Backward on Hopper, f16, rows of up to 64 elements. */
#include "kernel/cuda/sm90/backward_tma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_tma_shape<__half, 64>;
using rows_copied = backward_wgmma_shape<__half, 64>;

const gpu_backward_variant gpu_backward_sm90_f16_64 = {shape::ROWS, shape::KEYS, backward_tma_allow<shape, rows_copied>,
                                                       backward_tma_launch<shape, rows_copied>,
                                                       backward_tma_list_maps<shape>};
