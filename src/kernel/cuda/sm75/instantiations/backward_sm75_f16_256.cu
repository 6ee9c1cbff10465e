/* Backward, compute capability 7.5, f16, rows of up to 256 elements. */
#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_mma_shape<__half, 256, 32, 16, 2, 1, 2, 1, half_products<__half>, 2>;

const gpu_backward_variant gpu_backward_sm75_f16_256 = backward_mma_variant<shape>();
