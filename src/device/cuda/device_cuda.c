#include "device/cuda/device_cuda.h"

#include "base/status.h"
#include "device/cuda/device_bytes.h"

#include <pthread.h>
#include <string.h>

ra_status ra_cuda_status(cudaError_t error, const char *call) {
    if (error == cudaSuccess) return RA_OK;
    int length = (int)strcspn(call, "(");
    cudaGetLastError(); /* said here, so that no later check says it again */
    return ra_fail(error == cudaErrorMemoryAllocation ? RA_ERR_MEMORY : RA_ERR_DEVICE, "%.*s: %s (%s)", length, call,
                   cudaGetErrorString(error), cudaGetErrorName(error));
}

int ra_device_cuda_ordinal(const ra_device *device) {
    return ((const ra_cuda_device *)device)->ordinal;
}

/* An error that somebody else's call has left behind on this thread is not one of what follows: check is not to find
 * it. One that the device cannot recover from comes again by itself. */
static ra_status enter(const ra_device *device, int *previous_out) {
    cudaGetLastError();
    RA_CUDA_TRY(cudaGetDevice(previous_out));
    int ordinal = ra_device_cuda_ordinal(device);
    if (ordinal == *previous_out) return RA_OK;
    return ra_cuda_status(cudaSetDevice(ordinal), "cudaSetDevice");
}

static void leave(const ra_device *device, int previous) {
    if (previous != ra_device_cuda_ordinal(device)) cudaSetDevice(previous);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void *allocate(const ra_device *device, size_t bytes) {
    void *memory = NULL;
    int previous;
    if (enter(device, &previous) != RA_OK) return NULL;
    if (cudaMalloc(&memory, bytes ? bytes : 64) != cudaSuccess) {
        cudaGetLastError();
        memory = NULL;
    }
    leave(device, previous);
    return memory;
}

/* cudaFree waits for all work of the device. */
static void release(const ra_device *device, void *memory) {
    int previous;
    if (enter(device, &previous) != RA_OK) return;
    cudaFree(memory);
    leave(device, previous);
}

static void *allocate_host(const ra_device *device, size_t bytes) {
    void *memory = NULL;
    int previous;
    if (enter(device, &previous) != RA_OK) return NULL;
    if (cudaHostAlloc(&memory, bytes ? bytes : 64, cudaHostAllocPortable) != cudaSuccess) {
        cudaGetLastError();
        memory = NULL;
    }
    leave(device, previous);
    return memory;
}

static void release_host(const ra_device *device, void *memory) {
    int previous;
    if (enter(device, &previous) != RA_OK) return;
    cudaDeviceSynchronize();
    cudaFreeHost(memory);
    leave(device, previous);
}

static void zero(const ra_device *device, void *memory, size_t bytes, void *stream) {
    (void)device;
    if (bytes) gpu_bytes_zero(memory, bytes, stream); /* check finds an error */
}

/* Between devices too: all addresses are of one space. */
static ra_status copy(const ra_device *device, void *to, const void *from, size_t bytes, void *stream) {
    (void)device;
    return ra_cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

static ra_status copy_within(const ra_device *device, void *to, const void *from, size_t bytes, void *stream) {
    (void)device;
    return ra_cuda_status(gpu_bytes_copy(to, from, bytes, stream), "a copy within the device");
}

/* ---- streams and events ------------------------------------------------------------------------------------------ */

static ra_status stream_create(const ra_device *device, int urgent, void **stream_out) {
    cudaStream_t stream = NULL;
    int previous, least = 0, greatest = 0;
    RA_TRY(enter(device, &previous));
    cudaDeviceGetStreamPriorityRange(&least, &greatest);
    cudaError_t error = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least);
    ra_status status = ra_cuda_status(error, "cudaStreamCreateWithPriority");
    leave(device, previous);
    *stream_out = stream;
    return status;
}

static void stream_destroy(const ra_device *device, void *stream) {
    (void)device;
    cudaStreamDestroy(stream);
}

static ra_status event_create(const ra_device *device, void **event_out) {
    cudaEvent_t event = NULL;
    int previous;
    RA_TRY(enter(device, &previous));
    ra_status status = ra_cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    leave(device, previous);
    *event_out = event;
    return status;
}

static void event_destroy(const ra_device *device, void *event) {
    (void)device;
    cudaEventDestroy(event);
}

static ra_status signal_event(const ra_device *device, void *event, void *stream) {
    (void)device;
    return ra_cuda_status(cudaEventRecord(event, stream), "cudaEventRecord");
}

static ra_status wait(const ra_device *device, void *stream, void *event) {
    (void)device;
    return ra_cuda_status(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}

/* While any stream of the process captures, in the mode that is the default, threads may not ask for events unless they
 * are relaxed: the question itself does no harm to a graph. */
static cudaError_t query_relaxed(void *event) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaError_t error = cudaEventQuery(event);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return error;
}

/* The device is the current one meanwhile, since setting a thread's mode makes a context where there is none. Not by
 * enter, which forgets errors that check is to find. */
static ra_status query(const ra_device *device, void *event, int *done_out) {
    int previous, ordinal = ra_device_cuda_ordinal(device);
    RA_CUDA_TRY(cudaGetDevice(&previous));
    if (previous != ordinal) RA_CUDA_TRY(cudaSetDevice(ordinal));
    cudaError_t error = query_relaxed(event);
    leave(device, previous);
    *done_out = error == cudaSuccess;
    if (error != cudaErrorNotReady) return ra_cuda_status(error, "the work on the device");
    cudaGetLastError(); /* "not ready" counts as an error */
    return RA_OK;
}

static ra_status captures(const ra_device *device, void *stream, int *captures_out) {
    (void)device;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    RA_CUDA_TRY(cudaStreamIsCapturing(stream, &status));
    *captures_out = status != cudaStreamCaptureStatusNone;
    return RA_OK;
}

static ra_status check(const ra_device *device) {
    (void)device;
    return ra_cuda_status(cudaGetLastError(), "a launch on the device");
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

static ra_cuda_device devices[RA_CUDA_MOST_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(void) {
    for (int i = 0; i < RA_CUDA_MOST_DEVICES; i++)
        devices[i] = (ra_cuda_device){.table = {.name = "cuda",
                                                .allocate = allocate,
                                                .release = release,
                                                .zero = zero,
                                                .enter = enter,
                                                .leave = leave,
                                                .allocate_host = allocate_host,
                                                .release_host = release_host,
                                                .stream_create = stream_create,
                                                .stream_destroy = stream_destroy,
                                                .event_create = event_create,
                                                .event_destroy = event_destroy,
                                                .signal = signal_event,
                                                .wait = wait,
                                                .query = query,
                                                .captures = captures,
                                                .copy = copy,
                                                .copy_within = copy_within,
                                                .check = check},
                                      .ordinal = i};
}

const ra_device *ra_device_cuda(int ordinal) {
    pthread_once(&once, fill);
    return &devices[ordinal].table;
}
