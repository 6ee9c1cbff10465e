/* Forward, f64, rows of up to 256 elements. */
#include "kernel/cuda/fma/forward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_fma_shape<double, 256, 32, 16, 256, 16, 256>;
using small_shape = forward_fma_shape<double, 256, 16, 32, 128, 16, 256>; /* for 99 KB */

static const gpu_forward_variant small = forward_fma_variant<small_shape>();

const gpu_forward_variant gpu_forward_fma_f64_256 = forward_fma_variant<shape>(&small);
