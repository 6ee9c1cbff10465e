#include "watchdog.h"

#include "cleanup.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct timespec until;
    double seconds;
    const char *sentence;
    void (*last_try)(void);
    int running;
} watchdog = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void end_process(void) {
    cleanup_remove();
    fprintf(stderr, "ringattn: error: %s (waited %.1f s)\n", watchdog.sentence, watchdog.seconds);
    fflush(stderr);
    if (watchdog.last_try) {
        signal(SIGALRM, SIG_DFL);
        alarm(1);
        watchdog.last_try();
    }
    _exit(1);
}

static void *watch(void *unused) {
    (void)unused;
    int error = 0;
    pthread_mutex_lock(&watchdog.lock);
    while (watchdog.running && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&watchdog.wake, &watchdog.lock, &watchdog.until);
    int late = watchdog.running;
    pthread_mutex_unlock(&watchdog.lock);
    if (late) end_process();
    return NULL;
}

/* On the clock that nobody sets. */
static void make_wake(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&watchdog.wake, &attributes);
    pthread_condattr_destroy(&attributes);
}

void watchdog_begin(double seconds, const char *sentence, void (*last_try)(void)) {
    double whole = floor(seconds);
    make_wake();
    clock_gettime(CLOCK_MONOTONIC, &watchdog.until);
    watchdog.until.tv_sec += (time_t)whole;
    watchdog.until.tv_nsec += (long)(1e9 * (seconds - whole));
    if (watchdog.until.tv_nsec >= 1000000000) {
        watchdog.until.tv_nsec -= 1000000000;
        ++watchdog.until.tv_sec;
    }
    watchdog.seconds = seconds;
    watchdog.sentence = sentence;
    watchdog.last_try = last_try;
    watchdog.running = 1;
    if (pthread_create(&watchdog.thread, NULL, watch, NULL) != 0) watchdog.running = 0;
}

void watchdog_end(void) {
    pthread_mutex_lock(&watchdog.lock);
    int running = watchdog.running;
    watchdog.running = 0;
    pthread_cond_signal(&watchdog.wake);
    pthread_mutex_unlock(&watchdog.lock);
    if (running) pthread_join(watchdog.thread, NULL);
}
