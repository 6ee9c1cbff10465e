/* The row operations of the device of queues (queued.h): each becomes a job on the context's stream, which calls the
 * same operation of a CPU kernel; and what its passes have in common with that. */
#ifndef TESTS_SUPPORT_QUEUED_ROWS_H
#define TESTS_SUPPORT_QUEUED_ROWS_H

#include "support/queued/queued_stream.h"

/* The CPU kernel that jobs call. portable: it computes every type and is quick enough. */
const ra_kernel *queued_inner_kernel(void);

/* Device kernels get no thread, no progress to make; the scratch is the plan's. */
job queued_job_of(const ra_shape *shape, const ra_context *context, void (*run)(const job *));

void queued_rows_begin(const ra_shape *shape, ra_state state, const ra_context *context);
void queued_rows_merge(const ra_shape *shape, ra_state state, ra_span rows, ra_state from, const ra_context *context);
void queued_rows_finish(const ra_shape *shape, ra_state state, ra_view o_out, ra_view lse_out,
                        const ra_context *context);
void queued_rows_delta(const ra_shape *shape, ra_view dout, ra_view o, void *delta_out, const ra_context *context);
void queued_rows_carry(const ra_shape *shape, ra_state state, ra_view dout, void *lse_out, void *delta_out,
                       const ra_context *context);
void queued_rows_pack(const ra_shape *shape, void *to, ra_view k, ra_view v, ra_span rows, ra_span heads,
                      const ra_context *context);
void queued_rows_add_rows(const ra_shape *shape, ra_view dk, ra_view dv, const void *from, ra_span rows, ra_span heads,
                          const ra_context *context);
void queued_rows_add(const ra_shape *shape, void *to, const void *from, int64_t count, const ra_context *context);
void queued_rows_store(const ra_shape *shape, ra_view to, ra_view from, int64_t rows, int64_t heads, int64_t width,
                       const ra_context *context);
void queued_rows_fill(const ra_shape *shape, ra_view to, int64_t rows, int64_t heads, int64_t width, double value,
                      const ra_context *context);

#endif
