/* Backward, f16, rows of up to 64 elements. */
#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_mma_shape<__half, 64, 128, 128, 4, 4, 4, 2>;
using small_shape = backward_mma_shape<__half, 64, 64, 128, 2, 4, 2, 2>; /* for 99 KB */

static const gpu_backward_variant small = backward_mma_variant<small_shape>();

const gpu_backward_variant gpu_backward_mma_f16_64 = backward_mma_variant<shape>(&small);
