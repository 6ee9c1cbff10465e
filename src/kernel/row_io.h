/* One row of a view at a time: to the type that a kernel computes in, and back. */
#ifndef RA_KERNEL_ROW_IO_H
#define RA_KERNEL_ROW_IO_H

#include "kernel/kernel.h"

/* Element [b, row, h, 0] of a view whose elements have `bytes` bytes. */
static inline void *ra_view_row(ra_view view, size_t bytes, int64_t b, int64_t row, int64_t h) {
    return (char *)view.data + (b * view.batch + row * view.row + h * view.head) * (int64_t)bytes;
}

/* Where a row is in an array [states, batch, heads_q, rows_q]: m, l, lse, delta. */
static inline int64_t ra_row_index(const ra_shape *shape, int64_t state, int64_t b, int64_t h, int64_t row) {
    return ((state * shape->batch + b) * shape->heads_q + h) * shape->rows_q + row;
}

/* Which head of a part's views key/value head g is. */
static inline int64_t ra_part_head(const ra_kv_rows *part, int64_t g) {
    return (g - part->heads.first) / part->heads.stride;
}

/* The o of state s. */
static inline ra_view ra_state_o(const ra_shape *shape, const ra_state *state, int64_t s) {
    ra_view o = state->o;
    o.data = (char *)o.data + s * state->o_state * (int64_t)ra_shape_acc_bytes(shape);
    return o;
}

/* to[i] = from[i * stride] for 0 <= i < count, from being of dtype. */
void ra_row_load_f32(float *to, ra_dtype dtype, const void *from, int64_t stride, int64_t count);
void ra_row_load_f64(double *to, ra_dtype dtype, const void *from, int64_t stride, int64_t count);

/* to[i * stride] = from[i], to being of dtype; rounded once, to nearest even. */
void ra_row_store_f64(ra_dtype dtype, void *to, int64_t stride, const double *from, int64_t count);

#endif
