/* Each loop is written once, with a stride; where a function calls it with the constant 1 it vectorises. */
#include "kernel/row_io.h"

#include "base/dtype.h"

static inline void f32_from_f32(float *to, const float *from, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = from[i * stride];
}

static inline void f32_from_f64(float *to, const double *from, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (float)from[i * stride];
}

static inline void f32_from_bf16(float *to, const uint16_t *from, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = ra_bf16_to_f32(from[i * stride]);
}

static inline void f32_from_f16(float *to, const uint16_t *from, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = ra_f16_to_f32(from[i * stride]);
}

static inline void load_f32(float *to, ra_dtype dtype, const void *from, int64_t stride, int64_t count) {
    switch (dtype) {
    case RA_F32:
        f32_from_f32(to, from, stride, count);
        break;
    case RA_F64:
        f32_from_f64(to, from, stride, count);
        break;
    case RA_BF16:
        f32_from_bf16(to, from, stride, count);
        break;
    case RA_F16:
        f32_from_f16(to, from, stride, count);
        break;
    }
}

void ra_row_load_f32(float *to, ra_dtype dtype, const void *from, int64_t stride, int64_t count) {
    if (stride == 1)
        load_f32(to, dtype, from, 1, count);
    else
        load_f32(to, dtype, from, stride, count);
}

void ra_row_load_f64(double *to, ra_dtype dtype, const void *from, int64_t stride, int64_t count) {
    switch (dtype) {
    case RA_F32:
        for (int64_t i = 0; i < count; i++) to[i] = ((const float *)from)[i * stride];
        break;
    case RA_F64:
        for (int64_t i = 0; i < count; i++) to[i] = ((const double *)from)[i * stride];
        break;
    case RA_BF16:
        for (int64_t i = 0; i < count; i++) to[i] = ra_bf16_to_f32(((const uint16_t *)from)[i * stride]);
        break;
    case RA_F16:
        for (int64_t i = 0; i < count; i++) to[i] = ra_f16_to_f32(((const uint16_t *)from)[i * stride]);
        break;
    }
}

void ra_row_store_f64(ra_dtype dtype, void *to, int64_t stride, const double *from, int64_t count) {
    switch (dtype) {
    case RA_F32:
        for (int64_t i = 0; i < count; i++) ((float *)to)[i * stride] = (float)from[i];
        break;
    case RA_F64:
        for (int64_t i = 0; i < count; i++) ((double *)to)[i * stride] = from[i];
        break;
    case RA_BF16:
        for (int64_t i = 0; i < count; i++) ((uint16_t *)to)[i * stride] = ra_f64_to_bf16(from[i]);
        break;
    case RA_F16:
        for (int64_t i = 0; i < count; i++) ((uint16_t *)to)[i * stride] = ra_f64_to_f16(from[i]);
        break;
    }
}
