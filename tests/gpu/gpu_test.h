/* What the programs for machines with a GPU share. They are plain programs, which return nonzero when something is
 * wrong, since such a machine need not have cmocka; without a GPU they say so and succeed. */
#ifndef TESTS_GPU_GPU_TEST_H
#define TESTS_GPU_GPU_TEST_H

#ifdef __cplusplus
extern "C" {
#endif
#include "kernel/backend.h"
#ifdef __cplusplus
}
#endif

#include <ringattn/cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The kernels of a backend as they are, but for busy_keys: $RINGATTN_BUSY_KEYS. With a large number keys travel in
 * backward passes of ranks on one GPU, where else they stay, and each rank makes a call of its own in forward ones. */
static const ra_backend *gpu_plain_backend;

static inline const ra_kernel *gpu_busy_kernel_at(int index) {
    static ra_kernel kernels[16];
    const ra_kernel *kernel = index < 16 ? gpu_plain_backend->kernel_at(index) : NULL;
    if (!kernel) return NULL;
    if (kernels[index].name == kernel->name) return &kernels[index];
    ra_kernel changed = *kernel;
    changed.busy_keys = atoi(getenv("RINGATTN_BUSY_KEYS"));
    kernels[index] = changed;
    return &kernels[index];
}

static inline const ra_backend *gpu_busy_backend(const ra_backend *backend) {
    static ra_backend busy;
    if (!backend || !getenv("RINGATTN_BUSY_KEYS")) return backend;
    gpu_plain_backend = backend;
    busy = *backend;
    busy.kernel_at = gpu_busy_kernel_at;
    for (int i = 0; busy.kernel_at(i);) i++; /* before several threads ask */
    return &busy;
}

/* The backend of the first GPU, or NULL after saying that there is none. What is printed from then on is seen also when
 * the program is ended early. */
static inline const ra_backend *gpu_backend(void) {
    const ra_backend *backend = NULL;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (ra_cuda_devices() == 0 || ra_cuda_backend(0, &backend) != RA_OK) puts("no GPU, skipped");
    return gpu_busy_backend(backend);
}

/* Says so when the GPU cannot run the kernel; NULL: the best one. */
static inline int gpu_lacks_kernel(const ra_backend *backend, const char *name) {
    if (!name) return 0;
    for (int i = 0; backend->kernel_at(i); i++)
        if (strcmp(backend->kernel_at(i)->name, name) == 0 && backend->kernel_at(i)->usable()) return 0;
    printf("%s cannot run on this GPU, skipped\n", name);
    return 1;
}

/* The number after a flag such as --count. */
static inline int gpu_number(int argc, char **argv, const char *flag, int otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], flag) == 0) return atoi(argv[i + 1]);
    return otherwise;
}

static inline int gpu_flag(int argc, char **argv, const char *flag) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], flag) == 0) return 1;
    return 0;
}

/* For bodies that return a status, and for main. */
#define GPU_TRY(expr)                                                                                                  \
    do {                                                                                                               \
        ra_status gpu_try_status = (expr);                                                                             \
        if (gpu_try_status != RA_OK) return gpu_try_status;                                                            \
    } while (0)

#endif
