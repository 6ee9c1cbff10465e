/* Backward, f32, rows of up to 256 elements. */
#include "kernel/cuda/fma/backward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_fma_shape<float, 256, 32, 32, 16, 256>;
using small_shape = backward_fma_shape<float, 256, 16, 32, 16, 256>; /* for 99 KB */

static const gpu_backward_variant small = backward_fma_variant<small_shape>();

const gpu_backward_variant gpu_backward_fma_f32_256 = backward_fma_variant<shape>(&small);
