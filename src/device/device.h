/* A device: where a plan's memory lives and how work on it is ordered.
 *
 * On the CPU a stream is NULL and everything is done when the call returns. An asynchronous device has streams, queues
 * of work that is done in order, and events, which are points of a stream that another stream can wait for:
 *
 *     stream a   ── pack ── signal e ── compute ──►
 *     stream b              wait e ── copy ──►          the copy comes after the pack, beside the compute
 *
 * None of the functions waits for the device, but for allocate and release, which are called at plan time.
 */
#ifndef RA_DEVICE_DEVICE_H
#define RA_DEVICE_DEVICE_H

#include <ringattn/transport.h>

struct ra_device {
    const char *name;

    /* 64-byte aligned, on an asynchronous device 256-byte; NULL when there is no memory. bytes 0 gives a pointer that
     * can be freed. release comes after all work that uses the memory. */
    void *(*allocate)(const ra_device *device, size_t bytes);
    void (*release)(const ra_device *device, void *memory);

    /* Zeroes memory in stream order. */
    void (*zero)(const ra_device *device, void *memory, size_t bytes, void *stream);

    /* All that follows is NULL on the CPU. */

    /* Makes the device the calling thread's current one and says which one was; leave makes that one current again. */
    ra_status (*enter)(const ra_device *device, int *previous_out);
    void (*leave)(const ra_device *device, int previous);

    /* Host memory that copies to and from the device reach without a detour. */
    void *(*allocate_host)(const ra_device *device, size_t bytes);
    void (*release_host)(const ra_device *device, void *memory);

    /* A stream that waits for no other; an urgent one, for messages, goes before others where the device must choose.
     * Destroying one, or an event, does not disturb work already put on it. */
    ra_status (*stream_create)(const ra_device *device, int urgent, void **stream_out);
    void (*stream_destroy)(const ra_device *device, void *stream);
    ra_status (*event_create)(const ra_device *device, void **event_out);
    void (*event_destroy)(const ra_device *device, void *event);

    /* The event stands for the work put on the stream so far; only streams of the event's own device. */
    ra_status (*signal)(const ra_device *device, void *event, void *stream);

    /* What is put on the stream from now on comes after what the event stands for; it may be another device's event. */
    ra_status (*wait)(const ra_device *device, void *stream, void *event);

    /* Whether what the event stands for is done; one never signalled is. Fails when the device did. Also allowed while
     * a stream captures. */
    ra_status (*query)(const ra_device *device, void *event, int *done_out);

    /* Whether what is put on the stream is captured, to be done later and any number of times (a CUDA graph). NULL: no
     * stream of the device ever captures. */
    ra_status (*captures)(const ra_device *device, void *stream, int *captures_out);

    /* Between any two of: this device's memory, another one's, the host's. In stream order. */
    ra_status (*copy)(const ra_device *device, void *to, const void *from, size_t bytes, void *stream);

    /* The same within this device's memory, beside work of other streams. NULL: as any copy. */
    ra_status (*copy_within)(const ra_device *device, void *to, const void *from, size_t bytes, void *stream);

    /* Whether every launch of the calling thread since enter, or the last check, was accepted, and the device is well.
     */
    ra_status (*check)(const ra_device *device);
};

extern const ra_device ra_device_cpu;

static inline int ra_device_is_asynchronous(const ra_device *device) {
    return device && device->signal;
}

/* enter and leave where there is something to enter. */
static inline ra_status ra_device_enter(const ra_device *device, int *previous_out) {
    *previous_out = 0;
    return device->enter ? device->enter(device, previous_out) : RA_OK;
}

static inline void ra_device_leave(const ra_device *device, int previous) {
    if (device->leave) device->leave(device, previous);
}

/* What some memory belongs to and what the work on it is ordered by. */
typedef struct ra_queue {
    const ra_device *device;
    void *stream;
} ra_queue;

#endif
