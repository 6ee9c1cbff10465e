/* Forward, compute capability 7.5, f32, rows of up to 128 elements. */
#include "kernel/cuda/fma/forward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_fma_shape<float, 128, 64, 32, 64, 16, 256>;

const gpu_forward_variant gpu_forward_sm75_f32_128 = forward_fma_variant<shape>();
