#include "mpi_transport.h"

#include <sched.h>
#include <time.h>

/* A message that is about to come is met by yielding, which costs no latency on a core of one's own. Where ranks share
 * cores, or the peer is far behind, sleeping leaves the core to whoever computes; the sleep is short, because MPI moves
 * a large message only while it is called. */
static const double YIELD_SECONDS = 0.002;
static const struct timespec NAP = {.tv_nsec = 50000};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

ra_mpi_wait ra_mpi_wait_start(double seconds) {
    double start = now();
    return (ra_mpi_wait){.until = start + seconds, .yield_until = start + YIELD_SECONDS};
}

int ra_mpi_wait_pause(ra_mpi_wait *wait, int progressed) {
    double t = now();
    if (t >= wait->until) return 0;
    if (progressed) wait->yield_until = t + YIELD_SECONDS;
    if (t < wait->yield_until)
        sched_yield();
    else
        nanosleep(&NAP, NULL);
    return 1;
}
