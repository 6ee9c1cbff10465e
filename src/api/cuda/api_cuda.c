/* libringattn_cuda's public entry points: the devices, and a backend for each. */
#include "base/internal.h"
#include "base/sized.h"
#include "base/status.h"
#include "device/cuda/device_cuda.h"
#include "kernel/backend.h"
#include "kernel/cuda/cuda_kernels.h"

#include <pthread.h>
#include <ringattn/cuda.h>
#include <stdio.h>

int ra_cuda_devices(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return count < RA_CUDA_MOST_DEVICES ? count : RA_CUDA_MOST_DEVICES;
}

static ra_status check_device(int device) {
    int count = ra_cuda_devices();
    if (count == 0) return ra_fail(RA_ERR_UNSUPPORTED, "there is no CUDA device, or no driver for it");
    if (device < 0 || device >= count)
        return ra_refuse("there is no CUDA device %d; this machine has 0 to %d", device, count - 1);
    return RA_OK;
}

static ra_status attribute(int device, enum cudaDeviceAttr which, int *value_out) {
    return ra_cuda_status(cudaDeviceGetAttribute(value_out, which, device), "cudaDeviceGetAttribute");
}

void ra_cuda_device_info_init(ra_cuda_device_info *info_out) {
    if (info_out) *info_out = (ra_cuda_device_info)RA_CUDA_DEVICE_INFO_INIT;
}

ra_status ra_cuda_describe(int device, ra_cuda_device_info *info_out) {
    struct cudaDeviceProp properties;
    RA_TRY(ra_internal_check("libringattn_cuda", RA_INTERNAL_VERSION));
    RA_TRY(check_device(device));
    RA_TRY(ra_cuda_status(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
    ra_cuda_device_info info = {.struct_size = sizeof info, .memory_bytes = (int64_t)properties.totalGlobalMem};
    snprintf(info.name, sizeof info.name, "%s", properties.name);
    RA_TRY(attribute(device, cudaDevAttrComputeCapabilityMajor, &info.major));
    RA_TRY(attribute(device, cudaDevAttrComputeCapabilityMinor, &info.minor));
    RA_TRY(attribute(device, cudaDevAttrMultiProcessorCount, &info.multiprocessors));
    return ra_sized_write("info_out", &info, sizeof info, info_out);
}

static ra_backend backends[RA_CUDA_MOST_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(void) {
    for (int i = 0; i < RA_CUDA_MOST_DEVICES; i++)
        backends[i] = (ra_backend){RA_INTERNAL_VERSION, ra_device_cuda(i), ra_cuda_kernel_at};
}

ra_status ra_cuda_backend(int device, const ra_backend **backend_out) {
    if (!backend_out) return ra_refuse("backend_out is NULL");
    RA_TRY(ra_internal_check("libringattn_cuda", RA_INTERNAL_VERSION));
    RA_TRY(check_device(device));
    pthread_once(&once, fill);
    *backend_out = &backends[device];
    return RA_OK;
}
