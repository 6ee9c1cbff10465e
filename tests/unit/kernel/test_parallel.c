/* Threads inside a kernel, also in a child of fork(), where the pool of the parent's threads is no more. */
#include "support/cmocka.h"

#include "kernel/parallel.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, COUNT = 1000 };

typedef struct work {
    int64_t next;
    int64_t calls[THREADS];
    int done[COUNT];
    pthread_t caller;
    int caller_is_first;
} work;

static void take_all(void *user, int thread) {
    work *w = user;
    __atomic_fetch_add(&w->calls[thread], 1, __ATOMIC_RELAXED);
    if (thread == 0) w->caller_is_first = pthread_equal(pthread_self(), w->caller);
    for (int64_t i; (i = ra_take(&w->next)) < COUNT;) w->done[i]++;
}

/* Whether every piece was done once, by threads each called once, of which the first is the caller. */
static int region_is_right(int threads) {
    work w = {.caller = pthread_self()};
    ra_parallel(threads, take_all, &w);
    for (int i = 0; i < COUNT; i++)
        if (w.done[i] != 1) return 0;
    for (int t = 0; t < THREADS; t++)
        if (w.calls[t] > 1) return 0;
    return w.calls[0] == 1 && w.caller_is_first;
}

static void meet(void *user, int thread) {
    int *there = user;
    (void)thread;
    __atomic_fetch_add(there, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 2000 && __atomic_load_n(there, __ATOMIC_SEQ_CST) < 2; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* How many of two threads take part where both must meet: two, or one where the library has no threads. */
static int meeting(void) {
    int there = 0;
    ra_parallel(2, meet, &there);
    return there;
}

static void test_regions(void **state) {
    (void)state;
    for (int threads = 1; threads <= THREADS; threads++) assert_true(region_is_right(threads));
}

static int child_code(int threads_together) {
    alarm(30);
    for (int round = 0; round < 3; round++)
        for (int threads = 1; threads <= THREADS; threads++)
            if (!region_is_right(threads)) return 1;
    return meeting() == threads_together ? 0 : 2;
}

static void test_a_forked_child(void **state) {
    (void)state;
    int status = 0, threads_together = meeting();
    assert_true(region_is_right(THREADS)); /* the parent's pool is there from here on */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(child_code(threads_together));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) fail_msg("the child was ended by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(region_is_right(THREADS));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_a_forked_child),
    };
    return cmocka_run_group_tests_name("parallel", tests, NULL, NULL);
}
