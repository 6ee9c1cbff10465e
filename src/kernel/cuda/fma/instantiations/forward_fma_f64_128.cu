/* Forward, f64, rows of up to 128 elements. */
#include "kernel/cuda/fma/forward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_fma_shape<double, 128, 64, 32, 128, 16, 256>;
using small_shape = forward_fma_shape<double, 128, 32, 32, 64, 16, 256>; /* for 99 KB */

static const gpu_forward_variant small = forward_fma_variant<small_shape>();

const gpu_forward_variant gpu_forward_fma_f64_128 = forward_fma_variant<shape>(&small);
