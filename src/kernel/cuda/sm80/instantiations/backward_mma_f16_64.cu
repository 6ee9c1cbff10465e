/* Backward, f16, rows of up to 64 elements. */
#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_mma_shape<__half, 64, 128, 128, 4, 4, 4, 2>;

const gpu_backward_variant gpu_backward_mma_f16_64 = backward_mma_variant<shape>();
