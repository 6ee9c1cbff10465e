/* The bodies for float in vectors of 64 bytes. */
#ifndef RA_KERNEL_AVX512_TYPE_H
#define RA_KERNEL_AVX512_TYPE_H

#include "kernel/cpu/avx512/vector_f32_avx512.h"
#include "kernel/row_io.h"

#include <math.h>
#include <stdint.h>

#define REAL float
#define NAME(stem) ra_avx512_##stem##_f32
#define LOAD_ROW ra_row_load_f32

/* 24 of the 32 registers are sums. */
enum { MICRO_ROWS = 12, MICRO_VECTORS = 2 };

/* LANES elements of a row of dtype, from the one numbered `at`. */
static inline vec load_vec(ra_dtype dtype, const void *row, int64_t at) {
    if (dtype == RA_F32) return (vec)_mm512_loadu_ps((const float *)row + at);
    __m256i half = _mm256_loadu_si256((const __m256i *)((const uint16_t *)row + at));
    if (dtype == RA_F16) return (vec)_mm512_cvtph_ps(half);
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

#endif
