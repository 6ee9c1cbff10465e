/* Row operations on state and outputs. They touch every row once, so a row passes through a small buffer of doubles:
 * one code path for any two types, and what is written has been rounded once.
 *
 * Work is dealt to threads in chunks of rows of one (batch, head):
 *
 *   chunk:   0        1        2      3        4        5
 *          |256 rows|256 rows|rest| |256 rows|256 rows|rest| ...
 *          └─ batch 0, head 0 ────┘ └─ batch 0, head 1 ────┘
 */
#include "kernel/rows.h"

#include "kernel/parallel.h"
#include "kernel/row_io.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 256 };

/* What the operations need of their arguments; each uses some of it. */
typedef struct row_job {
    const ra_shape *shape;
    ra_state state;
    ra_view to, from, other;
    void *array, *second; /* C-order sides */
    ra_span rows, heads;
    int64_t width; /* elements of a row */
    double value;
    void (*row)(const struct row_job *job, int64_t b, int64_t row, int64_t head);
} row_job;

static int64_t chunks_of(int64_t rows) {
    return (rows + CHUNK - 1) / CHUNK;
}

static void run_chunk(void *user, int64_t index) {
    const row_job *job = user;
    int64_t chunks = chunks_of(job->rows.count), batch = job->shape->batch;
    int64_t head = index / chunks / batch, b = index / chunks % batch;
    int64_t first = index % chunks * CHUNK;
    int64_t last = first + CHUNK < job->rows.count ? first + CHUNK : job->rows.count;
    for (int64_t row = first; row < last; row++) job->row(job, b, row, head);
}

/* job->row for every batch, index of rows and index of heads. A few rows are done before other threads have woken. */
static void run_rows(const row_job *job, const ra_context *context) {
    int64_t bands = job->heads.count * job->shape->batch;
    int few = bands * job->rows.count < 2 * CHUNK;
    ra_parallel_for(few ? 1 : context->threads, bands * chunks_of(job->rows.count), run_chunk, (void *)job);
}

static ra_span first_n(int64_t count) {
    return (ra_span){0, 1, count};
}

static row_job query_job(const ra_shape *shape) {
    return (row_job){
        .shape = shape, .rows = first_n(shape->rows_q), .heads = first_n(shape->heads_q), .width = shape->dim_v};
}

static double load_one(const ra_shape *shape, void *array, int64_t i) {
    return shape->dtype == RA_F64 ? ((double *)array)[i] : (double)((float *)array)[i];
}

static void store_one(const ra_shape *shape, void *array, int64_t i, double x) {
    if (shape->dtype == RA_F64)
        ((double *)array)[i] = x;
    else
        ((float *)array)[i] = (float)x;
}

/* A row of a view as doubles, and back. */
static void load(double *to, ra_dtype dtype, ra_view view, int64_t b, int64_t row, int64_t head, int64_t width) {
    ra_row_load_f64(to, dtype, ra_view_row(view, ra_dtype_bytes(dtype), b, row, head), view.dim, width);
}

static void store(ra_dtype dtype, ra_view view, int64_t b, int64_t row, int64_t head, const double *from,
                  int64_t width) {
    ra_row_store_f64(dtype, ra_view_row(view, ra_dtype_bytes(dtype), b, row, head), view.dim, from, width);
}

/* ---- state ----------------------------------------------------------------------------------------------- */

static void begin_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    static const double zero[RA_MAX_DIM];
    for (int64_t s = 0; s < job->shape->states; s++) {
        int64_t i = ra_row_index(job->shape, s, b, head, row);
        store(ra_acc_dtype(job->shape), ra_state_o(job->shape, &job->state, s), b, row, head, zero, job->width);
        store_one(job->shape, job->state.m, i, -INFINITY);
        store_one(job->shape, job->state.l, i, 0);
    }
}

void ra_rows_begin(const ra_shape *shape, ra_state state, const ra_context *context) {
    row_job job = query_job(shape);
    job.state = state;
    job.row = begin_row;
    run_rows(&job, context);
}

/* o [width] = the output of softmax s; returns its lse. l is 0 where nothing was seen, at least 1 where something was,
 * and NaN where some score was NaN or +inf. */
static double softmax_row(const row_job *job, int64_t s, int64_t b, int64_t row, int64_t head, double *o) {
    int64_t i = ra_row_index(job->shape, s, b, head, row);
    double m = load_one(job->shape, job->state.m, i), l = load_one(job->shape, job->state.l, i);
    if (l == 0) {
        memset(o, 0, (size_t)job->width * sizeof *o);
        return -INFINITY;
    }
    load(o, ra_acc_dtype(job->shape), ra_state_o(job->shape, &job->state, s), b, row, head, job->width);
    for (int64_t d = 0; d < job->width; d++) o[d] = o[d] / l;
    return m + log(l);
}

/* log(e^a + e^b), neither of which is +inf. */
static double log_add(double a, double b) {
    double most = a > b ? a : b, least = a > b ? b : a;
    if (isnan(a) || isnan(b)) return NAN;
    return most == -INFINITY ? most : most + log1p(exp(least - most));
}

static void finish_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    double sum[RA_MAX_DIM], o[RA_MAX_DIM];
    double lse = softmax_row(job, 0, b, row, head, sum);
    for (int64_t s = 1; s < job->shape->states; s++) {
        lse = log_add(lse, softmax_row(job, s, b, row, head, o));
        for (int64_t d = 0; d < job->width; d++) sum[d] += o[d];
    }
    for (int64_t d = 0; d < job->width; d++) sum[d] *= job->shape->weight;
    store(job->shape->out_dtype, job->to, b, row, head, sum, job->width);
    if (job->other.data) store(ra_acc_dtype(job->shape), job->other, b, row, head, &lse, 1);
}

void ra_rows_finish(const ra_shape *shape, ra_state state, ra_view o_out, ra_view lse_out, const ra_context *context) {
    row_job job = query_job(shape);
    job.state = state;
    job.to = o_out;
    job.other = lse_out;
    job.row = finish_row;
    run_rows(&job, context);
}

/* ---- delta ----------------------------------------------------------------------------------------------- */

static double dot(const double *x, const double *y, int64_t count) {
    double sum = 0;
    for (int64_t d = 0; d < count; d++) sum += x[d] * y[d];
    return sum;
}

static void delta_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    double dout[RA_MAX_DIM], o[RA_MAX_DIM];
    load(dout, job->shape->dtype, job->from, b, row, head, job->width);
    load(o, job->shape->out_dtype, job->other, b, row, head, job->width);
    store_one(job->shape, job->array, ra_row_index(job->shape, 0, b, head, row),
              dot(dout, o, job->width) / job->shape->weight);
}

void ra_rows_delta(const ra_shape *shape, ra_view dout, ra_view o, void *delta_out, const ra_context *context) {
    row_job job = query_job(shape);
    job.from = dout;
    job.other = o;
    job.array = delta_out;
    job.row = delta_row;
    run_rows(&job, context);
}

static void carry_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    double dout[RA_MAX_DIM], o[RA_MAX_DIM];
    load(dout, job->shape->dtype, job->from, b, row, head, job->width);
    for (int64_t s = 0; s < job->shape->states; s++) {
        int64_t i = ra_row_index(job->shape, s, b, head, row);
        store_one(job->shape, job->array, i, softmax_row(job, s, b, row, head, o));
        store_one(job->shape, job->second, i, dot(dout, o, job->width));
    }
}

void ra_rows_carry(const ra_shape *shape, ra_state state, ra_view dout, void *lse_out, void *delta_out,
                   const ra_context *context) {
    row_job job = query_job(shape);
    job.state = state;
    job.from = dout;
    job.array = lse_out;
    job.second = delta_out;
    job.row = carry_row;
    run_rows(&job, context);
}

/* ---- records --------------------------------------------------------------------------------------------- */

/* Elements before [head, row, b] of records [heads.count, rows.count, batch, dim + dim_v]. */
static int64_t record_offset(const row_job *job, int64_t b, int64_t row, int64_t head) {
    return ((head * job->rows.count + row) * job->shape->batch + b) * (job->shape->dim + job->shape->dim_v);
}

static void gather(char *to, ra_view from, size_t bytes, int64_t b, int64_t row, int64_t head, int64_t count) {
    const char *first = ra_view_row(from, bytes, b, row, head);
    if (from.dim == 1) {
        memcpy(to, first, (size_t)count * bytes);
        return;
    }
    for (int64_t i = 0; i < count; i++) memcpy(to + i * (int64_t)bytes, first + i * from.dim * (int64_t)bytes, bytes);
}

static void pack_record(const row_job *job, int64_t b, int64_t row, int64_t head) {
    size_t bytes = ra_dtype_bytes(job->shape->dtype);
    int64_t at = ra_span_at(job->rows, row), h = ra_span_at(job->heads, head), dim = job->shape->dim;
    char *to = (char *)job->array + record_offset(job, b, row, head) * (int64_t)bytes;
    gather(to, job->from, bytes, b, at, h, dim);
    gather(to + dim * (int64_t)bytes, job->other, bytes, b, at, h, job->shape->dim_v);
}

/* Row by row with all its heads: they usually lie side by side where they come from, and reading in order is what
 * counts when every byte is touched once. */
static void pack_chunk(void *user, int64_t index) {
    const row_job *job = user;
    int64_t first = index * CHUNK, last = first + CHUNK < job->rows.count ? first + CHUNK : job->rows.count;
    for (int64_t b = 0; b < job->shape->batch; b++)
        for (int64_t row = first; row < last; row++)
            for (int64_t head = 0; head < job->heads.count; head++) pack_record(job, b, row, head);
}

void ra_rows_pack(const ra_shape *shape, void *to, ra_view k, ra_view v, ra_span rows, ra_span heads,
                  const ra_context *context) {
    row_job job = {.shape = shape, .from = k, .other = v, .array = to, .rows = rows, .heads = heads};
    int few = rows.count * heads.count * shape->batch < 2 * CHUNK;
    ra_parallel_for(few ? 1 : context->threads, chunks_of(rows.count), pack_chunk, &job);
}

static void add_f32(float *to, int64_t stride, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i * stride] += from[i];
}

static void add_f64(double *to, int64_t stride, const double *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i * stride] += from[i];
}

/* to[i * stride] += from[i], accumulation type. */
static void add_some(const ra_shape *shape, void *to, int64_t stride, const void *from, int64_t count) {
    if (shape->dtype == RA_F64)
        add_f64(to, stride, from, count);
    else
        add_f32(to, stride, from, count);
}

static void add_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    size_t bytes = ra_shape_acc_bytes(job->shape);
    int64_t at = ra_span_at(job->rows, row), h = ra_span_at(job->heads, head), dim = job->shape->dim;
    const char *from = (const char *)job->array + record_offset(job, b, row, head) * (int64_t)bytes;
    add_some(job->shape, ra_view_row(job->to, bytes, b, at, h), job->to.dim, from, dim);
    add_some(job->shape, ra_view_row(job->other, bytes, b, at, h), job->other.dim, from + dim * (int64_t)bytes,
             job->shape->dim_v);
}

void ra_rows_add_rows(const ra_shape *shape, ra_view dk, ra_view dv, const void *from, ra_span rows, ra_span heads,
                      const ra_context *context) {
    row_job job = {
        .shape = shape, .to = dk, .other = dv, .array = (void *)from, .rows = rows, .heads = heads, .row = add_row};
    run_rows(&job, context);
}

enum { ADD_CHUNK = 1 << 16 };

typedef struct add_job {
    const ra_shape *shape;
    char *to;
    const char *from;
    int64_t count;
} add_job;

static void add_chunk(void *user, int64_t index) {
    const add_job *job = user;
    int64_t first = index * ADD_CHUNK, bytes = (int64_t)ra_shape_acc_bytes(job->shape);
    int64_t count = job->count - first < ADD_CHUNK ? job->count - first : ADD_CHUNK;
    add_some(job->shape, job->to + first * bytes, 1, job->from + first * bytes, count);
}

void ra_rows_add(const ra_shape *shape, void *to, const void *from, int64_t count, const ra_context *context) {
    add_job job = {shape, to, from, count};
    ra_parallel_for(context->threads, (count + ADD_CHUNK - 1) / ADD_CHUNK, add_chunk, &job);
}

/* ---- outputs --------------------------------------------------------------------------------------------- */

static void store_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    double x[RA_MAX_DIM];
    load(x, ra_acc_dtype(job->shape), job->from, b, row, head, job->width);
    for (int64_t d = 0; d < job->width; d++) x[d] *= job->shape->weight;
    store(job->shape->out_dtype, job->to, b, row, head, x, job->width);
}

void ra_rows_store(const ra_shape *shape, ra_view to, ra_view from, int64_t rows, int64_t heads, int64_t width,
                   const ra_context *context) {
    row_job job = {.shape = shape,
                   .to = to,
                   .from = from,
                   .rows = first_n(rows),
                   .heads = first_n(heads),
                   .width = width,
                   .row = store_row};
    run_rows(&job, context);
}

static void fill_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    double values[RA_MAX_DIM];
    for (int64_t d = 0; d < job->width; d++) values[d] = job->value;
    store(job->shape->out_dtype, job->to, b, row, head, values, job->width);
}

void ra_rows_fill(const ra_shape *shape, ra_view to, int64_t rows, int64_t heads, int64_t width, double value,
                  const ra_context *context) {
    row_job job = {.shape = shape,
                   .to = to,
                   .rows = first_n(rows),
                   .heads = first_n(heads),
                   .width = width,
                   .value = value,
                   .row = fill_row};
    run_rows(&job, context);
}
