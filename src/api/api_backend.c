/* A backend's memory, streams and kernels, for callers. */
#include "base/status.h"
#include "kernel/backend.h"

#include <string.h>
#include <time.h>

static const ra_device *device_of(const ra_backend *backend) {
    return backend ? backend->device : &ra_device_cpu;
}

ra_status ra_backend_allocate(const ra_backend *backend, size_t bytes, void **memory_out) {
    const ra_device *device = device_of(backend);
    if (!memory_out) return ra_refuse("memory_out is NULL");
    void *memory = device->allocate(device, bytes);
    if (!memory) return ra_fail(RA_ERR_MEMORY, "the device %s has no memory for %zu bytes", device->name, bytes);
    *memory_out = memory;
    return RA_OK;
}

void ra_backend_release(const ra_backend *backend, void *memory) {
    const ra_device *device = device_of(backend);
    if (memory) device->release(device, memory);
}

/* Copies on stream, and waits for event behind the copy. */
static ra_status copy_and_wait(const ra_device *device, void *to, const void *from, size_t bytes, void *stream,
                               void *event) {
    int done = 0;
    RA_TRY(device->copy(device, to, from, bytes, stream));
    RA_TRY(device->signal(device, event, stream));
    for (;;) {
        RA_TRY(device->query(device, event, &done));
        if (done) return RA_OK;
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

ra_status ra_backend_copy(const ra_backend *backend, void *to, const void *from, size_t bytes) {
    const ra_device *device = device_of(backend);
    if (bytes && (!to || !from)) return ra_refuse("to or from is NULL");
    if (!ra_device_is_asynchronous(device)) {
        if (bytes) memcpy(to, from, bytes);
        return RA_OK;
    }
    void *stream = NULL, *event = NULL;
    RA_TRY(device->stream_create(device, 0, &stream));
    ra_status status = device->event_create(device, &event);
    if (status == RA_OK) status = copy_and_wait(device, to, from, bytes, stream, event);
    if (event) device->event_destroy(device, event);
    device->stream_destroy(device, stream);
    return status;
}

ra_status ra_backend_stream_create(const ra_backend *backend, void **stream_out) {
    const ra_device *device = device_of(backend);
    if (!stream_out) return ra_refuse("stream_out is NULL");
    *stream_out = NULL;
    return ra_device_is_asynchronous(device) ? device->stream_create(device, 0, stream_out) : RA_OK;
}

void ra_backend_stream_destroy(const ra_backend *backend, void *stream) {
    const ra_device *device = device_of(backend);
    if (stream && ra_device_is_asynchronous(device)) device->stream_destroy(device, stream);
}

const char *ra_backend_name(const ra_backend *backend) {
    return device_of(backend)->name;
}

const char *ra_backend_kernel(const ra_backend *backend, int index) {
    const ra_kernel *kernel = backend ? backend->kernel_at(index) : ra_kernel_at(index);
    return kernel ? kernel->name : NULL;
}

int ra_backend_kernel_usable(const ra_backend *backend, int index) {
    const ra_device *device = device_of(backend);
    const ra_kernel *kernel = backend ? backend->kernel_at(index) : ra_kernel_at(index);
    int previous;
    if (!kernel || ra_device_enter(device, &previous) != RA_OK) return 0;
    int usable = kernel->usable();
    ra_device_leave(device, previous);
    return usable;
}
