/* Backward, f32 in two parts of tf32, rows of up to 128 elements. */
#include "kernel/cuda/tf32/backward_stages.cuh"
#include "kernel/cuda/variants.cuh"

using stages = backward_stages<tf32_products<2>>;

const gpu_backward_variant gpu_backward_parts_128 = {stages::one::ROWS, stages::one::KEYS, stages::allow,
                                                     stages::launch};
