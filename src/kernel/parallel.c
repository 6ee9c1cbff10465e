/* With one thread no parallel region is opened: a rank that is itself one of many threads must not start a team. */
#include "kernel/parallel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

void ra_parallel(int threads, void (*body)(void *user, int thread), void *user) {
#ifdef _OPENMP
    if (threads > 1) {
#pragma omp parallel num_threads(threads)
        body(user, omp_get_thread_num());
        return;
    }
#endif
    (void)threads;
    body(user, 0);
}

int64_t ra_take(int64_t *counter) {
    return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

typedef struct for_loop {
    int64_t next, count;
    void (*body)(void *user, int64_t index);
    void *user;
} for_loop;

static void run_loop(void *user, int thread) {
    for_loop *loop = user;
    (void)thread;
    for (int64_t i; (i = ra_take(&loop->next)) < loop->count;) loop->body(loop->user, i);
}

void ra_parallel_for(int threads, int64_t count, void (*body)(void *user, int64_t index), void *user) {
    for_loop loop = {0, count, body, user};
    ra_parallel(count < threads ? (int)count : threads, run_loop, &loop);
}
