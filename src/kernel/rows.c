/* Row operations on state and outputs. They touch every row once, so a row passes through a small buffer of doubles:
 * one code path for every pair of types, and what is written has been rounded once.
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
    ra_view to, from;
    void *array; /* the C-order side */
    ra_span rows, heads;
    int64_t batch, width; /* width: elements of a row */
    size_t bytes;         /* of an element */
    void (*row)(const struct row_job *job, int64_t b, int64_t row, int64_t head);
} row_job;

static int64_t chunks_of(int64_t rows) {
    return (rows + CHUNK - 1) / CHUNK;
}

static void run_chunk(void *user, int64_t index) {
    const row_job *job = user;
    int64_t chunks = chunks_of(job->rows.count);
    int64_t head = index / chunks / job->batch, b = index / chunks % job->batch;
    int64_t first = index % chunks * CHUNK;
    int64_t last = first + CHUNK < job->rows.count ? first + CHUNK : job->rows.count;
    for (int64_t row = first; row < last; row++) job->row(job, b, row, head);
}

/* job->row for every batch, index of rows and index of heads. A few rows are done before other threads have woken. */
static void run_rows(const row_job *job, const ra_launch *launch) {
    int64_t bands = job->heads.count * job->batch;
    int few = bands * job->rows.count < 2 * CHUNK;
    ra_parallel_for(few ? 1 : launch->threads, bands * chunks_of(job->rows.count), run_chunk, (void *)job);
}

static ra_span first_n(int64_t count) {
    return (ra_span){0, 1, count};
}

/* The i-th row of an array of rows of the accumulation type. */
static void *acc_row(const ra_shape *shape, void *array, int64_t i, int64_t width) {
    return (char *)array + i * width * (int64_t)ra_shape_acc_bytes(shape);
}

/* [batch, heads_q, rows_q] */
static int64_t state_index(const ra_shape *shape, int64_t b, int64_t head, int64_t row) {
    return (b * shape->heads_q + head) * shape->rows_q + row;
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

static void begin_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    int64_t i = state_index(job->shape, b, head, row);
    memset(acc_row(job->shape, job->state.o, i, job->width), 0, (size_t)job->width * job->bytes);
    store_one(job->shape, job->state.m, i, -INFINITY);
    store_one(job->shape, job->state.l, i, 0);
}

void ra_rows_begin(const ra_shape *shape, ra_state state, const ra_launch *launch) {
    row_job job = {.shape = shape,
                   .state = state,
                   .rows = first_n(shape->rows_q),
                   .heads = first_n(shape->heads_q),
                   .batch = shape->batch,
                   .width = shape->dim_v,
                   .bytes = ra_shape_acc_bytes(shape),
                   .row = begin_row};
    run_rows(&job, launch);
}

/* A maximum that is not finite has nothing to normalise by: -inf, nothing was seen; +inf, a score overflowed. The
 * definition gives such a row o = 0 and lse = the maximum. */
static void finish_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    double o[RA_MAX_DIM];
    int64_t i = state_index(job->shape, b, head, row);
    double m = load_one(job->shape, job->state.m, i), l = load_one(job->shape, job->state.l, i);
    ra_row_load_f64(o, ra_acc_dtype(job->shape), acc_row(job->shape, job->state.o, i, job->width), 1, job->width);
    for (int64_t d = 0; d < job->width; d++) o[d] = isinf(m) ? 0 : o[d] / l;
    ra_row_store_f64(job->shape->out_dtype, ra_view_row(job->to, job->bytes, b, row, head), job->to.dim, o, job->width);
    if (job->array) store_one(job->shape, job->array, i, isinf(m) ? m : m + log(l));
}

void ra_rows_finish(const ra_shape *shape, ra_state state, ra_view o_out, void *lse_out, const ra_launch *launch) {
    row_job job = {.shape = shape,
                   .state = state,
                   .to = o_out,
                   .array = lse_out,
                   .rows = first_n(shape->rows_q),
                   .heads = first_n(shape->heads_q),
                   .batch = shape->batch,
                   .width = shape->dim_v,
                   .bytes = ra_dtype_bytes(shape->out_dtype),
                   .row = finish_row};
    run_rows(&job, launch);
}

static void delta_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    double dout[RA_MAX_DIM], o[RA_MAX_DIM], sum = 0;
    ra_row_load_f64(dout, job->shape->dtype, ra_view_row(job->to, job->bytes, b, row, head), job->to.dim, job->width);
    ra_row_load_f64(o, job->shape->out_dtype,
                    ra_view_row(job->from, ra_dtype_bytes(job->shape->out_dtype), b, row, head), job->from.dim,
                    job->width);
    for (int64_t d = 0; d < job->width; d++) sum += dout[d] * o[d];
    store_one(job->shape, job->array, state_index(job->shape, b, head, row), sum);
}

void ra_rows_delta(const ra_shape *shape, ra_view dout, ra_view o, void *delta_out, const ra_launch *launch) {
    row_job job = {.shape = shape,
                   .to = dout,
                   .from = o,
                   .array = delta_out,
                   .rows = first_n(shape->rows_q),
                   .heads = first_n(shape->heads_q),
                   .batch = shape->batch,
                   .width = shape->dim_v,
                   .bytes = ra_dtype_bytes(shape->dtype),
                   .row = delta_row};
    run_rows(&job, launch);
}

/* Row number of [heads.count, batch, rows.count]. */
static int64_t packed_index(const row_job *job, int64_t b, int64_t row, int64_t head) {
    return (head * job->batch + b) * job->rows.count + row;
}

static void gather(char *to, const char *from, int64_t stride_bytes, int64_t count, size_t bytes) {
    for (int64_t i = 0; i < count; i++) memcpy(to + i * (int64_t)bytes, from + i * stride_bytes, bytes);
}

static void pack_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    int64_t bytes = (int64_t)job->bytes;
    char *to = (char *)job->array + packed_index(job, b, row, head) * job->width * bytes;
    const char *from = ra_view_row(job->from, job->bytes, b, ra_span_at(job->rows, row), ra_span_at(job->heads, head));
    if (job->from.dim == 1)
        memcpy(to, from, (size_t)(job->width * bytes));
    else
        gather(to, from, job->from.dim * bytes, job->width, job->bytes);
}

void ra_rows_pack(void *to, ra_view from, ra_span rows, ra_span heads, int64_t batch, int64_t width, size_t bytes,
                  const ra_launch *launch) {
    row_job job = {.from = from,
                   .array = to,
                   .rows = rows,
                   .heads = heads,
                   .batch = batch,
                   .width = width,
                   .bytes = bytes,
                   .row = pack_row};
    run_rows(&job, launch);
}

static void add_f32(float *to, int64_t stride, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i * stride] += from[i];
}

static void add_f64(double *to, int64_t stride, const double *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i * stride] += from[i];
}

static void add_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    void *to = ra_view_row(job->to, job->bytes, b, ra_span_at(job->rows, row), ra_span_at(job->heads, head));
    const void *from = acc_row(job->shape, job->array, packed_index(job, b, row, head), job->width);
    if (job->shape->dtype == RA_F64)
        add_f64(to, job->to.dim, from, job->width);
    else
        add_f32(to, job->to.dim, from, job->width);
}

void ra_rows_add_rows(const ra_shape *shape, ra_view to, const void *from, ra_span rows, ra_span heads, int64_t width,
                      const ra_launch *launch) {
    row_job job = {.shape = shape,
                   .to = to,
                   .array = (void *)from,
                   .rows = rows,
                   .heads = heads,
                   .batch = shape->batch,
                   .width = width,
                   .bytes = ra_shape_acc_bytes(shape),
                   .row = add_row};
    run_rows(&job, launch);
}

/* Both arrays cut into rows of RA_MAX_DIM elements, the last one shorter. */
static void add_piece(const row_job *job, int64_t b, int64_t row, int64_t head) {
    (void)b, (void)head;
    int64_t first = row * RA_MAX_DIM;
    int64_t count = job->width - first < RA_MAX_DIM ? job->width - first : RA_MAX_DIM;
    void *to = acc_row(job->shape, job->to.data, first, 1);
    const void *from = acc_row(job->shape, job->array, first, 1);
    if (job->shape->dtype == RA_F64)
        add_f64(to, 1, from, count);
    else
        add_f32(to, 1, from, count);
}

void ra_rows_add(const ra_shape *shape, void *to, const void *from, int64_t count, const ra_launch *launch) {
    row_job job = {.shape = shape,
                   .to = {.data = to},
                   .array = (void *)from,
                   .width = count,
                   .rows = first_n((count + RA_MAX_DIM - 1) / RA_MAX_DIM),
                   .heads = first_n(1),
                   .batch = 1,
                   .row = add_piece};
    run_rows(&job, launch);
}

static void store_row(const row_job *job, int64_t b, int64_t row, int64_t head) {
    double x[RA_MAX_DIM];
    ra_row_load_f64(x, ra_acc_dtype(job->shape), ra_view_row(job->from, ra_shape_acc_bytes(job->shape), b, row, head),
                    job->from.dim, job->width);
    ra_row_store_f64(job->shape->out_dtype, ra_view_row(job->to, job->bytes, b, row, head), job->to.dim, x, job->width);
}

void ra_rows_store(const ra_shape *shape, ra_view to, ra_view from, int64_t rows, int64_t heads, int64_t width,
                   const ra_launch *launch) {
    row_job job = {.shape = shape,
                   .to = to,
                   .from = from,
                   .rows = first_n(rows),
                   .heads = first_n(heads),
                   .batch = shape->batch,
                   .width = width,
                   .bytes = ra_dtype_bytes(shape->out_dtype),
                   .row = store_row};
    run_rows(&job, launch);
}
