/* Backward, f32 as tf32, rows of up to 128 elements: in two stages where the GPU has the shared memory for them, as
 * Hopper has; in one where not. The blocks are the same, and so are the bits. */
#include "kernel/cuda/tf32/backward_tf32.cuh"
#include "kernel/cuda/variants.cuh"

#include <cuda_runtime.h>

using one_stage = backward_tf32_shape<128, 64, 64, 2, 2, 2, 1>;
using two_stages = backward_tf32_shape<128, 64, 64, 2, 2, 2, 2>;

static bool has_two_stages(void) {
    int device, bytes = 0;
    if (cudaGetDevice(&device) == cudaSuccess)
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return bytes >= two_stages::BYTES;
}

static cudaError_t allow(void) {
    return has_two_stages() ? backward_tf32_allow<two_stages>() : backward_tf32_allow<one_stage>();
}

static void launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
    if (has_two_stages())
        backward_tf32_launch<two_stages>(args, count, stream);
    else
        backward_tf32_launch<one_stage>(args, count, stream);
}

const gpu_backward_variant gpu_backward_tf32_128 = {one_stage::ROWS, one_stage::KEYS, allow, launch};
