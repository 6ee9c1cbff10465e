#include "support/tiles/row_case.h"

#include "support/cmocka.h"
#include "support/scale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ra_dtype types[] = {RA_F64, RA_F32, RA_BF16, RA_F16};

static const ra_context launches[] = {{.threads = 1}, {.threads = 3}};

enum { SEEDS = 12 };

void row_expect(const row_subject *s, int holds, const char *what) {
    if (!holds) fail_msg("%s, %s, seed %u: %s is wrong", s->kernel->name, ra_dtype_name(s->dtype), s->seed, what);
}

void row_for_all(void (*body)(const row_subject *)) {
    unsigned seeds = scaled_count(SEEDS);
    print_message("seeds 1 to %u, each with every type and kernel\n", seeds);
    for (int i = 0; ra_kernel_at(i); i++)
        for (int t = 0; ra_kernel_at(i)->usable() && t < 4; t++)
            for (unsigned seed = 1; seed <= seeds; seed++)
                body(&(row_subject){ra_kernel_at(i), types[t], seed, &launches[seed % 2]});
}

double row_rounded(ra_dtype dtype, double x) {
    char element[8];
    ra_convert(dtype, element, RA_F64, &x, 1);
    ra_convert(RA_F64, &x, dtype, element, 1);
    return x;
}

ra_dtype row_acc(const ra_shape *shape) {
    return shape->dtype == RA_F64 ? RA_F64 : RA_F32;
}

ra_shape row_shape(rng *r, ra_dtype dtype) {
    ra_shape shape = {.heads_kv = 1, .scale = 1, .dtype = dtype, .out_dtype = dtype};
    shape.batch = rng_between(r, 1, 3);
    shape.heads_q = rng_between(r, 1, 4);
    shape.dim = rng_between(r, 1, 40);
    shape.dim_v = rng_between(r, 1, 40);
    shape.rows_q = rng_between(r, 1, 600);
    shape.states = rng_between(r, 1, TEST_STATES);
    shape.weight = test_weight(r);
    if (dtype != RA_F64 && rng_one_in(r, 2)) shape.out_dtype = RA_F32;
    return shape;
}

void *row_unwritten(ra_dtype dtype, int64_t count) {
    void *array = malloc((size_t)count * ra_dtype_bytes(dtype) + 1);
    assert_non_null(array);
    memset(array, 0xff, (size_t)count * ra_dtype_bytes(dtype));
    return array;
}

double row_element(const test_tensor *x, int64_t b, int64_t row, int64_t h, int64_t d) {
    double value;
    int64_t at = test_index(x->view, b, row, h, d) * (int64_t)ra_dtype_bytes(x->dtype);
    ra_convert(RA_F64, &value, x->dtype, (char *)x->memory + at, 1);
    return value;
}

double *row_changed(test_tensor *x, int64_t b, int64_t row, int64_t h, int64_t d) {
    return &x->exact[test_index(x->view, b, row, h, d)];
}

int row_is_as_said(const test_tensor *x) {
    double *now = test_as_doubles(x->dtype, x->memory, x->elements);
    int same = 1;
    for (int64_t i = 0; i < x->elements; i++) same &= isnan(x->exact[i]) || now[i] == x->exact[i];
    free(now);
    return same;
}
