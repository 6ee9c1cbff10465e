/* With one thread no parallel region is opened: a rank that is itself one of many threads must not start a team.
 *
 * OpenMP keeps its threads for the next region. A child of fork() has a copy of that pool without the threads, and
 * would wait for them for ever, whether it was this library or the host program that had used it; so a forked child
 * starts threads of its own for each region. */
#include "kernel/parallel.h"

#ifdef _OPENMP
#include <omp.h>
#include <pthread.h>

/* Whether this process was forked from one that had this library loaded. Set where there is one thread only. */
static int forked;

static void note_fork(void) {
    forked = 1;
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, note_fork);
}

enum { MOST_MEMBERS = 256 };

typedef struct member {
    pthread_t id;
    int thread;
    void (*body)(void *user, int thread);
    void *user;
} member;

static void *run_member(void *argument) {
    member *m = argument;
    m->body(m->user, m->thread);
    return NULL;
}

static void run_forked(int threads, void (*body)(void *user, int thread), void *user) {
    member members[MOST_MEMBERS];
    int started = 1;
    for (; started < threads && started < MOST_MEMBERS; started++) {
        members[started] = (member){.thread = started, .body = body, .user = user};
        if (pthread_create(&members[started].id, NULL, run_member, &members[started]) != 0) break;
    }
    body(user, 0);
    for (int i = 1; i < started; i++) pthread_join(members[i].id, NULL);
}
#endif

void ra_parallel(int threads, void (*body)(void *user, int thread), void *user) {
#ifdef _OPENMP
    if (threads > 1 && forked) {
        run_forked(threads, body, user);
        return;
    }
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
