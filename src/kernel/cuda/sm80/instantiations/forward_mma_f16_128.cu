/* Forward, f16, rows of up to 128 elements. */
#include "kernel/cuda/sm80/forward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_mma_shape<__half, 128, 64, 4, 2, 2>;
using narrow_shape = forward_mma_shape<__half, 96, 80, 4, 2, 2, half_products<__half>, false, 128>;

const gpu_forward_variant gpu_forward_mma_f16_128 = forward_mma_variant<shape, narrow_shape>();
