/* Backward, f32, rows of up to 128 elements. */
#include "kernel/cuda/fma/backward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_fma_shape<float, 128, 64, 64, 16, 256>;

const gpu_backward_variant gpu_backward_f32_128 = {shape::ROWS, shape::KEYS, backward_fma_allow<shape>,
                                                   backward_fma_launch<shape>};
