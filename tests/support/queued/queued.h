/* A device for tests that need no GPU: host memory behind streams. A stream is a queue that a thread of its own works
 * off, with random delays; kernels and copies are put on it as jobs. So what is not ordered by a stream or an event
 * happens in any order: a missing wait shows as a wrong result, and to ThreadSanitizer as a race, since streams share
 * no lock. */
#ifndef TESTS_SUPPORT_QUEUED_H
#define TESTS_SUPPORT_QUEUED_H

#include "kernel/backend.h"

/* How the device behaves. */
typedef struct queued_habits {
    uint64_t seed;
    int delay_one_in;  /* of so many jobs one waits first; 0: none does */
    int delay_most_us; /* and for how long at most */
    int ignore_wait;   /* n: of n waits for an event one is left out, as by a faulty executor; 0: none is */
    int refuse_check;  /* the check of this number, from 1, says that a launch was refused; 0: none does */
} queued_habits;

/* For as long as its backend is used. NULL for want of memory. */
typedef struct queued_device queued_device;
queued_device *queued_create(queued_habits habits);
const ra_backend *queued_backend(queued_device *queued);

/* Streams made and not destroyed, bytes of memory allocated and not released, of the device and of the host. */
int queued_streams(queued_device *queued);
int64_t queued_bytes(queued_device *queued);

/* How often memory was allocated or released, of the device or of the host: calls that a GPU may be waited for in. */
int64_t queued_memory_calls(queued_device *queued);

/* Copies that were put on streams. */
int64_t queued_copies(queued_device *queued);

/* Waits for everything; everything made must have been destroyed. */
void queued_destroy(queued_device *queued);

#endif
