/* The outputs of rows, by every kernel: storing sums and filling in one value, through views of all kinds. */
#include "support/cmocka.h"
#include "support/tiles/row_case.h"

#include <math.h>

/* Any number of rows, heads and columns, which need not be the shape's. */
typedef struct output_case {
    ra_shape shape;
    int64_t rows, heads, width;
    test_tensor to;
} output_case;

static output_case make_output(const row_subject *on, rng *r) {
    output_case c = {.shape = row_shape(r, on->dtype)};
    c.rows = rng_between(r, 1, 600);
    c.heads = rng_between(r, 1, 5);
    c.width = rng_between(r, 1, 40);
    c.to = test_tensor_make(r, c.shape.out_dtype, c.shape.batch, c.rows, c.heads, c.width);
    return c;
}

/* In place where the types allow it, for most seeds. */
static void store_rounds_once(const row_subject *on) {
    rng r = {on->seed};
    output_case c = make_output(on, &r);
    test_tensor other = test_tensor_make(&r, row_acc(&c.shape), c.shape.batch, c.rows, c.heads, c.width);
    const test_tensor *from = c.to.dtype == other.dtype && on->seed % 3 ? &c.to : &other;
    on->kernel->store(&c.shape, c.to.view, from->view, c.rows, c.heads, c.width, on->context);
    for (int64_t i = 0; i < c.shape.batch * c.rows * c.heads * c.width; i++) {
        int64_t d = i % c.width, h = i / c.width % c.heads, row = i / c.width / c.heads % c.rows;
        int64_t b = i / c.width / c.heads / c.rows;
        double x = from->exact[test_index(from->view, b, row, h, d)];
        *row_changed(&c.to, b, row, h, d) = row_rounded(c.to.dtype, c.shape.weight * x);
    }
    row_expect(on, row_is_as_said(&c.to), "what is stored");
    row_expect(on, row_is_as_said(&other), "what is read");
    test_tensor_free(&other);
    test_tensor_free(&c.to);
}

/* The weight has no part in it. NaN is filled in where a call has failed. */
static void fill_is_the_value(const row_subject *on) {
    static const double values[] = {0, 0.1, NAN};
    rng r = {on->seed};
    output_case c = make_output(on, &r);
    double value = values[on->seed % 3];
    on->kernel->fill(&c.shape, c.to.view, c.rows, c.heads, c.width, value, on->context);
    for (int64_t i = 0; i < c.shape.batch * c.rows * c.heads * c.width; i++) {
        int64_t d = i % c.width, h = i / c.width % c.heads, row = i / c.width / c.heads % c.rows;
        int64_t b = i / c.width / c.heads / c.rows;
        double now = row_element(&c.to, b, row, h, d);
        row_expect(on, isnan(value) ? isnan(now) : now == row_rounded(c.to.dtype, value), "what is filled in");
        *row_changed(&c.to, b, row, h, d) = NAN;
    }
    row_expect(on, row_is_as_said(&c.to), "what fill has to leave alone");
    test_tensor_free(&c.to);
}

static void test_store(void **state) {
    (void)state;
    row_for_all(store_rounds_once);
}

static void test_fill(void **state) {
    (void)state;
    row_for_all(fill_is_the_value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_fill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
