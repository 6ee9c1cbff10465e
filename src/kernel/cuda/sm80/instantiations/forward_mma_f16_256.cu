/* Forward, f16, rows of up to 256 elements. */
#include "kernel/cuda/sm80/forward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_mma_shape<__half, 256, 48, 8, 1, 1, half_products<__half>, true, 256, 2>;

const gpu_forward_variant gpu_forward_mma_f16_256 = forward_mma_variant<shape>();
