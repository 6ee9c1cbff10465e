/* Backward, compute capability 7.5, f32, rows of up to 128 elements. */
#include "kernel/cuda/fma/backward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_fma_shape<float, 128, 16, 32, 16, 256>;

const gpu_backward_variant gpu_backward_sm75_f32_128 = backward_fma_variant<shape>();
