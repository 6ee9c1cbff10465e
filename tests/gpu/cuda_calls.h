/* Between the library and the CUDA runtime, where the linker puts it (tests/gpu/CMakeLists.txt): counts the calls that
 * allocate or release memory, those in which the host waits for the device, and copies. Where there is no GPU it stands
 * in for the runtime as far as planning calls it: memory is the host's, copies are made at once, events have happened.
 */
#ifndef TESTS_GPU_CUDA_CALLS_H
#define TESTS_GPU_CUDA_CALLS_H

#include <stdint.h>

typedef struct cuda_calls {
    int64_t memory; /* allocations and releases, of the device and of pinned memory */
    int64_t waits;  /* for a stream, an event, the device or a copy */
    int64_t copies; /* that are not waited for */
} cuda_calls;

/* Of all threads, from the start of the program on. */
cuda_calls cuda_calls_so_far(void);

/* Stands in for the runtime from now on, with one device of compute capability 9.0. */
void cuda_calls_pretend(void);

#endif
