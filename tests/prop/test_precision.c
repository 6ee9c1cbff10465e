/* Low precision: f32 close to fp64, and an error that does not grow with the number of ranks. */
#include "support/cmocka.h"
#include "support/problems/sweep.h"

#include <stdio.h>

/* Problems in which nothing cancels to zero, so that an error relative to the norm means something. */
static const struct {
    int64_t batch, seq_q, seq_k, heads_q, heads_kv, dim, dim_v;
    int causal;
    int64_t left, right;
} problems[] = {
    {1, 512, 512, 2, 2, 64, 64, 0, -1, -1},  {1, 400, 400, 2, 1, 128, 128, 1, -1, -1},
    {2, 333, 500, 2, 2, 40, 72, 1, -1, -1},  {1, 600, 600, 3, 1, 64, 64, 1, 200, 0},
    {1, 257, 1024, 2, 2, 256, 17, 0, -1, 3}, {1, 3824, 3824, 1, 1, 32, 32, 1, -1, -1},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

static void make_case(test_case *c, int i, ra_dtype dtype, int wide_output) {
    *c = (test_case){
        .seed = 100 + (uint64_t)i, .problem = RA_PROBLEM_INIT, .options = RA_OPTIONS_INIT, .strides = i % 3};
    ra_problem *p = &c->problem;
    p->dtype = dtype;
    p->out_dtype = wide_output ? RA_F32 : dtype;
    p->batch = problems[i].batch, p->seq_q = problems[i].seq_q, p->seq_k = problems[i].seq_k;
    p->heads_q = problems[i].heads_q, p->heads_kv = problems[i].heads_kv;
    p->dim = problems[i].dim, p->dim_v = problems[i].dim_v;
    p->causal = problems[i].causal;
    p->window_left = problems[i].left, p->window_right = problems[i].right;
    c->options.backward = 1;
    c->options.threads = 1;
}

static void check_result(const sweep_result *r, int ranks, int i) {
    if (r->wrong_infinities) fail_msg("problem %d, p = %d: %d wrong infinities", i, ranks, r->wrong_infinities);
    assert_int_equal(r->traffic_differs, 0);
}

static void test_f32_is_close_to_fp64(void **state) {
    (void)state;
    double worst = 0;
    for (int i = 0; i < PROBLEMS; i++) {
        static test_case c;
        make_case(&c, i, RA_F32, 0);
        sweep_data *data = sweep_data_make(&c);
        for (int kernel = 0; ra_kernel_name(kernel); kernel++) {
            c.options.kernel = ra_kernel_name(kernel);
            if (!ra_kernel_usable(kernel)) {
                if (i == 0) print_message("%s: not on this machine\n", c.options.kernel);
                continue;
            }
            for (int ranks = 1; ranks <= 7; ranks += 3) {
                sweep_result r;
                c.options.strategy = (ra_strategy)(1 + (i + ranks) % 4);
                c.options.layout = (ra_layout)(1 + (i + kernel) % 3);
                if (sweep_threads(ranks, data, 1, &r) != RA_OK) fail_msg("%s", ra_last_error());
                check_result(&r, ranks, i);
                if (sweep_worst_relative(&r) > worst) worst = sweep_worst_relative(&r);
                if (sweep_worst_relative(&r) > 2e-6)
                    fail_msg("problem %d, kernel %s, p = %d: o %.2g lse %.2g dq %.2g dk %.2g dv %.2g", i,
                             c.options.kernel, ranks, r.relative[0], r.relative[1], r.relative[2], r.relative[3],
                             r.relative[4]);
            }
        }
        sweep_data_free(data);
    }
    printf("f32: worst relative error %.2g\n", worst);
}

/* The error at every p against that of one rank, per output; lse, whose error is that of f32, against f32's bound. */
static void check_flat(ra_dtype dtype, int wide_output) {
    double worst = 0;
    for (int i = 0; i < PROBLEMS - 1; i++) {
        static test_case c;
        sweep_result one, r;
        make_case(&c, i, dtype, wide_output);
        sweep_data *data = sweep_data_make(&c);
        c.options.layout = RA_LAYOUT_ZIGZAG;
        if (sweep_threads(1, data, 1, &one) != RA_OK) fail_msg("%s", ra_last_error());
        for (int ranks = 2; ranks <= 16; ranks += ranks < 4 ? 1 : 4) {
            c.options.strategy = (ra_strategy)(1 + ranks % 4);
            if (sweep_threads(ranks, data, 1, &r) != RA_OK) fail_msg("%s", ra_last_error());
            check_result(&r, ranks, i);
            for (int out = 0; out < OUT_COUNT; out++) {
                double ratio = r.relative[out] / (one.relative[out] > 2e-7 ? one.relative[out] : 2e-7);
                if (ratio > worst) worst = ratio;
                if (ratio > 1.5)
                    fail_msg("%s, problem %d, output %d, p = %d: error %.3g, %.2f times that of one rank, %.3g",
                             ra_dtype_name(dtype), i, out, ranks, r.relative[out], ratio, one.relative[out]);
            }
        }
        sweep_data_free(data);
    }
    printf("%s, output %s: worst error over that of one rank, p to 16: %.3f\n", ra_dtype_name(dtype),
           wide_output ? "f32" : "the same", worst);
}

static void test_error_is_flat_in_p(void **state) {
    (void)state;
    check_flat(RA_F32, 0);
    check_flat(RA_BF16, 0);
    check_flat(RA_BF16, 1);
    check_flat(RA_F16, 0);
    check_flat(RA_F16, 1);
}

static void check_long_sums(const test_case *c, const sweep_result *r) {
    int many_keys = c->problem.seq_q < c->problem.seq_k;
    printf("%s, %lld queries, %lld keys: o %.2g lse %.2g dq %.2g dk %.2g dv %.2g\n", c->options.kernel,
           (long long)c->problem.seq_q, (long long)c->problem.seq_k, r->relative[OUT_O], r->relative[OUT_LSE],
           r->relative[OUT_DQ], r->relative[OUT_DK], r->relative[OUT_DV]);
    assert_true(r->relative[OUT_O] < 8e-7 && r->relative[OUT_LSE] < 2e-7 && r->relative[OUT_DV] < 8e-7);
    assert_true(many_keys ? r->relative[OUT_DQ] < 1e-2 : r->relative[OUT_DK] < 8e-7);
}

/* Few queries, many keys, or the other way round, of values that are all positive, so that no error averages out: the
 * error of sums does not grow with their length. dq is the difference of sums that nearly cancel; its error is that of
 * o times the root of the length. */
static void check_long(int64_t seq_q, int64_t seq_k) {
    static test_case c;
    c = (test_case){.seed = 3, .problem = RA_PROBLEM_INIT, .options = RA_OPTIONS_INIT, .positive = 1};
    c.problem.seq_q = seq_q, c.problem.seq_k = seq_k, c.problem.heads_q = 1, c.problem.dim = 8;
    c.options.backward = c.options.threads = 1;
    sweep_data *data = sweep_data_make(&c);
    assert_non_null(data);
    for (int kernel = 1; ra_kernel_name(kernel); kernel++) { /* ref sums in doubles */
        sweep_result r;
        c.options.kernel = ra_kernel_name(kernel);
        if (!ra_kernel_usable(kernel)) continue;
        if (sweep_threads(1, data, 1, &r) != RA_OK) fail_msg("%s", ra_last_error());
        check_long_sums(&c, &r);
    }
    sweep_data_free(data);
}

static void test_error_is_flat_in_n(void **state) {
    (void)state;
    enum { LONG = 1 << 21 };
    check_long(4, LONG);
    check_long(LONG, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32_is_close_to_fp64),
        cmocka_unit_test(test_error_is_flat_in_p),
        cmocka_unit_test(test_error_is_flat_in_n),
    };
    return cmocka_run_group_tests_name("precision", tests, NULL, NULL);
}
