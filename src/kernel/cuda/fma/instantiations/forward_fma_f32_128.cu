/* Forward, f32, rows of up to 128 elements. */
#include "kernel/cuda/fma/forward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_fma_shape<float, 128, 128, 128, 64, 16, 256>;
using small_shape = forward_fma_shape<float, 128, 64, 64, 64, 16, 256>; /* for 99 KB */

static const gpu_forward_variant small = forward_fma_variant<small_shape>();

const gpu_forward_variant gpu_forward_fma_f32_128 = forward_fma_variant<shape>(&small);
