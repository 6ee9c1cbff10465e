/* Backward, f64, rows of up to 128 elements. */
#include "kernel/cuda/fma/backward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_fma_shape<double, 128, 32, 32, 16, 256>;
using small_shape = backward_fma_shape<double, 128, 16, 16, 16, 256>; /* for 99 KB */

static const gpu_backward_variant small = backward_fma_variant<small_shape>();

const gpu_backward_variant gpu_backward_fma_f64_128 = backward_fma_variant<shape>(&small);
