/* A backend: a device and the kernels that run on it. The CPU's is built in; others come from libraries of their own,
 * which see the tables of this one and therefore must be of the same internal version. */
#ifndef RA_KERNEL_BACKEND_H
#define RA_KERNEL_BACKEND_H

#include "base/internal.h"
#include "device/device.h"
#include "kernel/kernel.h"

struct ra_backend {
    int version; /* RA_INTERNAL_VERSION of the headers it was compiled with */
    const ra_device *device;
    const ra_kernel *(*kernel_at)(int index); /* best last; NULL past the end */
};

extern const ra_backend ra_backend_cpu;

/* NULL stands for the CPU. Refuses a backend of another version. */
ra_status ra_backend_check(const ra_backend *backend, const ra_backend **backend_out);

/* By name, or the best usable one for NULL and "auto". Fails when there is none of that name, naming those there are,
 * or when this machine cannot run it. */
ra_status ra_backend_find_kernel(const ra_backend *backend, const char *name, const ra_kernel **kernel_out);

#endif
