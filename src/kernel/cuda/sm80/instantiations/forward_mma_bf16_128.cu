/* Forward, bf16, rows of up to 128 elements. */
#include "kernel/cuda/sm80/forward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_mma_shape<__nv_bfloat16, 128, 64, 4, 2, 2>;
using narrow_shape = forward_mma_shape<__nv_bfloat16, 96, 80, 4, 2, 2, half_products<__nv_bfloat16>, false, 128>;

const gpu_forward_variant gpu_forward_mma_bf16_128 = forward_mma_variant<shape, narrow_shape>();
