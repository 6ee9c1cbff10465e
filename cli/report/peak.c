/* This file is compiled with -O3 -ffp-contract=fast: x * a + b must become one instruction where there is one. */
#include "report/peak.h"

#include "report/timing.h"

#include <pthread.h>

enum { CHAINS_MAX = 12, ROUNDS = 1 << 15, LANES = 16, THREADS_MAX = 256 };
#define PEAK_SECONDS 0.1

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* Independent chains of x = x * a + b hide the latency; as many as fit the registers, or they would be spilled. Each
 * starts with another value: of equal chains the compiler would compute one. */
static inline __attribute__((always_inline)) float spin(int chains) {
    lanes x[CHAINS_MAX] = {0}, a = {0}, b = {0}, sum = {0};
    a += 0.999f;
    b += 0.001f;
    for (int i = 0; i < chains; ++i) x[i] += 0.01f * (float)(i + 1);
    for (int round = 0; round < ROUNDS; ++round)
        for (int i = 0; i < chains; ++i) x[i] = x[i] * a + b;
    for (int i = 0; i < chains; ++i) sum += x[i];
    return sum[0];
}

static float spin_plain(void) {
    return spin(3);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static float spin_avx2(void) {
    return spin(6);
}

__attribute__((target("avx512f"))) static float spin_avx512(void) {
    return spin(12);
}
#endif

typedef struct spinner {
    float (*run)(void);
    int chains;
} spinner;

static spinner best_spinner(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return (spinner){spin_avx512, 12};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return (spinner){spin_avx2, 6};
#endif
    return (spinner){spin_plain, 3};
}

typedef struct worker {
    pthread_t thread;
    spinner spin;
    double gflops;
    volatile float sink;
} worker;

static void *work(void *user) {
    worker *w = user;
    double begin = timing_wall(), end = begin;
    int64_t runs = 0;
    for (; end - begin < PEAK_SECONDS; ++runs) {
        w->sink = w->spin.run();
        end = timing_wall();
    }
    w->gflops = 2e-9 * LANES * w->spin.chains * ROUNDS * (double)runs / (end - begin);
    return NULL;
}

double peak_gflops(ra_dtype dtype, int threads) {
    worker workers[THREADS_MAX];
    int started = 0;
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    for (; started < threads; ++started) {
        workers[started].spin = best_spinner();
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0) break;
    }
    double sum = 0;
    for (int i = 0; i < started; ++i) {
        pthread_join(workers[i].thread, NULL);
        sum += workers[i].gflops;
    }
    return dtype == RA_F64 ? sum / 2 : sum;
}
