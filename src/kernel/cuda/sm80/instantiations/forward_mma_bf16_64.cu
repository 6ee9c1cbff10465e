/* Forward, bf16, rows of up to 64 elements. */
#include "kernel/cuda/sm80/forward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_mma_shape<__nv_bfloat16, 64, 128, 4, 2, 2>;

const gpu_forward_variant gpu_forward_mma_bf16_64 = forward_mma_variant<shape>();
