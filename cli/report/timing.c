#include "report/timing.h"

#include <time.h>

static double seconds(clockid_t which) {
    struct timespec clock;
    clock_gettime(which, &clock);
    return (double)clock.tv_sec + 1e-9 * (double)clock.tv_nsec;
}

double timing_wall(void) {
    return seconds(CLOCK_MONOTONIC);
}

double timing_cpu(void) {
    return seconds(CLOCK_PROCESS_CPUTIME_ID);
}
