/* Forward, f32 as tf32, rows of up to 64 elements. */
#include "kernel/cuda/tf32/forward_tf32.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_tf32_shape<64, 64, 4, 2, 2>;

const gpu_forward_variant gpu_forward_tf32_64 = {shape::ROWS, forward_tf32_allow<shape>, forward_tf32_launch<shape>};
