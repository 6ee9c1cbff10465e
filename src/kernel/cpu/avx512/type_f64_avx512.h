/* The bodies for double in vectors of 64 bytes. */
#ifndef RA_KERNEL_AVX512_TYPE_H
#define RA_KERNEL_AVX512_TYPE_H

#include "kernel/row_io.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define REAL double
#define NAME(stem) ra_avx512_##stem##_f64
#define LOAD_ROW ra_row_load_f64

enum { LANES = 8, MICRO_ROWS = 12, MICRO_VECTORS = 2 };

typedef double vec __attribute__((vector_size(64), may_alias));

static inline vec splat(double x) {
    return (vec)_mm512_set1_pd(x);
}

static inline vec larger(vec x, vec y) {
    return (vec)_mm512_max_pd((__m512d)x, (__m512d)y);
}

static inline vec vec_exp(vec x) {
    for (int i = 0; i < LANES; i++) x[i] = exp(x[i]);
    return x;
}

#endif
