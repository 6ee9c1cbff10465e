/* Backward, compute capability 7.5, f16, rows of up to 128 elements. */
#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_mma_shape<__half, 128, 32, 64, 2, 2, 2, 1>;

const gpu_backward_variant gpu_backward_sm75_f16_128 = backward_mma_variant<shape>();
