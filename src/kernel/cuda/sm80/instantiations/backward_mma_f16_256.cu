/* Backward, f16, rows of up to 256 elements. */
#include "kernel/cuda/sm80/backward_half.cuh"
#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_mma_shape<__half, 256, 64, 64, 2, 2, 2, 1>;
using small_shape = backward_half_shape<__half, 256, 256, 16, 16, 1, 4, 1>; /* for 99 KB */

static const gpu_backward_variant small = backward_half_variant<small_shape>();

const gpu_backward_variant gpu_backward_mma_f16_256 = backward_mma_variant<shape>(&small);
