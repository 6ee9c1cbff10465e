/* The CPU as a device: the heap, and no streams. */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

static void *allocate(size_t bytes) {
    void *memory = NULL;
    return posix_memalign(&memory, 64, bytes ? bytes : 64) == 0 ? memory : NULL;
}

static void release(void *memory) {
    free(memory);
}

static void zero(void *memory, size_t bytes, void *stream) {
    (void)stream;
    memset(memory, 0, bytes);
}

const ra_device ra_device_cpu = {"cpu", allocate, release, zero};
