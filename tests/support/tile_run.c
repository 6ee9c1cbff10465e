#include "support/tile_run.h"

#include <stdlib.h>
#include <string.h>

static int64_t rows_of(const tile_case *c) {
    return c->shape.batch * c->shape.heads_q * c->shape.rows_q;
}

/* count elements of the accumulation type from doubles, or all of one value. */
static void *acc_array(const tile_case *c, const double *from, double value, int64_t count) {
    double *wide = malloc((size_t)count * sizeof(double) + 1);
    void *array = malloc((size_t)count * ra_dtype_bytes(c->acc) + 1);
    if (!wide || !array) abort();
    for (int64_t i = 0; i < count; i++) wide[i] = from ? from[i] : value;
    ra_convert(c->acc, array, RA_F64, wide, count);
    free(wide);
    return array;
}

static void keep_raw(test_result *result, const void *data, size_t bytes) {
    result->raw = realloc(result->raw, result->raw_bytes + bytes + 1);
    if (!result->raw) abort();
    memcpy((char *)result->raw + result->raw_bytes, data, bytes);
    result->raw_bytes += bytes;
}

/* Keeps the array's bytes, frees it and returns it as doubles. */
static double *harvest(test_result *result, ra_dtype dtype, void *array, int64_t count) {
    double *wide = test_as_doubles(dtype, array, count);
    keep_raw(result, array, (size_t)count * ra_dtype_bytes(dtype));
    free(array);
    return wide;
}

ra_launch test_launch_make(const ra_kernel *kernel, const ra_shape *shape, int threads) {
    size_t forward = kernel->scratch_bytes(shape, threads, 0), backward = kernel->scratch_bytes(shape, threads, 1);
    size_t bytes = ((forward > backward ? forward : backward) + 64) / 64 * 64;
    ra_launch launch = {.threads = threads, .scratch = aligned_alloc(64, bytes)};
    if (!launch.scratch) abort();
    memset(launch.scratch, 0xff, bytes);
    return launch;
}

void test_launch_free(ra_launch *launch) {
    free(launch->scratch);
}

test_result test_run_forward(const tile_case *c, const ra_kernel *kernel, const ra_launch *launch) {
    test_result result = {0};
    const ra_shape *shape = &c->shape;
    int64_t rows = rows_of(c), count = rows * shape->dim_v;
    ra_state state = {acc_array(c, NULL, 7, count), acc_array(c, NULL, 7, rows), acc_array(c, NULL, 7, rows)};
    void *o = malloc((size_t)count * ra_dtype_bytes(shape->out_dtype)), *lse = acc_array(c, NULL, 7, rows);
    if (!o) abort();
    kernel->begin(shape, state, launch);
    for (int i = 0; i < TEST_CALLS; i++) {
        ra_forward_call call = {shape, c->q.view, c->parts, c->calls[i].list, state, *launch};
        kernel->forward(&call);
    }
    /* As the state is laid out: [batch, heads_q, rows_q, dim_v]. */
    ra_view view = {o, shape->heads_q * shape->rows_q * shape->dim_v, shape->dim_v, shape->rows_q * shape->dim_v, 1};
    kernel->finish(shape, state, view, lse, launch);
    result.o = harvest(&result, shape->out_dtype, o, count);
    result.lse = harvest(&result, c->acc, lse, rows);
    free(state.o);
    free(state.m);
    free(state.l);
    return result;
}

test_result test_run_backward(const tile_case *c, const ra_kernel *kernel, const ra_launch *launch, double start) {
    test_result result = {0};
    const ra_shape *shape = &c->shape;
    int64_t rows = rows_of(c);
    void *lse = acc_array(c, c->lse, 0, rows), *delta = acc_array(c, c->delta, 0, rows);
    void *dq = acc_array(c, NULL, start, rows * shape->dim);
    ra_kv_part parts[TEST_PARTS];
    for (int i = 0; i < TEST_PARTS; i++) {
        parts[i] = c->parts[i];
        parts[i].dk.data = acc_array(c, NULL, start, c->dk[i].elements);
        parts[i].dv.data = acc_array(c, NULL, start, c->dv[i].elements);
    }
    for (int i = 0; i < TEST_CALLS; i++) {
        ra_backward_call call = {shape, c->q.view, c->dout.view, lse, delta, parts, c->calls[i].list, dq, *launch};
        kernel->backward(&call);
    }
    result.dq = harvest(&result, c->acc, dq, rows * shape->dim);
    for (int i = 0; i < TEST_PARTS; i++) {
        result.dk[i] = harvest(&result, c->acc, parts[i].dk.data, c->dk[i].elements);
        result.dv[i] = harvest(&result, c->acc, parts[i].dv.data, c->dv[i].elements);
    }
    free(lse);
    free(delta);
    return result;
}

void test_result_free(test_result *result) {
    free(result->o);
    free(result->lse);
    free(result->dq);
    for (int i = 0; i < TEST_PARTS; i++) {
        free(result->dk[i]);
        free(result->dv[i]);
    }
    free(result->raw);
}
