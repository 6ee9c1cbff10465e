/* GPUs as devices: memory, streams and events of the CUDA runtime. */
#ifndef RA_DEVICE_CUDA_DEVICE_CUDA_H
#define RA_DEVICE_CUDA_DEVICE_CUDA_H

#include "device/device.h"

#include <cuda_runtime_api.h>

enum { RA_CUDA_MOST_DEVICES = 64 };

typedef struct ra_cuda_device {
    ra_device table; /* first: the table is the object */
    int ordinal;
} ra_cuda_device;

/* The table for a device; filled in once, valid for ever. ordinal is at most RA_CUDA_MOST_DEVICES - 1. */
const ra_device *ra_device_cuda(int ordinal);

/* The ordinal of one of the above. */
int ra_device_cuda_ordinal(const ra_device *device);

/* A CUDA error as a status, with a sentence that names the call. */
ra_status ra_cuda_status(cudaError_t error, const char *call);

#define RA_CUDA_TRY(call) RA_TRY(ra_cuda_status(call, #call))

#endif
