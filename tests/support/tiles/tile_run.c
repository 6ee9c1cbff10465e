#include "support/tiles/tile_run.h"

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

/* Memory of which it shows what has been written: all bits are set, a NaN in every type. */
static void *unwritten(ra_dtype dtype, int64_t count) {
    void *array = malloc((size_t)count * ra_dtype_bytes(dtype) + 1);
    if (!array) abort();
    memset(array, 0xff, (size_t)count * ra_dtype_bytes(dtype));
    return array;
}

static int64_t written(ra_dtype dtype, const void *array, int64_t count) {
    static const char untouched[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    size_t bytes = ra_dtype_bytes(dtype);
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) found += memcmp((const char *)array + (size_t)i * bytes, untouched, bytes) != 0;
    return found;
}

/* Keeps the array's bytes, frees it and returns it as doubles. */
static double *harvest(test_result *result, ra_dtype dtype, void *array, int64_t count) {
    double *wide = test_as_doubles(dtype, array, count);
    keep_raw(result, array, (size_t)count * ra_dtype_bytes(dtype));
    free(array);
    return wide;
}

double test_rounding_of_p(const ra_kernel *kernel, ra_dtype dtype) {
    int by_pairs = strcmp(kernel->name, "avx512bf16") == 0 || strcmp(kernel->name, "amx") == 0;
    return by_pairs && dtype == RA_BF16 ? 0x1p-8 : 0;
}

ra_context test_launch_make(const ra_kernel *kernel, const ra_shape *shape, int threads) {
    size_t forward = kernel->scratch_bytes(shape, threads, 0), backward = kernel->scratch_bytes(shape, threads, 1);
    size_t bytes = ((forward > backward ? forward : backward) + 64) / 64 * 64;
    ra_context context = {.threads = threads, .scratch = aligned_alloc(64, bytes)};
    if (!context.scratch) abort();
    memset(context.scratch, 0xff, bytes);
    return context;
}

void test_launch_free(ra_context *context) {
    free(context->scratch);
}

/* [batch, heads_q, rows_q, dim_v] from a view into `memory`, which is of dtype. */
static double *gather_o(const tile_case *c, ra_dtype dtype, ra_view view, const void *memory, int64_t elements) {
    const ra_shape *shape = &c->shape;
    double *all = test_as_doubles(dtype, memory, elements);
    double *o = malloc((size_t)(rows_of(c) * shape->dim_v) * sizeof(double));
    if (!o) abort();
    for (int64_t i = 0; i < rows_of(c) * shape->dim_v; i++) {
        int64_t d = i % shape->dim_v, row = i / shape->dim_v;
        int64_t h = row / shape->rows_q % shape->heads_q, b = row / shape->rows_q / shape->heads_q;
        o[i] = all[test_index(view, b, row % shape->rows_q, h, d)];
    }
    free(all);
    return o;
}

/* Takes o and what surrounds it out of `out`, or out of the state where that is the output. */
static void harvest_o(const tile_case *c, test_result *result, void *state_o, void *out) {
    ra_dtype dtype = c->shape.out_dtype;
    int64_t elements = c->in_place ? c->state_o.elements : c->out.elements, count = rows_of(c) * c->shape.dim_v;
    const void *memory = c->in_place ? state_o : out;
    result->o = gather_o(c, dtype, c->in_place ? c->state_o.view : c->out.view, memory, elements);
    result->stray = llabs(written(c->acc, state_o, c->state_o.elements) - c->shape.states * count);
    if (!c->in_place) result->stray += llabs(written(dtype, out, elements) - count);
    keep_raw(result, memory, (size_t)elements * ra_dtype_bytes(dtype));
    free(state_o);
    free(out);
}

test_result test_run_forward(const tile_case *c, const ra_kernel *kernel, const ra_context *context) {
    test_result result = {0};
    const ra_shape *shape = &c->shape;
    int64_t rows = rows_of(c), all = shape->states * rows;
    ra_state state = {c->state_o.view, c->o_state, unwritten(c->acc, all), unwritten(c->acc, all)};
    state.o.data = unwritten(c->acc, c->state_o.elements);
    void *lse = unwritten(c->acc, rows), *state_lse = unwritten(c->acc, all), *delta = unwritten(c->acc, all);
    ra_view out = c->out.view;
    out.data = unwritten(shape->out_dtype, c->out.elements);
    kernel->begin(shape, state, context);
    for (int i = 0; i < TEST_CALLS; i++) {
        ra_forward_call call = {shape, c->q.view, c->parts, c->calls[i].list, state, *context, NULL, NULL, NULL};
        kernel->forward(&call);
    }
    kernel->carry(shape, state, c->dout.view, state_lse, delta, context);
    kernel->finish(shape, state, c->in_place ? state.o : out, ra_array_view(shape, lse), context);
    harvest_o(c, &result, state.o.data, out.data);
    result.lse = harvest(&result, c->acc, lse, rows);
    result.state_lse = harvest(&result, c->acc, state_lse, all);
    result.state_delta = harvest(&result, c->acc, delta, all);
    free(state.m);
    free(state.l);
    return result;
}

test_result test_run_backward(const tile_case *c, const ra_kernel *kernel, const ra_context *context, double start) {
    test_result result = {0};
    const ra_shape *shape = &c->shape;
    int64_t all = shape->states * rows_of(c);
    void *lse = acc_array(c, c->state_lse, 0, all), *delta = acc_array(c, c->state_delta, 0, all);
    ra_view dq = c->dq.view;
    dq.data = acc_array(c, NULL, start, c->dq.elements);
    ra_kv_rows parts[TEST_PARTS];
    for (int i = 0; i < TEST_PARTS; i++) {
        parts[i] = c->parts[i];
        parts[i].dk.data = acc_array(c, NULL, start, c->dk[i].elements);
        parts[i].dv.data = acc_array(c, NULL, start, c->dv[i].elements);
    }
    for (int i = 0; i < TEST_CALLS; i++) {
        ra_backward_call call = {.shape = shape,
                                 .q = c->q.view,
                                 .dout = c->dout.view,
                                 .lse = lse,
                                 .delta = delta,
                                 .parts = parts,
                                 .tiles = c->calls[i].list,
                                 .dq = dq,
                                 .context = *context};
        kernel->backward(&call);
    }
    result.dq = harvest(&result, c->acc, dq.data, c->dq.elements);
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
    free(result->state_lse);
    free(result->state_delta);
    free(result->dq);
    for (int i = 0; i < TEST_PARTS; i++) {
        free(result->dk[i]);
        free(result->dv[i]);
    }
    free(result->raw);
}
