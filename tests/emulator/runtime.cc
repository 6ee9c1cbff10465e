/* The CUDA runtime as far as the library and its tests call it: one device, whose memory is the host's and whose
 * streams are always done. */
#include "launched_blocks.h"
#include "tensor_map.h"

#include <cstdlib>
#include <cstring>

static thread_local cudaError_t last_error;

static cudaError_t said(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

/* To the byte, so that AddressSanitizer sees who reads beyond. */
static cudaError_t take(void **memory_out, size_t bytes) {
    *memory_out = NULL;
    bool taken = !bytes || posix_memalign(memory_out, 256, bytes) == 0;
    if (taken && bytes) memset(*memory_out, 0xff, bytes); /* NaN, for who reads what nobody wrote */
    return said(taken ? cudaSuccess : cudaErrorMemoryAllocation);
}

extern "C" {

/* ---- devices ----------------------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count_out) {
    *count_out = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device_out) {
    *device_out = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return said(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetAttribute(int *value_out, cudaDeviceAttr attribute, int) {
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        *value_out = emulator::MULTIPROCESSORS;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value_out = 9;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value_out = 0;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value_out = emulator::MOST_SHARED_BYTES;
        return cudaSuccess;
    default:
        return said(cudaErrorInvalidValue);
    }
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties_out, int) {
    memset(properties_out, 0, sizeof *properties_out);
    strcpy(properties_out->name, "an emulated GPU");
    properties_out->major = 9;
    properties_out->multiProcessorCount = emulator::MULTIPROCESSORS;
    properties_out->sharedMemPerBlockOptin = emulator::MOST_SHARED_BYTES;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version_out) {
    *version_out = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **found_out, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result_out) {
    bool known = !strcmp(name, "cuTensorMapEncodeTiled");
    *found_out = known ? (void *)emulator::encode_tensor_map : NULL;
    *result_out = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least_out, int *greatest_out) {
    *least_out = 0;
    *greatest_out = -1;
    return cudaSuccess;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t) {
    return "an error";
}

const char *cudaGetErrorString(cudaError_t) {
    return "an error of the emulator";
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

cudaError_t cudaMalloc(void **memory_out, size_t bytes) {
    return take(memory_out, bytes);
}

cudaError_t cudaHostAlloc(void **memory_out, size_t bytes, unsigned) {
    return take(memory_out, bytes);
}

cudaError_t cudaFree(void *memory) {
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory) {
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    memset(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t) {
    memset(to, value, bytes);
    return cudaSuccess;
}

/* ---- streams and events ------------------------------------------------------------------------------------------ */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream_out, unsigned, int) {
    *stream_out = (cudaStream_t)malloc(1);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream_out) {
    return cudaStreamCreateWithPriority(stream_out, 0, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status_out) {
    *status_out = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) {
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event_out, unsigned) {
    *event_out = (cudaEvent_t)malloc(1);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event_out) {
    return cudaEventCreateWithFlags(event_out, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t) {
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) {
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds_out, cudaEvent_t, cudaEvent_t) {
    *milliseconds_out = 0;
    return cudaSuccess;
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute attribute, int value) {
    bool fits = attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value <= emulator::MOST_SHARED_BYTES;
    return said(fits ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *found_out, const void *) {
    memset(found_out, 0, sizeof *found_out);
    found_out->ptxVersion = 90;
    return cudaSuccess;
}
}
