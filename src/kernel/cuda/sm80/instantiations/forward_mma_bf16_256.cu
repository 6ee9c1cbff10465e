/* Forward, bf16, rows of up to 256 elements. */
#include "kernel/cuda/sm80/forward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_mma_shape<__nv_bfloat16, 256, 48, 8, 1, 1, half_products<__nv_bfloat16>, true, 256, 2>;

const gpu_forward_variant gpu_forward_mma_bf16_256 = forward_mma_variant<shape>();
