/* Bytes of device memory, moved and zeroed by kernels that leave most of the GPU to others. */
#ifndef RA_DEVICE_CUDA_BYTES_H
#define RA_DEVICE_CUDA_BYTES_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Within the memory of the device that the stream belongs to. */
cudaError_t gpu_bytes_copy(void *to, const void *from, size_t bytes, cudaStream_t stream);
cudaError_t gpu_bytes_zero(void *to, size_t bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
