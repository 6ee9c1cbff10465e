/* The CPU as a device: the heap, and no streams. */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

static void *allocate(const ra_device *device, size_t bytes) {
    (void)device;
    void *memory = NULL;
    return posix_memalign(&memory, 64, bytes ? bytes : 64) == 0 ? memory : NULL;
}

static void release(const ra_device *device, void *memory) {
    (void)device;
    free(memory);
}

static void zero(const ra_device *device, void *memory, size_t bytes, void *stream) {
    (void)device, (void)stream;
    memset(memory, 0, bytes);
}

const ra_device ra_device_cpu = {.name = "cpu", .allocate = allocate, .release = release, .zero = zero};
