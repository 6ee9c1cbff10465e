#include "transport/nccl/nccl_api.h"

#include "base/status.h"

#include <dlfcn.h>
#include <pthread.h>

static const char *const LIBRARY = "libnccl.so.2";

/* A library that was there when this one was built: the last place that is looked at. */
#ifndef RA_NCCL_BUILT_WITH
#define RA_NCCL_BUILT_WITH ""
#endif

/* A library stays open: whoever has communicators of it needs its code. */
static void *open_any(const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return library;
}

static ra_status find_functions(void *library, const char *name, ra_nccl_api *api_out) {
    ra_nccl_api api;
#define RA_NCCL_FIND(result, function, parameters)                                                                     \
    *(void **)&api.function = dlsym(library, #function);                                                               \
    if (!api.function)                                                                                                 \
        return ra_fail(RA_ERR_UNSUPPORTED, "%s has no function %s: NCCL 2.14 or later is needed", name, #function);
    RA_NCCL_FUNCTIONS(RA_NCCL_FIND)
#undef RA_NCCL_FIND
    *api_out = api;
    return RA_OK;
}

ra_status ra_nccl_open_library(const char *name, ra_nccl_api *api_out) {
    void *library = open_any(name);
    if (!library)
        return ra_fail(
            RA_ERR_UNSUPPORTED,
            "NCCL is not installed: %s (Debian: apt-get install libnccl2; Python: pip install nvidia-nccl-cu12 "
            "and import torch first, or name its folder in LD_LIBRARY_PATH)",
            dlerror());
    return find_functions(library, name, api_out);
}

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static ra_nccl_api loaded;
static int is_loaded;

static ra_status load(void) {
    void *library = open_any(LIBRARY);
    if (!library && RA_NCCL_BUILT_WITH[0]) library = open_any(RA_NCCL_BUILT_WITH);
    if (library) return find_functions(library, LIBRARY, &loaded);
    return ra_nccl_open_library(LIBRARY, &loaded);
}

ra_status ra_nccl_load(const ra_nccl_api **api_out) {
    pthread_mutex_lock(&opening);
    ra_status status = is_loaded ? RA_OK : load();
    is_loaded = status == RA_OK;
    pthread_mutex_unlock(&opening);
    if (status == RA_OK) *api_out = &loaded;
    return status;
}
