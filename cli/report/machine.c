#define _GNU_SOURCE /* the cores that this process may use */
#include "report/machine.h"

#include <dlfcn.h>
#include <ringattn/ucx.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif
#ifdef RA_HAVE_MPI
#include <mpi.h>
#endif

/* A text that is too long is shortened. */
static void set(char text_out[MACHINE_TEXT_BYTES], const char *text) {
    snprintf(text_out, MACHINE_TEXT_BYTES, "%s", text);
}

void machine_system(char text_out[MACHINE_TEXT_BYTES]) {
    struct utsname name;
    const char *libc = "";
#ifdef __GLIBC__
    libc = gnu_get_libc_version();
#endif
    if (uname(&name) != 0)
        set(text_out, "unknown");
    else
        snprintf(text_out, MACHINE_TEXT_BYTES, "%.60s %.60s %.60s%s%.20s", name.sysname, name.release, name.machine,
                 *libc ? ", glibc " : "", libc);
}

void machine_cpu_name(char text_out[MACHINE_TEXT_BYTES]) {
    char line[MACHINE_TEXT_BYTES];
    FILE *file = fopen("/proc/cpuinfo", "r");
    text_out[0] = '\0';
    while (file && !text_out[0] && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = '\0';
        set(text_out, colon + 1 + strspn(colon + 1, " "));
    }
    if (file) fclose(file);
}

int machine_cores(void) {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int machine_mpi_version(char text_out[MACHINE_TEXT_BYTES]) {
#ifdef RA_HAVE_MPI
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(version, &length) == MPI_SUCCESS) { /* may be called before MPI_Init */
        version[strcspn(version, "\n")] = '\0';                     /* MPICH has a page of it */
        for (char *at = version; *at; ++at)
            if (*at == '\t') *at = ' ';
        set(text_out, version);
        return 1;
    }
    set(text_out, "MPI does not say which it is");
#else
    set(text_out, "built without MPI");
#endif
    return 0;
}

int machine_ucx_version(char text_out[MACHINE_TEXT_BYTES]) {
    const char *version = NULL;
    int found = ra_ucx_version(&version) == RA_OK;
    set(text_out, found ? version : ra_last_error());
    return found;
}

/* Both of these give 0 for success and have the signature int (int *). */
static int call_version(void *library, const char *function, int *version_out) {
    int (*get)(int *) = NULL;
    void *symbol = library ? dlsym(library, function) : NULL;
    memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from data to code */
    return get && get(version_out) == 0;
}

/* Of the library that libringattn_cuda opens. 2.14.3 is 21403. */
int machine_nccl_version(char text_out[MACHINE_TEXT_BYTES]) {
#ifdef RA_HAVE_CUDA
    int version = 0;
    void *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
    int found = call_version(library, "ncclGetVersion", &version);
    if (library) dlclose(library);
    if (found)
        snprintf(text_out, MACHINE_TEXT_BYTES, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    else
        set(text_out, "libnccl.so.2 was not found");
    return found;
#else
    set(text_out, "built without CUDA");
    return 0;
#endif
}

/* 13.0 is 13000. */
int machine_cuda_driver_version(char text_out[MACHINE_TEXT_BYTES]) {
    int version = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    int found = call_version(driver, "cuDriverGetVersion", &version);
    if (found)
        snprintf(text_out, MACHINE_TEXT_BYTES, "%d.%d", version / 1000, version / 10 % 100);
    else
        set(text_out, "no driver on this machine");
    if (driver) dlclose(driver);
    return found;
}
