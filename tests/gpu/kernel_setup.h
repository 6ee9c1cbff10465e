/* What the programs that call CUDA kernels without plans share: which kernel it is, their options, device memory. */
#ifndef TESTS_GPU_KERNEL_SETUP_H
#define TESTS_GPU_KERNEL_SETUP_H

#include "kernel/cuda/cuda_kernels.h"

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t check_error = (call);                                                                              \
        if (check_error != cudaSuccess) {                                                                              \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(check_error));                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct kernel_options {
    const char *name;      /* --kernel; NULL: the best one that this GPU can run */
    unsigned first, seeds; /* --seed, --seeds */
    int repeats;           /* --repeats */
    int listed;            /* --listed 1: keys are listed one by one */
    const char *check;     /* --check; NULL: all of kernel_check's */
};

/* Over the defaults that are there. An option that it does not know: says how to use the program, and exits with 2. */
void kernel_options_read(kernel_options *options, const char *program, int argc, char **argv);

/* The kernel that the program is about. */
extern const ra_kernel *kernel;

/* Chooses it and says which it is. 0: there is no GPU, or that kernel cannot run on it, which it has said. */
int kernel_choose(const char *name);

/* Whether it takes elements of that type. */
int kernel_takes(ra_dtype dtype);

/* Ready for calls, its lists on the device until give_all_back. Exits when it cannot be prepared. */
ra_prepared *prepared_of(const ra_shape &shape, const ra_tile_list &list, const ra_kv_rows *parts, int64_t count,
                         ra_pass pass);

/* Device memory, all of its bits set: a NaN in every type. give_all_back frees what was taken. */
void *take(size_t bytes);
void *take_copy(const void *from, size_t bytes);
void give_all_back(void);

#endif
