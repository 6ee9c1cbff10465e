/* Random numbers that are the same everywhere for the same seed. */
#ifndef TESTS_SUPPORT_RNG_H
#define TESTS_SUPPORT_RNG_H

#include <stdint.h>

typedef struct rng {
    uint64_t state;
} rng;

/* splitmix64 */
static inline uint64_t rng_next(rng *r) {
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* In [lo, hi], both included. */
static inline int64_t rng_between(rng *r, int64_t lo, int64_t hi) {
    return lo + (int64_t)(rng_next(r) % (uint64_t)(hi - lo + 1));
}

/* True once in n times. */
static inline int rng_one_in(rng *r, int n) {
    return rng_between(r, 1, n) == 1;
}

/* In (-1, 1). */
static inline double rng_real(rng *r) {
    return (double)(int64_t)(rng_next(r) >> 11) / (double)(1ll << 52) - 1;
}

/* Nearly normal: mean 0, variance 1. */
static inline double rng_normal(rng *r) {
    double sum = 0;
    for (int i = 0; i < 6; i++) sum += rng_real(r);
    return sum * 0.70710678118654752;
}

#endif
