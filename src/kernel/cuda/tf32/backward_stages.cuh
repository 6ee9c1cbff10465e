/* Backward for f32, rows of up to 128 elements: in two stages where the GPU has the shared memory for them, as Hopper
 * has; in one where not. The blocks are the same, and so are the bits. */
#ifndef RA_KERNEL_CUDA_TF32_BACKWARD_STAGES_CUH
#define RA_KERNEL_CUDA_TF32_BACKWARD_STAGES_CUH

#include "kernel/cuda/sm80/backward_mma.cuh"
#include "kernel/cuda/tf32/tf32_products.cuh"

#include <cuda_runtime.h>

template <class PRODUCTS> struct backward_stages {
    using one = backward_mma_shape<float, 128, 64, 64, 2, 2, 2, 1, PRODUCTS>;
    using two = backward_mma_shape<float, 128, 64, 64, 2, 2, 2, 2, PRODUCTS>;

    static bool has_two(void) {
        int device, bytes = 0;
        if (cudaGetDevice(&device) == cudaSuccess)
            cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        return bytes >= two::BYTES;
    }
    static cudaError_t allow(void) {
        return has_two() ? backward_mma_allow<two>() : backward_mma_allow<one>();
    }
    static void launch(const gpu_backward *args, unsigned count, cudaStream_t stream) {
        if (has_two())
            backward_mma_launch<two>(args, count, stream);
        else
            backward_mma_launch<one>(args, count, stream);
    }
};

#endif
