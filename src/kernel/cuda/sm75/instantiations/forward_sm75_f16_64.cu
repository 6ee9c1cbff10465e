/* Forward, compute capability 7.5, f16, rows of up to 64 elements. */
#include "kernel/cuda/sm80/forward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_mma_shape<__half, 64, 64, 4, 2, 1>;

const gpu_forward_variant gpu_forward_sm75_f16_64 = forward_mma_variant<shape>();
