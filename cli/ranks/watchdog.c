#include "ranks/watchdog.h"

#include "files/cleanup.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const double TICK_SECONDS = 0.1;

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
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

static struct timespec after(double seconds) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += (long)(1e9 * seconds);
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

/* Time is counted in ticks, so that the time for which this process itself was stopped is none. */
static void *watch(void *unused) {
    (void)unused;
    pthread_mutex_lock(&watchdog.lock);
    for (double left = watchdog.seconds; watchdog.running && left > 0; left -= TICK_SECONDS) {
        struct timespec until = after(left < TICK_SECONDS ? left : TICK_SECONDS);
        pthread_cond_timedwait(&watchdog.wake, &watchdog.lock, &until);
    }
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
    make_wake();
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
