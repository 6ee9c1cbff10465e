/* Backward, bf16, rows of up to 64 elements. */
#include "kernel/cuda/sm80/backward_half.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_half_shape<__nv_bfloat16, 64, 64, 64, 16, 2, 8, 4>; /* 256 keys */

const gpu_backward_variant gpu_backward_mma_bf16_64 = backward_half_variant<shape>();
