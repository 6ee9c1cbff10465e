/* A device: where a plan's workspace lives and how work on it is ordered. On the CPU a stream is NULL and everything is
 * done when the call returns. */
#ifndef RA_DEVICE_DEVICE_H
#define RA_DEVICE_DEVICE_H

#include <ringattn/ringattn.h>

typedef struct ra_device {
    const char *name;

    /* 64-byte aligned; NULL when there is no memory. bytes 0 gives a pointer that can be freed. */
    void *(*allocate)(size_t bytes);
    void (*release)(void *memory);

    /* Zeroes memory in stream order. */
    void (*zero)(void *memory, size_t bytes, void *stream);
} ra_device;

extern const ra_device ra_device_cpu;

#endif
