/* Backward, f32, rows of up to 256 elements. */
#include "kernel/cuda/fma/backward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_fma_shape<float, 256, 32, 32, 16, 256>;

const gpu_backward_variant gpu_backward_f32_256 = {shape::ROWS, shape::KEYS, backward_fma_allow<shape>,
                                                   backward_fma_launch<shape>};
