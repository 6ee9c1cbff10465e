/* Backward, f16, rows of up to 256 elements, in the blocks of Hopper's kernel: for views that have no tensor maps. */
#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_mma_shape<__half, 256, 64, 64, 2, 2, 2, 1>;

const gpu_backward_variant gpu_backward_mma_f16_256_square = backward_mma_variant<shape>();
