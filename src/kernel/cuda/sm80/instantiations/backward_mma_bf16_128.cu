/* Backward, bf16, rows of up to 128 elements. */
#include "kernel/cuda/sm80/backward_half.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_half_shape<__nv_bfloat16, 128, 128, 64, 32, 1, 8, 2>;
using narrow_shape = backward_half_shape<__nv_bfloat16, 96, 128, 64, 32, 1, 8, 4, true>;

const gpu_backward_variant gpu_backward_mma_bf16_128 = backward_half_variant<shape, narrow_shape>();
