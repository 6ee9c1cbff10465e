/* Forward, bf16, rows of up to 256 elements. */
#include "kernel/cuda/sm80/forward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_mma_shape<__nv_bfloat16, 256, 64, 8, 1, 1>;
using small_shape = forward_mma_shape<__nv_bfloat16, 256, 32, 8, 1, 1>; /* for 99 KB */

static const gpu_forward_variant small = forward_mma_variant<small_shape>();

const gpu_forward_variant gpu_forward_mma_bf16_256 = forward_mma_variant<shape>(&small);
