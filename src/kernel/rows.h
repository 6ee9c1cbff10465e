/* The row operations of the kernel table, for every CPU kernel: all but forward and backward. Contracts in kernel.h. */
#ifndef RA_KERNEL_ROWS_H
#define RA_KERNEL_ROWS_H

#include "kernel/kernel.h"

void ra_rows_begin(const ra_shape *shape, ra_state state, const ra_context *context);
void ra_rows_merge(const ra_shape *shape, ra_state state, ra_span rows, ra_state from, const ra_context *context);
void ra_rows_finish(const ra_shape *shape, ra_state state, ra_view o_out, ra_view lse_out, const ra_context *context);
void ra_rows_delta(const ra_shape *shape, ra_view dout, ra_view o, void *delta_out, const ra_context *context);
void ra_rows_carry(const ra_shape *shape, ra_state state, ra_view dout, void *lse_out, void *delta_out,
                   const ra_context *context);
void ra_rows_pack(const ra_shape *shape, void *to, ra_view k, ra_view v, ra_span rows, ra_span heads,
                  const ra_context *context);
void ra_rows_add_rows(const ra_shape *shape, ra_view dk, ra_view dv, const void *from, ra_span rows, ra_span heads,
                      const ra_context *context);
void ra_rows_add(const ra_shape *shape, void *to, const void *from, int64_t count, const ra_context *context);
void ra_rows_store(const ra_shape *shape, ra_view to, ra_view from, int64_t rows, int64_t heads, int64_t width,
                   const ra_context *context);
void ra_rows_fill(const ra_shape *shape, ra_view to, int64_t rows, int64_t heads, int64_t width, double value,
                  const ra_context *context);

/* The accumulation type of a shape. */
static inline ra_dtype ra_acc_dtype(const ra_shape *shape) {
    return shape->dtype == RA_F64 ? RA_F64 : RA_F32;
}

#endif
