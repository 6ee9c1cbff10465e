/* Backward, f32, rows of up to 64 elements. */
#include "kernel/cuda/fma/backward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_fma_shape<float, 64, 64, 64, 8, 128>;

const gpu_backward_variant gpu_backward_fma_f32_64 = backward_fma_variant<shape>();
