/* Threads inside a kernel: the one place that knows OpenMP. Without it, each call starts threads of its own. */
#ifndef RA_KERNEL_PARALLEL_H
#define RA_KERNEL_PARALLEL_H

#include "kernel/kernel.h"

/* Calls body(user, thread) for threads 0 to at most threads - 1 at the same time and waits for them; thread 0 is the
 * calling thread. There may be fewer, so a body takes its work from what is left, not from its own number. */
void ra_parallel(int threads, void (*body)(void *user, int thread), void *user);

/* Calls body(user, index) for every index from 0 to count - 1, in any order and at the same time. */
void ra_parallel_for(int threads, int64_t count, void (*body)(void *user, int64_t index), void *user);

/* The next of the numbers 0, 1, 2, ...: each is given to one thread. */
int64_t ra_take(int64_t *counter);

/* Lets the caller of the kernel see to other work; only thread 0 does. */
static inline void ra_context_progress(const ra_context *context, int thread) {
    if (thread == 0 && context->progress && context->progress(context->progress_user))
        __atomic_store_n(context->stop, 1, __ATOMIC_RELAXED);
}

/* Whether what the call computes is not wanted any more. */
static inline int ra_context_stops(const ra_context *context) {
    return context->stop && __atomic_load_n(context->stop, __ATOMIC_RELAXED);
}

/* ra_take, or a number beyond all others once the call is to end. */
static inline int64_t ra_context_take(const ra_context *context, int64_t *counter) {
    return ra_context_stops(context) ? INT64_MAX : ra_take(counter);
}

#endif
