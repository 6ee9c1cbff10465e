/* The row operations of every kernel: state, delta, packing, adding, storing, through views of all kinds. */
#include "support/cmocka.h"
#include "support/tile_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ra_dtype types[] = {RA_F64, RA_F32, RA_BF16, RA_F16};

static const ra_launch launches[] = {{.threads = 1}, {.threads = 3}};

/* What a kernel has to round to: x through the type and back. */
static double rounded(ra_dtype dtype, double x) {
    char element[8];
    ra_convert(dtype, element, RA_F64, &x, 1);
    ra_convert(RA_F64, &x, dtype, element, 1);
    return x;
}

static ra_dtype acc_of(const ra_shape *shape) {
    return shape->dtype == RA_F64 ? RA_F64 : RA_F32;
}

static ra_shape random_shape(rng *r, ra_dtype dtype) {
    ra_shape shape = {.heads_kv = 1, .scale = 1, .dtype = dtype, .out_dtype = dtype};
    shape.batch = rng_between(r, 1, 2);
    shape.heads_q = rng_between(r, 1, 4);
    shape.dim = rng_between(r, 1, 40);
    shape.dim_v = rng_between(r, 1, 40);
    shape.rows_q = rng_between(r, 1, 600);
    if (dtype != RA_F64 && rng_one_in(r, 2)) shape.out_dtype = RA_F32;
    return shape;
}

static void *zeros(ra_dtype dtype, int64_t count) {
    void *array = calloc((size_t)count + 1, ra_dtype_bytes(dtype));
    assert_non_null(array);
    return array;
}

/* Runs body for every kernel, type and number of threads. */
static void for_all(void (*body)(const ra_kernel *, ra_dtype, unsigned, const ra_launch *)) {
    for (int i = 0; ra_kernel_at(i); i++)
        for (int t = 0; ra_kernel_at(i)->usable() && t < 4; t++)
            for (unsigned seed = 1; seed <= 8; seed++) body(ra_kernel_at(i), types[t], seed, &launches[seed % 2]);
}

/* The double of element [b, row, h, d] as it stands in memory. */
static double element(const test_tensor *x, int64_t b, int64_t row, int64_t h, int64_t d) {
    double value;
    size_t bytes = ra_dtype_bytes(x->dtype);
    ra_convert(RA_F64, &value, x->dtype, (char *)x->memory + (size_t)test_index(x->view, b, row, h, d) * bytes, 1);
    return value;
}

static void finish_is_o_over_l(const ra_kernel *kernel, ra_dtype dtype, unsigned seed, const ra_launch *launch) {
    rng r = {seed};
    ra_shape shape = random_shape(&r, dtype);
    ra_dtype acc = acc_of(&shape);
    int64_t rows = shape.batch * shape.heads_q * shape.rows_q;
    ra_state state = {zeros(acc, rows * shape.dim_v), zeros(acc, rows), zeros(acc, rows)};
    void *lse = zeros(acc, rows);
    test_tensor o = test_tensor_make(&r, shape.out_dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    memset(state.l, 0x7f, (size_t)rows * ra_dtype_bytes(acc));
    kernel->begin(&shape, state, launch);
    /* Every third row stays as begun; the others have m = i, l = 1 + i and o = d - 2i. */
    for (int64_t i = 0; i < rows; i++) {
        double m = (double)(i % 100), l = 1 + m;
        if (i % 3 == 0) continue;
        ra_convert(acc, (char *)state.m + (size_t)i * ra_dtype_bytes(acc), RA_F64, &m, 1);
        ra_convert(acc, (char *)state.l + (size_t)i * ra_dtype_bytes(acc), RA_F64, &l, 1);
        for (int64_t d = 0; d < shape.dim_v; d++) {
            double x = (double)d - 2 * m;
            ra_convert(acc, (char *)state.o + (size_t)(i * shape.dim_v + d) * ra_dtype_bytes(acc), RA_F64, &x, 1);
        }
    }
    kernel->finish(&shape, state, o.view, lse, launch);
    kernel->finish(&shape, state, o.view, NULL, launch);
    double *got = test_as_doubles(acc, lse, rows);
    for (int64_t i = 0; i < rows; i++) {
        int64_t row = i % shape.rows_q, h = i / shape.rows_q % shape.heads_q, b = i / shape.rows_q / shape.heads_q;
        double m = (double)(i % 100);
        assert_true(got[i] == (i % 3 ? rounded(acc, m + log(1 + m)) : -INFINITY));
        for (int64_t d = 0; d < shape.dim_v; d++)
            assert_true(element(&o, b, row, h, d) ==
                        (i % 3 ? rounded(shape.out_dtype, ((double)d - 2 * m) / (1 + m)) : 0));
    }
    free(got);
    free(lse);
    free(state.o);
    free(state.m);
    free(state.l);
    test_tensor_free(&o);
}

static void delta_is_dout_times_o(const ra_kernel *kernel, ra_dtype dtype, unsigned seed, const ra_launch *launch) {
    rng r = {seed};
    ra_shape shape = random_shape(&r, dtype);
    ra_dtype acc = acc_of(&shape);
    int64_t rows = shape.batch * shape.heads_q * shape.rows_q;
    void *delta = zeros(acc, rows);
    test_tensor o = test_tensor_make(&r, shape.out_dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    test_tensor dout = test_tensor_make(&r, dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    kernel->delta(&shape, dout.view, o.view, delta, launch);
    double *got = test_as_doubles(acc, delta, rows);
    for (int64_t i = 0; i < rows; i++) {
        int64_t row = i % shape.rows_q, h = i / shape.rows_q % shape.heads_q, b = i / shape.rows_q / shape.heads_q;
        double want = 0, size = 0;
        for (int64_t d = 0; d < shape.dim_v; d++) {
            want += element(&o, b, row, h, d) * element(&dout, b, row, h, d);
            size += fabs(element(&o, b, row, h, d) * element(&dout, b, row, h, d));
        }
        assert_true(fabs(got[i] - want) <= size * (acc == RA_F64 ? 1e-14 : 1e-6));
    }
    free(got);
    free(delta);
    test_tensor_free(&o);
    test_tensor_free(&dout);
}

/* Some rows and heads of a tensor with `rows` rows and `heads` heads. */
static ra_span random_span(rng *r, int64_t count) {
    ra_span span = {.first = rng_between(r, 0, count - 1)};
    span.stride = rng_between(r, 1, 3);
    span.count = 1 + rng_between(r, 0, (count - 1 - span.first) / span.stride);
    return span;
}

/* pack, then add_rows of what was packed: every chosen element is doubled and no other changes. */
static void pack_and_add_rows(const ra_kernel *kernel, ra_dtype dtype, unsigned seed, const ra_launch *launch) {
    rng r = {seed};
    ra_shape shape = random_shape(&r, dtype);
    ra_dtype acc = acc_of(&shape);
    int64_t n = shape.rows_q, heads_n = shape.heads_q, width = shape.dim;
    test_tensor x = test_tensor_make(&r, dtype, shape.batch, n, heads_n, width);
    test_tensor sum = test_tensor_make(&r, acc, shape.batch, n, heads_n, width);
    ra_span rows = random_span(&r, n), heads = random_span(&r, heads_n);
    int64_t count = heads.count * shape.batch * rows.count * width;
    void *packed = zeros(dtype, count), *packed_sum = zeros(acc, count);
    kernel->pack(packed, x.view, rows, heads, shape.batch, width, ra_dtype_bytes(dtype), launch);
    double *got = test_as_doubles(dtype, packed, count);
    for (int64_t i = 0; i < count; i++) {
        int64_t d = i % width, row = i / width % rows.count, b = i / width / rows.count % shape.batch;
        int64_t h = i / width / rows.count / shape.batch;
        assert_true(got[i] == element(&x, b, ra_span_at(rows, row), ra_span_at(heads, h), d));
    }
    kernel->pack(packed_sum, sum.view, rows, heads, shape.batch, width, ra_dtype_bytes(acc), launch);
    kernel->add_rows(&shape, sum.view, packed_sum, rows, heads, width, launch);
    double *after = test_as_doubles(acc, sum.memory, sum.elements);
    for (int64_t i = 0; i < count; i++) {
        int64_t d = i % width, row = i / width % rows.count, b = i / width / rows.count % shape.batch;
        int64_t h = i / width / rows.count / shape.batch;
        sum.exact[test_index(sum.view, b, ra_span_at(rows, row), ra_span_at(heads, h), d)] *= 2;
    }
    for (int64_t i = 0; i < sum.elements; i++) assert_true(after[i] == sum.exact[i]);
    free(got);
    free(after);
    free(packed);
    free(packed_sum);
    test_tensor_free(&x);
    test_tensor_free(&sum);
}

static void add_is_element_by_element(const ra_kernel *kernel, ra_dtype dtype, unsigned seed, const ra_launch *launch) {
    rng r = {seed};
    ra_shape shape = random_shape(&r, dtype);
    ra_dtype acc = acc_of(&shape);
    for (int64_t count = 0; count < 3000; count = 3 * count + rng_between(&r, 0, 2)) {
        test_tensor x = test_tensor_make(&r, acc, 1, 1, 1, count + 1);
        test_tensor y = test_tensor_make(&r, acc, 1, 1, 1, count + 1);
        int64_t n = x.elements < y.elements ? x.elements - 1 : y.elements - 1;
        kernel->add(&shape, x.memory, y.memory, n, launch);
        double *got = test_as_doubles(acc, x.memory, n + 1);
        for (int64_t i = 0; i < n; i++) assert_true(got[i] == rounded(acc, x.exact[i] + y.exact[i]));
        assert_true(got[n] == x.exact[n]);
        free(got);
        test_tensor_free(&x);
        test_tensor_free(&y);
        if (count == 0) count = 1;
    }
}

static void store_rounds_once(const ra_kernel *kernel, ra_dtype dtype, unsigned seed, const ra_launch *launch) {
    rng r = {seed};
    ra_shape shape = random_shape(&r, dtype);
    int64_t n = shape.rows_q, heads = shape.heads_q, width = shape.dim;
    test_tensor from = test_tensor_make(&r, acc_of(&shape), shape.batch, n, heads, width);
    test_tensor to = test_tensor_make(&r, shape.out_dtype, shape.batch, n, heads, width);
    kernel->store(&shape, to.view, from.view, n, heads, width, launch);
    for (int64_t i = 0; i < shape.batch * n * heads * width; i++) {
        int64_t d = i % width, h = i / width % heads, row = i / width / heads % n, b = i / width / heads / n;
        assert_true(element(&to, b, row, h, d) == rounded(shape.out_dtype, element(&from, b, row, h, d)));
    }
    test_tensor_free(&from);
    test_tensor_free(&to);
}

static void test_finish(void **state) {
    (void)state;
    for_all(finish_is_o_over_l);
}

static void test_delta(void **state) {
    (void)state;
    for_all(delta_is_dout_times_o);
}

static void test_pack_and_add_rows(void **state) {
    (void)state;
    for_all(pack_and_add_rows);
}

static void test_add(void **state) {
    (void)state;
    for_all(add_is_element_by_element);
}

static void test_store(void **state) {
    (void)state;
    for_all(store_rounds_once);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finish), cmocka_unit_test(test_delta), cmocka_unit_test(test_pack_and_add_rows),
        cmocka_unit_test(test_add),    cmocka_unit_test(test_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
