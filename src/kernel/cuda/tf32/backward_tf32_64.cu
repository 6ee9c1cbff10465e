/* Backward, f32 as tf32, rows of up to 64 elements. */
#include "kernel/cuda/tf32/backward_tf32.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_tf32_shape<64, 64, 64, 2, 2, 2, 2>;

const gpu_backward_variant gpu_backward_tf32_64 = {shape::ROWS, shape::KEYS, backward_tf32_allow<shape>,
                                                   backward_tf32_launch<shape>};
