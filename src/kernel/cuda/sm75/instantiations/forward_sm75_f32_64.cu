/* Forward, compute capability 7.5, f32, rows of up to 64 elements. */
#include "kernel/cuda/fma/forward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_fma_shape<float, 64, 64, 32, 64, 8, 128>;

const gpu_forward_variant gpu_forward_sm75_f32_64 = forward_fma_variant<shape>();
