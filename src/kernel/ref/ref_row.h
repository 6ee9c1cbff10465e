/* What forward and backward of the ref kernel share: where a head's keys are, and rows as doubles. */
#ifndef RA_KERNEL_REF_ROW_H
#define RA_KERNEL_REF_ROW_H

#include "kernel/kernel.h"
#include "kernel/row_io.h"

/* Rows of x, of dtype, as doubles. */
static inline void ra_ref_load(double *to, ra_dtype dtype, ra_view x, int64_t b, int64_t row, int64_t h,
                               int64_t width) {
    ra_row_load_f64(to, dtype, ra_view_row(x, ra_dtype_bytes(dtype), b, row, h), x.dim, width);
}

/* Which head of the views of k and v query head h reads. */
static inline int64_t ra_ref_kv_head(const ra_shape *shape, const ra_kv_rows *kv, int64_t h) {
    return ra_part_head(kv, h / (shape->heads_q / shape->heads_kv));
}

static inline double ra_ref_dot(const double *x, const double *y, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i] * y[i];
    return sum;
}

/* An element of an array of the accumulation type. */
static inline double ra_ref_get(const ra_shape *shape, const void *array, int64_t i) {
    return shape->dtype == RA_F64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

#endif
