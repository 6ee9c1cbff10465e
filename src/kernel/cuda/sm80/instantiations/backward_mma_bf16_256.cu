/* Backward, bf16, rows of up to 256 elements. */
#include "kernel/cuda/sm80/backward_half.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_half_shape<__nv_bfloat16, 256, 256, 32, 32, 1, 4, 1>;

const gpu_backward_variant gpu_backward_mma_bf16_256 = backward_half_variant<shape>();
