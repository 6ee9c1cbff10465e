/* Every kernel's forward pass, for every type, against the definition of a tile. */
#include "support/cmocka.h"
#include "support/scale.h"
#include "support/tiles/tile_run.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const ra_dtype types[] = {RA_F64, RA_F32, RA_BF16, RA_F16};

/* ||error|| / ||o||: what the accumulation type leaves, then what the output type adds. */
static double tolerance(const ra_shape *shape, double arithmetic) {
    if (shape->out_dtype == RA_BF16) return 0x1p-8 + arithmetic;
    if (shape->out_dtype == RA_F16) return 0x1p-11;
    return arithmetic;
}

static void expect_close(const tile_case *c, const ra_kernel *kernel, const char *what, double error, double limit) {
    if (!(error <= limit))
        fail_msg("%s, %s, seed %u: %s is off by %g", kernel->name, ra_dtype_name(c->shape.dtype), c->seed, what, error);
}

static void check(const tile_case *c, const ra_kernel *kernel, int threads) {
    ra_context context = test_launch_make(kernel, &c->shape, threads);
    test_result got = test_run_forward(c, kernel, &context);
    int64_t rows = c->shape.batch * c->shape.heads_q * c->shape.rows_q, all = c->shape.states * rows;
    double limit = c->shape.dtype == RA_F64 ? 1e-14 : 1e-6, of_o = limit + test_rounding_of_p(kernel, c->shape.dtype);
    expect_close(c, kernel, "o", test_relative_error(got.o, c->o, rows * c->shape.dim_v), tolerance(&c->shape, of_o));
    expect_close(c, kernel, "lse", test_relative_error(got.lse, c->lse, rows), limit);
    expect_close(c, kernel, "a state's lse", test_relative_error(got.state_lse, c->state_lse, all), limit);
    expect_close(c, kernel, "a state's delta", test_relative_error(got.state_delta, c->state_delta, all), of_o);
    expect_close(c, kernel, "the number of elements written", (double)got.stray, 0);
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
                if (ra_kernel_at(i)->usable()) check(&c, ra_kernel_at(i), 1 + (int)(seed % 3));
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
            test_result a = test_run_forward(&c, kernel, &one), b = test_run_forward(&c, kernel, &four);
            assert_memory_equal(a.raw, b.raw, a.raw_bytes);
            test_result_free(&a);
            test_result_free(&b);
            test_launch_free(&one);
            test_launch_free(&four);
        }
        tile_case_free(&c);
    }
}

typedef struct progress_count {
    int calls, elsewhere;
    pthread_t caller;
    int stops; /* the call is to end */
} progress_count;

static int count_progress(void *user) {
    progress_count *count = user;
    if (pthread_equal(pthread_self(), count->caller))
        count->calls++;
    else
        __atomic_fetch_add(&count->elsewhere, 1, __ATOMIC_RELAXED);
    return count->stops;
}

static void test_progress_comes_from_the_calling_thread(void **state) {
    (void)state;
    tile_case c;
    print_message("seed 4\n");
    tile_case_make(&c, 4, RA_F32, 40);
    for (int i = 0; ra_kernel_at(i); i++) {
        if (!ra_kernel_at(i)->usable()) continue;
        for (int threads = 1; threads <= 3; threads += 2) {
            progress_count count = {0, 0, pthread_self(), 0};
            ra_context context = test_launch_make(ra_kernel_at(i), &c.shape, threads);
            context.progress = count_progress;
            context.progress_user = &count;
            test_result got = test_run_forward(&c, ra_kernel_at(i), &context);
            assert_int_equal(count.elsewhere, 0);
            if (threads == 1) assert_true(count.calls > 0);
            test_result_free(&got);
            test_launch_free(&context);
        }
    }
    tile_case_free(&c);
}

/* Whoever does not want the result any more says so when it is asked, and the call ends long before its last block. */
static void test_a_call_can_be_ended(void **state) {
    (void)state;
    tile_case c;
    tile_case_make(&c, 4, RA_F32, 40);
    for (int i = 0; ra_kernel_at(i); i++) {
        if (!ra_kernel_at(i)->usable()) continue;
        int calls[2];
        for (int stops = 0; stops <= 1; stops++) {
            int stop = 0;
            progress_count count = {0, 0, pthread_self(), stops};
            ra_context context = test_launch_make(ra_kernel_at(i), &c.shape, 1);
            context.progress = count_progress;
            context.progress_user = &count;
            context.stop = &stop;
            test_result got = test_run_forward(&c, ra_kernel_at(i), &context);
            calls[stops] = count.calls;
            assert_int_equal(stop, stops);
            test_result_free(&got);
            test_launch_free(&context);
        }
        print_message("%s: asked %d times, %d when it is to end\n", ra_kernel_at(i)->name, calls[0], calls[1]);
        assert_true(calls[1] < calls[0]);
    }
    tile_case_free(&c);
}

/* One head, dim 1, causal: o and lse [n] from q, k, v [n]. */
static void run_small(const ra_kernel *kernel, ra_dtype dtype, int64_t n, const double *q, const double *k,
                      const double *v, double *o_out, double *lse_out) {
    ra_dtype acc = dtype == RA_F64 ? RA_F64 : RA_F32;
    ra_shape shape = {.batch = 1,
                      .heads_q = 1,
                      .heads_kv = 1,
                      .dim = 1,
                      .dim_v = 1,
                      .rows_q = n,
                      .states = 1,
                      .scale = 1,
                      .weight = 1,
                      .dtype = dtype,
                      .out_dtype = acc};
    char memory[8][64 * 8];
    assert_true(n <= 64);
    ra_convert(dtype, memory[0], RA_F64, q, n);
    ra_convert(dtype, memory[1], RA_F64, k, n);
    ra_convert(dtype, memory[2], RA_F64, v, n);
    ra_view view = {NULL, n, 1, 1, 1};
    ra_view qv = view, ov = view, sum = view;
    ra_kv_rows part = {.k = view, .v = view, .heads = {0, 1, 1}};
    qv.data = memory[0], part.k.data = memory[1], part.v.data = memory[2], ov.data = memory[3];
    sum.data = memory[4];
    ra_tile tile = {.q_rows = {0, 1, n}, .k_rows = {0, 1, n}, .heads = {0, 1, 1}, .lo = -n};
    ra_tile_group group = {0, 1};
    ra_tile_round round = {.count = 1};
    ra_state state = {sum, n, memory[5], memory[6]};
    ra_context context = test_launch_make(kernel, &shape, 1);
    ra_forward_call call = {&shape, qv, &part, {&tile, &group, &round, 1, 1, 1}, state, context, NULL, NULL, NULL};
    kernel->begin(&shape, state, &context);
    kernel->forward(&call);
    kernel->finish(&shape, state, ov, ra_array_view(&shape, memory[7]), &context);
    ra_convert(RA_F64, o_out, acc, memory[3], n);
    ra_convert(RA_F64, lse_out, acc, memory[7], n);
    test_launch_free(&context);
}

/* Scores of -inf count as unseen; a score of +inf makes o and lse NaN; huge ones differ by more than a type holds. */
static void test_extreme_scores(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++) {
        double big = types[t] == RA_F64 ? 1e300 : 0x1p100;
        const double q[5] = {big, big, 1, big, 1}, k[5] = {-big, -big, -big, big, 2}, v[5] = {1, 2, 3, 4, 5};
        for (int i = 0; ra_kernel_at(i); i++) {
            double o[5], lse[5];
            if (!ra_kernel_at(i)->usable()) continue;
            run_small(ra_kernel_at(i), types[t], 5, q, k, v, o, lse);
            assert_true(lse[0] == -INFINITY && o[0] == 0);
            assert_true(lse[1] == -INFINITY && o[1] == 0);
            assert_true(fabs(lse[2] + big) <= 1e-6 * big && fabs(o[2] - 2) < 1e-6);
            assert_true(isnan(lse[3]) && isnan(o[3]));
            assert_true(fabs(lse[4] - big) <= 1e-6 * big && fabs(o[4] - 4) < 1e-6);
        }
    }
}

/* Row 0 sees only a NaN, row 1 it and what is good: a query, or a key, that is broken does not look healthy. */
static void test_nan_is_not_swallowed(void **state) {
    (void)state;
    const double ones[3] = {1, 1, 1}, broken[3] = {NAN, NAN, 1}, v[3] = {1, 2, 3};
    for (int i = 0; ra_kernel_at(i); i++) {
        double o[3], lse[3];
        if (!ra_kernel_at(i)->usable()) continue;
        for (int t = 0; t < 4; t++) {
            run_small(ra_kernel_at(i), types[t], 3, broken, ones, v, o, lse);
            assert_true(isnan(o[0]) && isnan(lse[0]) && isnan(o[1]) && isnan(lse[1]));
            assert_true(fabs(o[2] - 2) < 1e-6 && fabs(lse[2] - 1 - log(3)) < 1e-6);
            run_small(ra_kernel_at(i), types[t], 3, ones, broken, v, o, lse);
            for (int row = 0; row < 3; row++) assert_true(isnan(o[row]) && isnan(lse[row]));
        }
    }
}

/* What a row does not see cannot spoil it, even where the key stands in a block with keys that it sees. */
static void test_unseen_values_do_not_leak(void **state) {
    (void)state;
    const double q[4] = {1, 1, 1, 1};
    double k[4] = {1, 1, 1, 1}, v[4] = {1, 2, 3, INFINITY}, o[4], lse[4];
    for (int i = 0; ra_kernel_at(i); i++) {
        if (!ra_kernel_at(i)->usable()) continue;
        for (int nan_key = 0; nan_key < 2; nan_key++) {
            k[3] = nan_key ? NAN : 1;
            for (int t = 1; t < 3; t++) {
                run_small(ra_kernel_at(i), types[t], 4, q, k, v, o, lse);
                assert_true(fabs(o[0] - 1) < 1e-6 && fabs(o[1] - 1.5) < 1e-6 && fabs(o[2] - 2) < 1e-6);
                assert_true(nan_key ? isnan(o[3]) : o[3] == INFINITY);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_tiles),
        cmocka_unit_test(test_bits_do_not_depend_on_threads),
        cmocka_unit_test(test_progress_comes_from_the_calling_thread),
        cmocka_unit_test(test_a_call_can_be_ended),
        cmocka_unit_test(test_extreme_scores),
        cmocka_unit_test(test_nan_is_not_swallowed),
        cmocka_unit_test(test_unseen_values_do_not_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
