#include "kernel/backend.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

const ra_backend ra_backend_cpu = {RA_INTERNAL_VERSION, &ra_device_cpu, ra_kernel_at};

ra_status ra_backend_check(const ra_backend *backend, const ra_backend **backend_out) {
    *backend_out = backend ? backend : &ra_backend_cpu;
    if ((*backend_out)->version != RA_INTERNAL_VERSION)
        return ra_fail(RA_ERR_UNSUPPORTED,
                       "the backend was built for the internal version %d of libringattn, but this libringattn has %d: "
                       "install both from one build",
                       (*backend_out)->version, RA_INTERNAL_VERSION);
    return RA_OK;
}

static const ra_kernel *best_usable(const ra_backend *backend) {
    const ra_kernel *best = NULL, *kernel;
    for (int i = 0; (kernel = backend->kernel_at(i)); i++)
        if (kernel->usable()) best = kernel;
    return best;
}

static const ra_kernel *kernel_named(const ra_backend *backend, const char *name) {
    const ra_kernel *kernel;
    for (int i = 0; (kernel = backend->kernel_at(i)); i++)
        if (strcmp(name, kernel->name) == 0) return kernel;
    return NULL;
}

static ra_status no_such_kernel(const ra_backend *backend, const char *name) {
    char names[256] = "auto";
    const ra_kernel *kernel;
    for (int i = 0; (kernel = backend->kernel_at(i)); i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, ", %s", kernel->name);
    }
    return ra_refuse("there is no kernel named \"%s\" on the device %s; choose one of: %s", name, backend->device->name,
                     names);
}

ra_status ra_backend_find_kernel(const ra_backend *backend, const char *name, const ra_kernel **kernel_out) {
    int any = !name || strcmp(name, "auto") == 0;
    const ra_kernel *kernel = any ? best_usable(backend) : kernel_named(backend, name);
    if (!kernel && any)
        return ra_fail(RA_ERR_UNSUPPORTED, "none of the kernels for %s runs on this machine", backend->device->name);
    if (!kernel) return no_such_kernel(backend, name);
    if (!kernel->usable())
        return ra_fail(RA_ERR_UNSUPPORTED, "this machine cannot run the kernel \"%s\"; choose another or auto", name);
    *kernel_out = kernel;
    return RA_OK;
}
