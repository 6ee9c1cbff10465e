/* Every kernel's backward pass, for every type, against the definition of a tile and by finite differences. */
#include "support/cmocka.h"
#include "support/scale.h"
#include "support/tiles/tile_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ra_dtype types[] = {RA_F64, RA_F32, RA_BF16, RA_F16};

/* ||got - (want + start)|| relative to its size, or to that of elements of 1 where it is smaller: a row that sees one
 * key has ds = 0 exactly, the difference of two equal sums, which rounding leaves a little off. */
static double error_of(const double *got, const double *want, int64_t count, double start) {
    double off = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        double right = want[i] + start;
        off += (got[i] - right) * (got[i] - right);
        size += right * right;
    }
    return sqrt(off / fmax(size, (double)count));
}

static void expect_close(const tile_case *c, const ra_kernel *kernel, const char *what, double error, double limit) {
    if (!(error <= limit))
        fail_msg("%s, %s, seed %u: %s is off by %g", kernel->name, ra_dtype_name(c->shape.dtype), c->seed, what, error);
}

static void check(const tile_case *c, const ra_kernel *kernel, int threads, double start) {
    ra_context context = test_launch_make(kernel, &c->shape, threads);
    test_result got = test_run_backward(c, kernel, &context, start);
    double limit = c->shape.dtype == RA_F64 ? 1e-13 : 1e-5 + 4 * test_rounding_of_p(kernel, c->shape.dtype);
    expect_close(c, kernel, "dq", error_of(got.dq, c->dq_want, c->dq.elements, start), limit);
    for (int i = 0; i < TEST_PARTS; i++) {
        expect_close(c, kernel, "dk", error_of(got.dk[i], c->dk_want[i], c->dk[i].elements, start), limit);
        expect_close(c, kernel, "dv", error_of(got.dv[i], c->dv_want[i], c->dv[i].elements, start), limit);
    }
    test_result_free(&got);
    test_launch_free(&context);
}

static void test_random_tiles(void **state) {
    (void)state;
    unsigned seeds = scaled_count(60);
    print_message("seeds 1 to %u, each with every type and kernel\n", seeds);
    for (int i = 0; ra_kernel_at(i); i++)
        if (!ra_kernel_at(i)->usable()) print_message("%s: not on this machine\n", ra_kernel_at(i)->name);
    for (unsigned seed = 1; seed <= seeds; seed++) {
        for (int t = 0; t < 4; t++) {
            tile_case c;
            tile_case_make(&c, seed, types[t], seed % 10 == 0 ? 256 : 40);
            for (int i = 0; ra_kernel_at(i); i++)
                if (ra_kernel_at(i)->usable()) check(&c, ra_kernel_at(i), 1 + (int)(seed % 3), seed % 2);
            tile_case_free(&c);
        }
    }
}

static void test_bits_do_not_depend_on_threads(void **state) {
    (void)state;
    print_message("seeds 100 to 109\n");
    for (unsigned seed = 100; seed < 110; seed++) {
        tile_case c;
        tile_case_make(&c, seed, RA_F32, 40);
        for (int i = 0; ra_kernel_at(i); i++) {
            const ra_kernel *kernel = ra_kernel_at(i);
            if (!kernel->usable()) continue;
            ra_context one = test_launch_make(kernel, &c.shape, 1), four = test_launch_make(kernel, &c.shape, 4);
            test_result a = test_run_backward(&c, kernel, &one, 0), b = test_run_backward(&c, kernel, &four, 0);
            assert_memory_equal(a.raw, b.raw, a.raw_bytes);
            test_result_free(&a);
            test_result_free(&b);
            test_launch_free(&one);
            test_launch_free(&four);
        }
        tile_case_free(&c);
    }
}

/* The loss whose gradients, over the weight, the backward pass gives: sum of dout * o, o by the same kernel's forward
 * pass. */
static double loss(const tile_case *c, const ra_kernel *kernel, const ra_context *context) {
    test_result got = test_run_forward(c, kernel, context);
    const ra_shape *shape = &c->shape;
    double sum = 0;
    for (int64_t i = 0; i < shape->batch * shape->heads_q * shape->rows_q * shape->dim_v; i++) {
        int64_t d = i % shape->dim_v, row = i / shape->dim_v % shape->rows_q;
        int64_t head = i / shape->dim_v / shape->rows_q % shape->heads_q;
        int64_t b = i / shape->dim_v / shape->rows_q / shape->heads_q;
        sum += got.o[i] * c->dout.exact[test_index(c->dout.view, b, row, head, d)];
    }
    test_result_free(&got);
    return sum;
}

static void check_slope(const tile_case *c, const ra_kernel *kernel, const ra_context *context, double *x,
                        double slope) {
    const double step = 1e-5;
    double keep = *x;
    *x = keep + step;
    double up = loss(c, kernel, context);
    *x = keep - step;
    double down = loss(c, kernel, context);
    *x = keep;
    double found = (up - down) / (2 * step);
    if (!(fabs(found - slope) <= 1e-6 * (1 + fabs(slope))))
        fail_msg("%s, seed %u: the slope is %.12g, the gradient says %.12g", kernel->name, c->seed, found, slope);
}

/* x's view and its gradient's differ in their strides, so each has its index. */
static void check_tensor(const tile_case *c, const ra_kernel *kernel, const ra_context *context, const test_tensor *x,
                         ra_view gradient_view, const double *gradient, int64_t rows, int64_t heads, int64_t width) {
    rng r = {c->seed};
    for (int i = 0; i < 6; i++) {
        int64_t b = rng_between(&r, 0, c->shape.batch - 1), row = rng_between(&r, 0, rows - 1);
        int64_t h = rng_between(&r, 0, heads - 1), d = rng_between(&r, 0, width - 1);
        double *element = (double *)x->memory + test_index(x->view, b, row, h, d);
        double slope = c->shape.weight * gradient[test_index(gradient_view, b, row, h, d)];
        check_slope(c, kernel, context, element, slope);
    }
}

static void test_finite_differences(void **state) {
    (void)state;
    print_message("seeds 200 to 205\n");
    for (unsigned seed = 200; seed < 206; seed++) {
        tile_case c;
        tile_case_make(&c, seed, RA_F64, 8);
        const ra_shape *shape = &c.shape;
        for (int i = 0; ra_kernel_at(i); i++) {
            const ra_kernel *kernel = ra_kernel_at(i);
            if (!kernel->usable()) continue;
            ra_context context = test_launch_make(kernel, shape, 1);
            test_result got = test_run_backward(&c, kernel, &context, 0);
            int64_t heads = c.parts[0].heads.count;
            check_tensor(&c, kernel, &context, &c.q, c.dq.view, got.dq, shape->rows_q, shape->heads_q, shape->dim);
            for (int p = 0; p < TEST_PARTS; p++) {
                int64_t rows = c.part_rows[p];
                check_tensor(&c, kernel, &context, &c.k[p], c.dk[p].view, got.dk[p], rows, heads, shape->dim);
                check_tensor(&c, kernel, &context, &c.v[p], c.dv[p].view, got.dv[p], rows, heads, shape->dim_v);
            }
            test_result_free(&got);
            test_launch_free(&context);
        }
        tile_case_free(&c);
    }
}

/* One head, dim 1, three rows, each seeing its own key only. Row 0 saw nothing, by its lse. What row 2 and key 2 hold
 * is theirs alone, though they share a block with the others. */
static void check_unseen_rows(const ra_kernel *kernel, ra_dtype dtype) {
    ra_shape shape = {.batch = 1,
                      .heads_q = 1,
                      .heads_kv = 1,
                      .dim = 1,
                      .dim_v = 1,
                      .rows_q = 3,
                      .states = 1,
                      .scale = 1,
                      .weight = 1,
                      .dtype = dtype,
                      .out_dtype = RA_F32};
    enum { Q, K, V, DOUT, INPUTS };
    static const float in[INPUTS][3] = {{1, 1, INFINITY}, {1, 1, NAN}, {1, 2, INFINITY}, {NAN, 3, NAN}};
    float lse[3] = {-INFINITY, 1, 0}, delta[3] = {NAN, 5, 0}, dq[3] = {0}, dk[3] = {0}, dv[3] = {0};
    float memory[INPUTS][3]; /* holds any type that is summed in float */
    ra_tile tile = {.q_rows = {0, 1, 3}, .k_rows = {0, 1, 3}, .heads = {0, 1, 1}};
    ra_tile_group group = {0, 1};
    ra_tile_round round = {.count = 1};
    ra_view view[INPUTS], sum = {dq, 3, 1, 1, 1};
    for (int i = 0; i < INPUTS; i++) {
        ra_convert(dtype, memory[i], RA_F32, in[i], 3);
        view[i] = (ra_view){memory[i], 3, 1, 1, 1};
    }
    ra_kv_rows part = {view[K], view[V], sum, sum, {0, 1, 1}};
    part.dk.data = dk, part.dv.data = dv;
    ra_context context = test_launch_make(kernel, &shape, 1);
    ra_backward_call call = {.shape = &shape,
                             .q = view[Q],
                             .dout = view[DOUT],
                             .lse = lse,
                             .delta = delta,
                             .parts = &part,
                             .tiles = {&tile, &group, &round, 1, 1, 1},
                             .dq = sum,
                             .context = context};
    kernel->backward(&call);
    assert_true(dq[0] == 0 && dk[0] == 0 && dv[0] == 0);
    assert_true(fabsf(dq[1] - 1) < 1e-6f && fabsf(dk[1] - 1) < 1e-6f && fabsf(dv[1] - 3) < 1e-6f);
    assert_true(isnan(dv[2]));
    test_launch_free(&context);
}

static void test_unseen_rows_do_not_leak(void **state) {
    (void)state;
    for (int i = 0; ra_kernel_at(i); i++) {
        if (!ra_kernel_at(i)->usable()) continue;
        check_unseen_rows(ra_kernel_at(i), RA_F32);
        check_unseen_rows(ra_kernel_at(i), RA_BF16);
        check_unseen_rows(ra_kernel_at(i), RA_F16);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_tiles),
        cmocka_unit_test(test_bits_do_not_depend_on_threads),
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_unseen_rows_do_not_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
