/* Backward, f32 as tf32, rows of up to 64 elements. */
#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/sm80/tf32_products.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_mma_shape<float, 64, 64, 64, 2, 2, 2, 2, tf32_products<1>>;
using small_shape = backward_mma_shape<float, 64, 64, 64, 2, 2, 2, 1,
                                       tf32_products<1>>; /* for 99 KB; the same blocks, and so the same bits */

static const gpu_backward_variant small = backward_mma_variant<small_shape>();

const gpu_backward_variant gpu_backward_mma_tf32_64 = backward_mma_variant<shape>(&small);
