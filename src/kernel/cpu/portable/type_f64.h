/* The bodies for double, likewise. */
#ifndef RA_KERNEL_PORTABLE_TYPE_H
#define RA_KERNEL_PORTABLE_TYPE_H

#include "kernel/row_io.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define REAL double
#define NAME(stem) ra_portable_##stem##_f64
#define LOAD_ROW ra_row_load_f64

enum { VECTOR_BYTES = 16, LANES = 2, MICRO_ROWS = 4, MICRO_VECTORS = 2 };

typedef double vec __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef int64_t mask_vec __attribute__((vector_size(VECTOR_BYTES), may_alias));

static inline vec splat(double x) {
    return x - (vec){0};
}

static inline vec larger(vec x, vec y) {
    mask_vec first = x > y;
    return (vec)(((mask_vec)x & first) | ((mask_vec)y & ~first));
}

static inline vec vec_exp(vec x) {
    for (int i = 0; i < LANES; i++) x[i] = exp(x[i]);
    return x;
}

/* LANES elements of a row of dtype, from the one numbered `at`. */
static inline vec load_vec(ra_dtype dtype, const void *row, int64_t at) {
    vec x;
    (void)dtype;
    memcpy(&x, (const double *)row + at, sizeof x);
    return x;
}

#endif
