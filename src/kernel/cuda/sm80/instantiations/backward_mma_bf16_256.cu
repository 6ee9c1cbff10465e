/* Backward, bf16, rows of up to 256 elements. */
#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_mma_shape<__nv_bfloat16, 256, 64, 64, 2, 2, 2, 1>;
using small_shape =
    backward_mma_shape<__nv_bfloat16, 256, 32, 32, 2, 2, 2, 1, half_products<__nv_bfloat16>, 4>; /* for 99 KB */

static const gpu_backward_variant small = backward_mma_variant<small_shape>();

const gpu_backward_variant gpu_backward_mma_bf16_256 = backward_mma_variant<shape>(&small);
