#include "report/progress.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { TICK_NANOSECONDS = 200000000 };

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    const char *phase;
    int running;
} ticker = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static double now(void) {
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    return (double)clock.tv_sec + 1e-9 * (double)clock.tv_nsec;
}

static struct timespec next_tick(void) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += TICK_NANOSECONDS;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        ++at.tv_sec;
    }
    return at;
}

static void *tick(void *unused) {
    (void)unused;
    double begin = now();
    int shown = 0;
    pthread_mutex_lock(&ticker.lock);
    while (ticker.running) {
        struct timespec at = next_tick();
        pthread_cond_timedwait(&ticker.wake, &ticker.lock, &at);
        double elapsed = now() - begin;
        if (!ticker.running || elapsed < 1) continue;
        fprintf(stderr, "\r\033[Kringattn: %s, %.1f s", ticker.phase, elapsed);
        shown = 1;
    }
    pthread_mutex_unlock(&ticker.lock);
    if (shown) fputs("\r\033[K", stderr);
    return NULL;
}

void progress_begin(const char *phase) {
    if (!isatty(STDERR_FILENO)) return;
    ticker.phase = phase;
    ticker.running = 1;
    if (pthread_create(&ticker.thread, NULL, tick, NULL) != 0) ticker.running = 0;
}

void progress_phase(const char *phase) {
    pthread_mutex_lock(&ticker.lock);
    ticker.phase = phase;
    pthread_mutex_unlock(&ticker.lock);
}

void progress_end(void) {
    pthread_mutex_lock(&ticker.lock);
    int running = ticker.running;
    ticker.running = 0;
    pthread_cond_signal(&ticker.wake);
    pthread_mutex_unlock(&ticker.lock);
    if (running) pthread_join(ticker.thread, NULL);
}
