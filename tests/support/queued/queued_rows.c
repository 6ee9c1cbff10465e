#include "support/queued/queued_rows.h"

#include <stdlib.h>

const ra_kernel *queued_inner_kernel(void) {
    return ra_kernel_at(1);
}

job queued_job_of(const ra_shape *shape, const ra_context *context, void (*run)(const job *)) {
    if (!context->stream || context->progress) abort();
    return (job){.run = run, .shape = *shape, .context = {.threads = 1, .scratch = context->scratch}};
}

static void run_begin(const job *j) {
    queued_inner_kernel()->begin(&j->shape, j->state, &j->context);
}

void queued_rows_begin(const ra_shape *shape, ra_state state, const ra_context *context) {
    job j = queued_job_of(shape, context, run_begin);
    j.state = state;
    queued_put(context->stream, &j);
}

static void run_merge(const job *j) {
    queued_inner_kernel()->merge(&j->shape, j->state, j->rows, j->other, &j->context);
}

void queued_rows_merge(const ra_shape *shape, ra_state state, ra_span rows, ra_state from, const ra_context *context) {
    job j = queued_job_of(shape, context, run_merge);
    j.state = state, j.rows = rows, j.other = from;
    queued_put(context->stream, &j);
}

static void run_finish(const job *j) {
    queued_inner_kernel()->finish(&j->shape, j->state, j->a, j->b, &j->context);
}

void queued_rows_finish(const ra_shape *shape, ra_state state, ra_view o_out, ra_view lse_out,
                        const ra_context *context) {
    job j = queued_job_of(shape, context, run_finish);
    j.state = state, j.a = o_out, j.b = lse_out;
    queued_put(context->stream, &j);
}

static void run_delta(const job *j) {
    queued_inner_kernel()->delta(&j->shape, j->a, j->b, j->to, &j->context);
}

void queued_rows_delta(const ra_shape *shape, ra_view dout, ra_view o, void *delta_out, const ra_context *context) {
    job j = queued_job_of(shape, context, run_delta);
    j.a = dout, j.b = o, j.to = delta_out;
    queued_put(context->stream, &j);
}

static void run_carry(const job *j) {
    queued_inner_kernel()->carry(&j->shape, j->state, j->a, j->to, j->to_too, &j->context);
}

void queued_rows_carry(const ra_shape *shape, ra_state state, ra_view dout, void *lse_out, void *delta_out,
                       const ra_context *context) {
    job j = queued_job_of(shape, context, run_carry);
    j.state = state, j.a = dout, j.to = lse_out, j.to_too = delta_out;
    queued_put(context->stream, &j);
}

static void run_pack(const job *j) {
    queued_inner_kernel()->pack(&j->shape, j->to, j->a, j->b, j->rows, j->heads, &j->context);
}

void queued_rows_pack(const ra_shape *shape, void *to, ra_view k, ra_view v, ra_span rows, ra_span heads,
                      const ra_context *context) {
    job j = queued_job_of(shape, context, run_pack);
    j.to = to, j.a = k, j.b = v, j.rows = rows, j.heads = heads;
    queued_put(context->stream, &j);
}

static void run_add_rows(const job *j) {
    queued_inner_kernel()->add_rows(&j->shape, j->a, j->b, j->from, j->rows, j->heads, &j->context);
}

void queued_rows_add_rows(const ra_shape *shape, ra_view dk, ra_view dv, const void *from, ra_span rows, ra_span heads,
                          const ra_context *context) {
    job j = queued_job_of(shape, context, run_add_rows);
    j.a = dk, j.b = dv, j.from = from, j.rows = rows, j.heads = heads;
    queued_put(context->stream, &j);
}

static void run_add(const job *j) {
    queued_inner_kernel()->add(&j->shape, j->to, j->from, j->count, &j->context);
}

void queued_rows_add(const ra_shape *shape, void *to, const void *from, int64_t count, const ra_context *context) {
    job j = queued_job_of(shape, context, run_add);
    j.to = to, j.from = from, j.count = count;
    queued_put(context->stream, &j);
}

static void run_store(const job *j) {
    queued_inner_kernel()->store(&j->shape, j->a, j->b, j->count, j->more, j->width, &j->context);
}

void queued_rows_store(const ra_shape *shape, ra_view to, ra_view from, int64_t rows, int64_t heads, int64_t width,
                       const ra_context *context) {
    job j = queued_job_of(shape, context, run_store);
    j.a = to, j.b = from, j.count = rows, j.more = heads, j.width = width;
    queued_put(context->stream, &j);
}

static void run_fill(const job *j) {
    queued_inner_kernel()->fill(&j->shape, j->a, j->count, j->more, j->width, j->value, &j->context);
}

void queued_rows_fill(const ra_shape *shape, ra_view to, int64_t rows, int64_t heads, int64_t width, double value,
                      const ra_context *context) {
    job j = queued_job_of(shape, context, run_fill);
    j.a = to, j.count = rows, j.more = heads, j.width = width, j.value = value;
    queued_put(context->stream, &j);
}
