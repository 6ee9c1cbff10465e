/* Forward, f64, rows of up to 256 elements. */
#include "kernel/cuda/fma/forward_fma.cuh"
#include "kernel/cuda/variants.cuh"

using shape = forward_fma_shape<double, 256, 32, 16, 256, 16, 256>;

const gpu_forward_variant gpu_forward_fma_f64_256 = forward_fma_variant<shape>();
