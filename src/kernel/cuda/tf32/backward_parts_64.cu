/* Backward, f32 in two parts of tf32, rows of up to 64 elements. */
#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/tf32/tf32_products.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_mma_shape<float, 64, 64, 64, 2, 2, 2, 2, tf32_products<2>>;

const gpu_backward_variant gpu_backward_parts_64 = {shape::ROWS, shape::KEYS, backward_mma_allow<shape>,
                                                    backward_mma_launch<shape>};
