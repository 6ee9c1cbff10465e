#include "transport/ucx/ucx_api.h"

#include "base/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const LIBRARY = "libucp.so.0";

/* ---- leaving the host program alone ------------------------------------------------------------------------------ */

/* Loading UCX installs handlers for SIGSEGV and others, which print and then wait or end the process. The handlers
 * belong to the host program: they are put back as they were. */
enum { SIGNALS = 32 };

static void remember_signals(struct sigaction *before) {
    for (int s = 1; s < SIGNALS; s++) sigaction(s, NULL, &before[s]);
}

static int handles(const struct sigaction *action, const struct sigaction *other) {
    return (action->sa_flags & SA_SIGINFO) == (other->sa_flags & SA_SIGINFO) && action->sa_handler == other->sa_handler;
}

static void restore_signals(const struct sigaction *before) {
    for (int s = 1; s < SIGNALS; s++) {
        struct sigaction after;
        if (s == SIGKILL || s == SIGSTOP || sigaction(s, NULL, &after) != 0) continue;
        if (!handles(&after, &before[s])) sigaction(s, &before[s], NULL);
    }
}

/* UCX prints warnings to standard output and, for memory of devices, patches functions of the C library to know which
 * memory is whose. Messages here say what their memory is, and errors come back as statuses: both are turned off,
 * unless the environment sets them. UCX offers no call for these two, only this one that its own tools use. */
static void keep_quiet(void *library) {
    ucs_status_t (*set)(const char *, const char *);
    *(void **)&set = dlsym(library, "ucs_global_opts_set_value");
    if (!set) return;
    if (!getenv("UCX_LOG_LEVEL")) set("LOG_LEVEL", "fatal");
    if (!getenv("UCX_MEMTYPE_CACHE")) set("MEMTYPE_CACHE", "n");
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* A library that somebody else has loaded stays as its owner set it up. */
static void *open_quietly(const char *name) {
    struct sigaction before[SIGNALS];
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library) return library;
    remember_signals(before);
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    restore_signals(before);
    if (library) keep_quiet(library);
    return library;
}

ra_status ra_ucx_open_library(const char *name, ra_ucx_api *api_out) {
    ra_ucx_api api;
    void *library = open_quietly(name);
    if (!library) {
        return ra_fail(RA_ERR_UNSUPPORTED,
                       "UCX is not installed: %s (Debian: apt-get install libucx0; Python: pip install libucx-cu12 and "
                       "import it first)",
                       dlerror());
    }
#define RA_UCX_FIND(function)                                                                                          \
    *(void **)&api.function = dlsym(library, #function);                                                               \
    if (!api.function)                                                                                                 \
        return ra_fail(RA_ERR_UNSUPPORTED, "%s has no function %s: UCX 1.13 or later is needed", name, #function);
    RA_UCX_FUNCTIONS(RA_UCX_FIND)
#undef RA_UCX_FIND
    *api_out = api;
    return RA_OK;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ra_ucx_api loaded;
static ra_status loaded_status;
static char why_not[512];

static void load(void) {
    loaded_status = ra_ucx_open_library(LIBRARY, &loaded);
    if (loaded_status != RA_OK) snprintf(why_not, sizeof why_not, "%s", ra_last_error());
}

ra_status ra_ucx_load(const ra_ucx_api **api_out) {
    pthread_once(&once, load);
    if (loaded_status != RA_OK) return ra_fail(loaded_status, "%s", why_not);
    *api_out = &loaded;
    return RA_OK;
}
