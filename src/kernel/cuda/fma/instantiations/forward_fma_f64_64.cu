/* Forward, f64, rows of up to 64 elements. */
#include "kernel/cuda/fma/forward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_fma_shape<double, 64, 64, 32, 64, 16, 256>;

const gpu_forward_variant gpu_forward_fma_f64_64 = forward_fma_variant<shape>();
