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

static int at_least_one(int n) {
    return n > 0 ? n : 1;
}

int ra_core_share(int process_ranks, int machine_ranks) {
    int cores = allowed_cores();
    const char *limit = getenv("OMP_NUM_THREADS");
    int wanted = limit ? atoi(limit) : 0;
    if (wanted > 0 && wanted < cores) cores = wanted;
    int of_process = at_least_one(cores / process_ranks);
    int of_machine = at_least_one((int)sysconf(_SC_NPROCESSORS_ONLN) / machine_ranks);
    return of_process < of_machine ? of_process : of_machine;
}
