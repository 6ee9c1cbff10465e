#define _GNU_SOURCE /* sched_getaffinity */
#include "base/cores.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static int allowed_cores(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int ra_core_count(void) {
    int cores = allowed_cores();
    const char *limit = getenv("OMP_NUM_THREADS");
    int wanted = limit ? atoi(limit) : 0;
    if (wanted > 0 && wanted < cores) cores = wanted;
    return cores > 0 ? cores : 1;
}
