#include "transport/ucx/ucx_transport.h"

#include "base/clock.h"

#include <sched.h>
#include <time.h>

/* As over MPI (mpi_wait.c): a message that is about to come is met by yielding, which costs no latency on a core of
 * one's own; a peer that is far behind is waited for in short sleeps, which leave the core to whoever computes. */
static const double YIELD_SECONDS = 0.002;
static const struct timespec NAP = {.tv_nsec = 50000};

ra_ucx_wait ra_ucx_wait_start(double seconds) {
    double start = ra_clock();
    return (ra_ucx_wait){.until = start + seconds, .yield_until = start + YIELD_SECONDS};
}

int ra_ucx_wait_pause(ra_ucx_wait *wait, int progressed) {
    double t = ra_clock();
    if (t >= wait->until) return 0;
    if (progressed) wait->yield_until = t + YIELD_SECONDS;
    if (t < wait->yield_until)
        sched_yield();
    else
        nanosleep(&NAP, NULL);
    return 1;
}
