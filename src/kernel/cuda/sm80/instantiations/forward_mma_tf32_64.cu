/* Forward, f32 as tf32, rows of up to 64 elements. */
#include "kernel/cuda/sm80/forward_mma.cuh"
#include "kernel/cuda/sm80/tf32_products.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_mma_shape<float, 64, 64, 4, 2, 2, tf32_products<1>>;

const gpu_forward_variant gpu_forward_mma_tf32_64 = forward_mma_variant<shape>();
