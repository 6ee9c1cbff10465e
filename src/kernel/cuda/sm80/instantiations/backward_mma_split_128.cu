/* Backward, f32 split into two numbers of tf32, rows of up to 128 elements. */
#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/sm80/tf32_products.cuh"
#include "kernel/cuda/variants.cuh"

using two_stages = backward_mma_shape<float, 128, 64, 64, 2, 2, 2, 2, tf32_products<2>>;
using one_stage =
    backward_mma_shape<float, 128, 64, 64, 2, 2, 2, 1, tf32_products<2>>; /* the same blocks, and so the same bits */

static const gpu_backward_variant smaller = backward_mma_variant<one_stage>();

const gpu_backward_variant gpu_backward_mma_split_128 = backward_mma_variant<two_stages>(&smaller);
