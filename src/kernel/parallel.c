/* With one thread no parallel region is opened: a rank that is itself one of many threads must not start a team.
 *
 * OpenMP keeps its threads for the next region. A child of fork() has a copy of that pool without the threads, and
 * would wait for them for ever, whether it was this library or the host program that had used it; so a forked child
 * starts threads of its own for each region. So does a build without OpenMP. */
#include "kernel/parallel.h"

#include <pthread.h>

/* ---- a region's own threads -------------------------------------------------------------------------------------- */

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

static void run_members(int threads, void (*body)(void *user, int thread), void *user) {
    member members[MOST_MEMBERS];
    int started = 1;
    for (; started < threads && started < MOST_MEMBERS; started++) {
        members[started] = (member){.thread = started, .body = body, .user = user};
        if (pthread_create(&members[started].id, NULL, run_member, &members[started]) != 0) break;
    }
    body(user, 0);
    for (int i = 1; i < started; i++) pthread_join(members[i].id, NULL);
}

/* ---- OpenMP's ---------------------------------------------------------------------------------------------------- */

#ifdef _OPENMP
#include <omp.h>

/* Whether this process was forked from one that had this library loaded. Set where there is one thread only. */
static int forked;

static void note_fork(void) {
    forked = 1;
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, note_fork);
}

static void run_team(int threads, void (*body)(void *user, int thread), void *user) {
    if (forked) {
        run_members(threads, body, user);
        return;
    }
#pragma omp parallel num_threads(threads)
    body(user, omp_get_thread_num());
}
#else
static void run_team(int threads, void (*body)(void *user, int thread), void *user) {
    run_members(threads, body, user);
}
#endif

/* ---- regions and loops ------------------------------------------------------------------------------------------- */

void ra_parallel(int threads, void (*body)(void *user, int thread), void *user) {
    if (threads > 1)
        run_team(threads, body, user);
    else
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
