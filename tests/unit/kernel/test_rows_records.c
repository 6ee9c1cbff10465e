/* The records of rows that travel, by every kernel: packing them, adding them to what views of all kinds hold, and
 * adding whole arrays. */
#include "support/cmocka.h"
#include "support/tiles/row_case.h"

#include <math.h>
#include <stdlib.h>

/* Some of `count` rows or heads. */
static ra_span random_span(rng *r, int64_t count) {
    ra_span span = {.first = rng_between(r, 0, count - 1)};
    span.stride = rng_between(r, 1, 3);
    span.count = 1 + rng_between(r, 0, (count - 1 - span.first) / span.stride);
    return span;
}

/* Keys and values, or their gradients, and the records of some of them. */
typedef struct record_case {
    ra_shape shape;
    test_tensor k, v;
    ra_span rows, heads;
    int64_t count; /* elements of the records */
} record_case;

static record_case make_records(const row_subject *on, rng *r, int of_gradients) {
    record_case c = {.shape = row_shape(r, on->dtype)};
    ra_dtype dtype = of_gradients ? row_acc(&c.shape) : on->dtype;
    int64_t batch = c.shape.batch, rows = c.shape.rows_q, heads = c.shape.heads_kv = rng_between(r, 1, 4);
    c.k = test_tensor_make(r, dtype, batch, rows, heads, c.shape.dim);
    c.v = test_tensor_make(r, dtype, batch, rows, heads, c.shape.dim_v);
    c.rows = random_span(r, rows);
    c.heads = random_span(r, heads);
    c.count = c.heads.count * c.rows.count * batch * (c.shape.dim + c.shape.dim_v);
    return c;
}

/* Where element i of the records comes from: an element of exact of k or v. */
static double *record_element(record_case *c, int64_t i) {
    int64_t width = c->shape.dim + c->shape.dim_v, d = i % width, b = i / width % c->shape.batch;
    int64_t row = ra_span_at(c->rows, i / width / c->shape.batch % c->rows.count);
    int64_t h = ra_span_at(c->heads, i / width / c->shape.batch / c->rows.count);
    return d < c->shape.dim ? row_changed(&c->k, b, row, h, d) : row_changed(&c->v, b, row, h, d - c->shape.dim);
}

static void pack_copies_rows(const row_subject *on) {
    rng r = {on->seed};
    record_case c = make_records(on, &r, 0);
    void *packed = row_unwritten(on->dtype, c.count + 1);
    on->kernel->pack(&c.shape, packed, c.k.view, c.v.view, c.rows, c.heads, on->context);
    double *got = test_as_doubles(on->dtype, packed, c.count + 1);
    for (int64_t i = 0; i < c.count; i++) row_expect(on, got[i] == *record_element(&c, i), "a record");
    row_expect(on, isnan(got[c.count]), "what follows the records");
    row_expect(on, row_is_as_said(&c.k) && row_is_as_said(&c.v), "k or v");
    free(got);
    free(packed);
    test_tensor_free(&c.k);
    test_tensor_free(&c.v);
}

static void add_rows_adds_records(const row_subject *on) {
    rng r = {on->seed};
    record_case c = make_records(on, &r, 1);
    test_tensor from = test_tensor_make(&r, row_acc(&c.shape), 1, 1, 1, c.count);
    on->kernel->add_rows(&c.shape, c.k.view, c.v.view, from.memory, c.rows, c.heads, on->context);
    for (int64_t i = 0; i < c.count; i++) {
        double *to = record_element(&c, i);
        *to = row_rounded(from.dtype, *to + from.exact[i]);
    }
    row_expect(on, row_is_as_said(&c.k), "dk");
    row_expect(on, row_is_as_said(&c.v), "dv");
    row_expect(on, row_is_as_said(&from), "a record");
    test_tensor_free(&c.k);
    test_tensor_free(&c.v);
    test_tensor_free(&from);
}

static void add_some(const row_subject *on, const ra_shape *shape, rng *r, int64_t count) {
    ra_dtype acc = row_acc(shape);
    test_tensor x = test_tensor_make(r, acc, 1, 1, 1, count + 1);
    test_tensor y = test_tensor_make(r, acc, 1, 1, 1, count + 1);
    on->kernel->add(shape, x.memory, y.memory, count, on->context);
    for (int64_t i = 0; i < count; i++) x.exact[i] = row_rounded(acc, x.exact[i] + y.exact[i]);
    row_expect(on, row_is_as_said(&x), "the sum");
    row_expect(on, row_is_as_said(&y), "what is added");
    test_tensor_free(&x);
    test_tensor_free(&y);
}

static void add_is_element_by_element(const row_subject *on) {
    rng r = {on->seed};
    ra_shape shape = row_shape(&r, on->dtype);
    for (int64_t count = 0; count < 3000; count = 3 * count + rng_between(&r, 1, 2)) add_some(on, &shape, &r, count);
    add_some(on, &shape, &r, 200000 + rng_between(&r, 0, 9));
}

static void test_pack(void **state) {
    (void)state;
    row_for_all(pack_copies_rows);
}

static void test_add_rows(void **state) {
    (void)state;
    row_for_all(add_rows_adds_records);
}

static void test_add(void **state) {
    (void)state;
    row_for_all(add_is_element_by_element);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_add_rows),
        cmocka_unit_test(test_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
