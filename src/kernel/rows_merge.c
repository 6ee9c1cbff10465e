/* Two partial states of the same rows become one: what a rank made of a row with some keys and what another made of it
 * with others.
 *
 *     m = max(m1, m2),   l = l1 e^{m1 - m} + l2 e^{m2 - m},   o likewise
 *
 * A state that has seen nothing (l = 0) changes nothing, whatever its o is; a NaN on either side makes the row NaN.
 */
#include "kernel/parallel.h"
#include "kernel/row_io.h"
#include "kernel/rows.h"

#include <math.h>

enum { CHUNK = 64 };

typedef struct merge_job {
    const ra_shape *shape;
    ra_state state, from;
    ra_span rows;
} merge_job;

static double load(const ra_shape *shape, const void *array, int64_t i) {
    return shape->dtype == RA_F64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static void store(const ra_shape *shape, void *array, int64_t i, double x) {
    if (shape->dtype == RA_F64)
        ((double *)array)[i] = x;
    else
        ((float *)array)[i] = (float)x;
}

/* What l and o are multiplied by: e^{m - most}, or nothing at all for what has seen nothing. */
static double factor(double m, double l, double most) {
    return l == 0 ? 0 : m == most ? 1 : exp(m - most);
}

static void merge_row(const merge_job *job, int64_t s, int64_t b, int64_t h, int64_t i) {
    const ra_shape *shape = job->shape;
    int64_t row = ra_span_at(job->rows, i), at = ra_row_index(shape, s, b, h, row);
    int64_t there = ((s * shape->batch + b) * shape->heads_q + h) * job->rows.count + i;
    double m = load(shape, job->state.m, at), l = load(shape, job->state.l, at);
    double more_m = load(shape, job->from.m, there), more_l = load(shape, job->from.l, there);
    if (more_l == 0) return;
    double most = isnan(m) || m > more_m ? m : more_m, keep = factor(m, l, most), take = factor(more_m, more_l, most);
    double o[RA_MAX_DIM], more[RA_MAX_DIM];
    ra_dtype acc = ra_acc_dtype(shape);
    ra_view to = ra_state_o(shape, &job->state, s), from = ra_state_o(shape, &job->from, s);
    void *to_row = ra_view_row(to, ra_shape_acc_bytes(shape), b, row, h);
    ra_row_load_f64(more, acc, ra_view_row(from, ra_shape_acc_bytes(shape), b, i, h), from.dim, shape->dim_v);
    ra_row_load_f64(o, acc, to_row, to.dim, shape->dim_v);
    for (int64_t d = 0; d < shape->dim_v; d++) o[d] = (l == 0 ? 0 : o[d] * keep) + more[d] * take;
    ra_row_store_f64(acc, to_row, to.dim, o, shape->dim_v);
    store(shape, job->state.l, at, l * keep + more_l * take);
    store(shape, job->state.m, at, most);
}

static void merge_chunk(void *user, int64_t index) {
    const merge_job *job = user;
    const ra_shape *shape = job->shape;
    int64_t chunks = (job->rows.count + CHUNK - 1) / CHUNK, band = index / chunks, first = index % chunks * CHUNK;
    int64_t h = band % shape->heads_q, b = band / shape->heads_q % shape->batch,
            s = band / shape->heads_q / shape->batch;
    int64_t end = first + CHUNK < job->rows.count ? first + CHUNK : job->rows.count;
    for (int64_t i = first; i < end; i++) merge_row(job, s, b, h, i);
}

void ra_rows_merge(const ra_shape *shape, ra_state state, ra_span rows, ra_state from, const ra_context *context) {
    merge_job job = {shape, state, from, rows};
    int64_t bands = shape->states * shape->batch * shape->heads_q, chunks = (rows.count + CHUNK - 1) / CHUNK;
    ra_parallel_for(context->threads, bands * chunks, merge_chunk, &job);
}
