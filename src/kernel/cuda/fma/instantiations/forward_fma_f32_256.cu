/* Forward, f32, rows of up to 256 elements. */
#include "kernel/cuda/fma/forward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_fma_shape<float, 256, 64, 64, 128, 16, 256>;
using small_shape = forward_fma_shape<float, 256, 32, 64, 64, 16, 256>; /* for 99 KB */

static const gpu_forward_variant small = forward_fma_variant<small_shape>();

const gpu_forward_variant gpu_forward_fma_f32_256 = forward_fma_variant<shape>(&small);
