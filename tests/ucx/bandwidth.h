/* What ucx_bandwidth and mpi_bandwidth have in common: two processes exchange messages of growing sizes, each sending
 * and receiving at once as in a ring, and process 0 prints one line per size: bytes and bytes per second each way. */
#ifndef RA_TESTS_BANDWIDTH_H
#define RA_TESTS_BANDWIDTH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct exchanger {
    int rank;
    void *self;
    void (*exchange)(void *self, char *out, char *in, size_t bytes);
} exchanger;

static inline double bandwidth_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double measure(const exchanger *e, char *out, char *in, size_t bytes) {
    int repeats = (int)(((size_t)64 << 20) / bytes);
    repeats = repeats < 4 ? 4 : repeats > 400 ? 400 : repeats;
    for (int i = 0; i < 3; i++) e->exchange(e->self, out, in, bytes);
    double start = bandwidth_clock();
    for (int i = 0; i < repeats; i++) e->exchange(e->self, out, in, bytes);
    return (double)bytes * repeats / (bandwidth_clock() - start);
}

static inline int run_bandwidth(const exchanger *e) {
    const size_t largest = (size_t)64 << 20;
    char *out = malloc(largest), *in = malloc(largest);
    if (!out || !in) return 1;
    memset(out, 1, largest);
    memset(in, 2, largest);
    for (size_t bytes = 64 << 10; bytes <= largest; bytes *= 4) {
        double rate = measure(e, out, in, bytes);
        if (e->rank == 0) printf("%zu %.6g\n", bytes, rate);
    }
    fflush(stdout);
    free(out);
    free(in);
    return 0;
}

#endif
