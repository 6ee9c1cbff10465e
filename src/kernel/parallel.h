/* Threads inside a kernel: the one place that knows OpenMP. Without it, everything runs on the calling thread. */
#ifndef RA_KERNEL_PARALLEL_H
#define RA_KERNEL_PARALLEL_H

#include "kernel/kernel.h"

/* Calls body(user, thread) for threads 0 to at most threads - 1 at the same time and waits for them; thread 0 is the
 * calling thread. There may be fewer, so a body takes its work from what is left, not from its own number. */
void ra_parallel(int threads, void (*body)(void *user, int thread), void *user);

/* Calls body(user, index) for every index below count, in any order and at the same time. */
void ra_parallel_for(int threads, int64_t count, void (*body)(void *user, int64_t index), void *user);

/* The next of the numbers 0, 1, 2, ...: each is given to one thread. */
int64_t ra_take(int64_t *counter);

/* Lets whoever launched the kernel see to other work; only thread 0 does. */
static inline void ra_pulse(const ra_launch *launch, int thread) {
    if (thread == 0 && launch->pulse) launch->pulse(launch->pulse_user);
}

#endif
