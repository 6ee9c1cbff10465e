#include "cuda_calls.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { NOTHING, MEMORY, WAIT, COPY, KINDS };

static atomic_llong counts[KINDS];
static int pretending;

cuda_calls cuda_calls_so_far(void) {
    return (cuda_calls){counts[MEMORY], counts[WAIT], counts[COPY]};
}

void cuda_calls_pretend(void) {
    pretending = 1;
}

/* ---- in the place of the runtime --------------------------------------------------------------------------------- */

static cudaError_t set(int *out, int value) {
    *out = value;
    return cudaSuccess;
}

static cudaError_t take(void **memory_out, size_t bytes) {
    return posix_memalign(memory_out, 256, bytes) == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t give(void *memory) {
    free(memory);
    return cudaSuccess;
}

static cudaError_t move(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}

static cudaError_t attribute(int *value_out, enum cudaDeviceAttr which) {
    if (which == cudaDevAttrComputeCapabilityMajor) return set(value_out, 9);
    if (which == cudaDevAttrComputeCapabilityMinor) return set(value_out, 0);
    if (which == cudaDevAttrMultiProcessorCount) return set(value_out, 132);
    if (which == cudaDevAttrMaxSharedMemoryPerBlockOptin) return set(value_out, 227 * 1024);
    return cudaErrorInvalidValue;
}

/* The driver's encoder of tensor maps: a map of zeros. */
static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
                       const cuuint64_t *counts_of, const cuuint64_t *steps, const cuuint32_t *box,
                       const cuuint32_t *each, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    (void)type, (void)rank, (void)base, (void)counts_of, (void)steps, (void)box, (void)each;
    (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    memset(map, 0, sizeof *map);
    return CUDA_SUCCESS;
}

static cudaError_t entry_point(void **function_out, enum cudaDriverEntryPointQueryResult *result_out) {
    *function_out = (void *)(uintptr_t)encode;
    *result_out = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

/* ---- between ----------------------------------------------------------------------------------------------------- */

#define BETWEEN(kind, name, parameters, arguments, instead)                                                            \
    cudaError_t __real_##name parameters;                                                                              \
    cudaError_t __wrap_##name parameters;                                                                              \
    cudaError_t __wrap_##name parameters {                                                                             \
        counts[kind]++;                                                                                                \
        return pretending ? (instead) : __real_##name arguments;                                                       \
    }

BETWEEN(MEMORY, cudaMalloc, (void **memory_out, size_t bytes), (memory_out, bytes), take(memory_out, bytes))
BETWEEN(MEMORY, cudaMallocAsync, (void **memory_out, size_t bytes, cudaStream_t s), (memory_out, bytes, s),
        cudaErrorNotSupported)
BETWEEN(MEMORY, cudaMallocManaged, (void **memory_out, size_t bytes, unsigned flags), (memory_out, bytes, flags),
        cudaErrorNotSupported)
BETWEEN(MEMORY, cudaMallocHost, (void **memory_out, size_t bytes), (memory_out, bytes), cudaErrorNotSupported)
BETWEEN(MEMORY, cudaHostAlloc, (void **memory_out, size_t bytes, unsigned flags), (memory_out, bytes, flags),
        take(memory_out, bytes))
BETWEEN(MEMORY, cudaHostRegister, (void *memory, size_t bytes, unsigned flags), (memory, bytes, flags),
        cudaErrorNotSupported)
BETWEEN(MEMORY, cudaFree, (void *memory), (memory), give(memory))
BETWEEN(MEMORY, cudaFreeAsync, (void *memory, cudaStream_t s), (memory, s), cudaErrorNotSupported)
BETWEEN(MEMORY, cudaFreeHost, (void *memory), (memory), give(memory))

BETWEEN(WAIT, cudaDeviceSynchronize, (void), (), cudaSuccess)
BETWEEN(WAIT, cudaStreamSynchronize, (cudaStream_t s), (s), cudaSuccess)
BETWEEN(WAIT, cudaEventSynchronize, (cudaEvent_t e), (e), cudaSuccess)
BETWEEN(WAIT, cudaMemcpy, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind), (to, from, bytes, kind),
        move(to, from, bytes))
BETWEEN(WAIT, cudaMemset, (void *to, int value, size_t bytes), (to, value, bytes), cudaErrorNotSupported)
BETWEEN(COPY, cudaMemcpyAsync, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s),
        (to, from, bytes, kind, s), move(to, from, bytes))

BETWEEN(NOTHING, cudaGetDeviceCount, (int *count_out), (count_out), set(count_out, 1))
BETWEEN(NOTHING, cudaGetDevice, (int *device_out), (device_out), set(device_out, 0))
BETWEEN(NOTHING, cudaSetDevice, (int device), (device), cudaSuccess)
BETWEEN(NOTHING, cudaGetLastError, (void), (), cudaSuccess)
BETWEEN(NOTHING, cudaDeviceGetAttribute, (int *value_out, enum cudaDeviceAttr which, int device),
        (value_out, which, device), attribute(value_out, which))
BETWEEN(NOTHING, cudaDeviceGetStreamPriorityRange, (int *least_out, int *greatest_out), (least_out, greatest_out),
        (set(least_out, 0), set(greatest_out, 0)))
BETWEEN(NOTHING, cudaStreamCreateWithPriority, (cudaStream_t * stream_out, unsigned flags, int priority),
        (stream_out, flags, priority), take((void **)stream_out, 1))
BETWEEN(NOTHING, cudaStreamDestroy, (cudaStream_t s), (s), give(s))
BETWEEN(NOTHING, cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t e, unsigned flags), (s, e, flags), cudaSuccess)
BETWEEN(NOTHING, cudaStreamIsCapturing, (cudaStream_t s, enum cudaStreamCaptureStatus *status_out), (s, status_out),
        cudaErrorNotSupported)
BETWEEN(NOTHING, cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode), (mode), cudaSuccess)
BETWEEN(NOTHING, cudaEventCreateWithFlags, (cudaEvent_t * event_out, unsigned flags), (event_out, flags),
        take((void **)event_out, 1))
BETWEEN(NOTHING, cudaEventDestroy, (cudaEvent_t e), (e), give(e))
BETWEEN(NOTHING, cudaEventRecord, (cudaEvent_t e, cudaStream_t s), (e, s), cudaSuccess)
BETWEEN(NOTHING, cudaEventQuery, (cudaEvent_t e), (e), cudaSuccess)
BETWEEN(NOTHING, cudaFuncSetAttribute, (const void *function, enum cudaFuncAttribute which, int value),
        (function, which, value), cudaSuccess)
#if CUDART_VERSION >= 12050
BETWEEN(NOTHING, cudaGetDriverEntryPointByVersion,
        (const char *name, void **function_out, unsigned version, unsigned long long flags,
         enum cudaDriverEntryPointQueryResult *result_out),
        (name, function_out, version, flags, result_out), entry_point(function_out, result_out))
#else
BETWEEN(NOTHING, cudaGetDriverEntryPoint,
        (const char *name, void **function_out, unsigned long long flags,
         enum cudaDriverEntryPointQueryResult *result_out),
        (name, function_out, flags, result_out), entry_point(function_out, result_out))
#endif
