/* Backward, f64, rows of up to 64 elements. */
#include "kernel/cuda/fma/backward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = backward_fma_shape<double, 64, 32, 32, 16, 256>;

const gpu_backward_variant gpu_backward_fma_f64_64 = backward_fma_variant<shape>();
