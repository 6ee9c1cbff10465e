/* Inputs of unusual size through every kernel: results stay finite and right. What f32 cannot do is allowed for: a
 * score of size s is known to about s * 2^-22, and its exponential as badly. */
#include "support/cmocka.h"
#include "support/problems/sweep.h"

#include <math.h>

/* In place of the size of scores: one key of each row has all the weight, and no error of the scores shows. */
#define WINNER 0

/* scale 0: the usual one. */
static const struct {
    const char *name;
    double size_qk, scale, size_v, score; /* score: the size of the largest */
} sizes[] = {
    {"usual", 1, 0, 1, 5},
    {"all inputs 1e-4", 1e-4, 0, 1e-4, 1e-7},
    {"all inputs 1e4, usual scores", 1e4, 1e-8 / 8, 1e4, 5},
    {"all inputs 1e-4, usual scores", 1e-4, 1e8 / 8, 1e-4, 5},
    {"scores of 5e4", 100, 0, 1, 5e4},
    {"scores of 5e4, negative scale", 100, -1.0 / 8, 1e3, 5e4},
    {"values too small to be normal", 1, 0, 1e-40, 5},
    {"queries and keys too small to be normal", 1e-40, 0, 1, 1e-30},
    {"scores near 0", 1, 1e-30, 1, 1e-30},
    {"scores of 4e6", 1, 1e5, 1, WINNER},
    {"scores of 4e10", 1, -1e9, 1, WINNER},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* dq and dk are differences of nearly equal numbers, times the scale. */
static int means_something(int which, int out) {
    return sizes[which].score != WINNER || out == OUT_O || out == OUT_LSE || out == OUT_DV;
}

static double tolerance(ra_dtype dtype, double score, double size_v) {
    double type = dtype == RA_F32 ? 2e-6 : dtype == RA_BF16 ? 0x1p-6 : 0x1p-9;
    return type + score * 0x1p-22 * 8 + (size_v < 1e-30 ? 1e-3 : 0);
}

/* Kernels by products of pairs take what is not normal for 0: off by no more than that. */
static int is_close(const sweep_result *r, int out, double limit) {
    return r->relative[out] <= limit || r->max_abs[out] <= 0x1p-120;
}

static void check(int which, ra_dtype dtype, const char *kernel) {
    static test_case c;
    c = (test_case){.seed = 40 + (uint64_t)which, .problem = RA_PROBLEM_INIT, .options = RA_OPTIONS_INIT};
    c.size_qk = sizes[which].size_qk;
    c.size_v = sizes[which].size_v;
    c.problem.dtype = dtype;
    c.problem.out_dtype = RA_F32;
    c.problem.seq_q = 300; /* the first 60 see nothing */
    c.problem.seq_k = 240;
    c.problem.heads_q = 2;
    c.problem.dim = 64;
    c.problem.causal = 1;
    if (sizes[which].scale != 0) c.problem.scale = sizes[which].scale;
    c.options.backward = 1;
    c.options.threads = 1;
    c.options.kernel = kernel;
    sweep_data *data = sweep_data_make(&c);
    assert_non_null(data);
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        sweep_result r;
        if (sweep_threads(ranks, data, 1, &r) != RA_OK) fail_msg("%s", ra_last_error());
        if (r.wrong_infinities) fail_msg("%s, %s, %s: not finite", sizes[which].name, kernel, ra_dtype_name(dtype));
        for (int out = 0; out < OUT_COUNT; out++)
            if (means_something(which, out) &&
                !is_close(&r, out, tolerance(dtype, sizes[which].score, sizes[which].size_v)))
                fail_msg("%s, %s, %s, p = %d: output %d is off by %.3g (relative %.3g)", sizes[which].name, kernel,
                         ra_dtype_name(dtype), ranks, out, r.max_abs[out], r.relative[out]);
    }
    sweep_data_free(data);
}

/* f16 ends at 65504: its inputs are not made larger or smaller than it holds. */
static int holds(ra_dtype dtype, int which) {
    return dtype != RA_F16 || (sizes[which].size_qk >= 1e-3 && sizes[which].size_v >= 1e-3 &&
                               sizes[which].size_qk <= 1e3 && sizes[which].size_v <= 1e3);
}

static void test_sizes(void **state) {
    (void)state;
    static const ra_dtype types[] = {RA_F32, RA_BF16, RA_F16};
    for (int kernel = 0; ra_kernel_name(kernel); kernel++) {
        if (!ra_kernel_usable(kernel)) {
            print_message("%s: not on this machine\n", ra_kernel_name(kernel));
            continue;
        }
        for (int which = 0; which < SIZES; which++)
            for (int t = 0; t < 3; t++)
                if (holds(types[t], which)) check(which, types[t], ra_kernel_name(kernel));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests_name("extremes", tests, NULL, NULL);
}
