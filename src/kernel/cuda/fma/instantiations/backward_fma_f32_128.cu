/* Backward, f32, rows of up to 128 elements. */
#include "kernel/cuda/fma/backward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_fma_shape<float, 128, 64, 64, 16, 256>;
using small_shape = backward_fma_shape<float, 128, 32, 32, 16, 256>; /* for 99 KB */

static const gpu_backward_variant small = backward_fma_variant<small_shape>();

const gpu_backward_variant gpu_backward_fma_f32_128 = backward_fma_variant<shape>(&small);
