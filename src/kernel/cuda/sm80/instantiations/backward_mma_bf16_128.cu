/* Backward, bf16, rows of up to 128 elements. */
#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_mma_shape<__nv_bfloat16, 128, 64, 128, 2, 4, 2, 2>;
using small_shape = backward_mma_shape<__nv_bfloat16, 128, 32, 128, 2, 4, 2, 1>; /* for 99 KB */

static const gpu_backward_variant small = backward_mma_variant<small_shape>();

const gpu_backward_variant gpu_backward_mma_bf16_128 = backward_mma_variant<shape>(&small);
