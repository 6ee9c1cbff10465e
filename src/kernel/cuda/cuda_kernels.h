/* The kernels for device memory. Every entry of their tables takes device addresses, launches on context->stream and
 * returns at once; nothing on the run path allocates, uploads or waits, so a run can be captured in a graph. */
#ifndef RA_KERNEL_CUDA_KERNELS_H
#define RA_KERNEL_CUDA_KERNELS_H

#include "kernel/cuda/kernel_table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels compiled in, best last. NULL past the end. */
const ra_kernel *ra_cuda_kernel_at(int index);

#ifdef __cplusplus
}
#endif

#endif
