/* The score stage for scalars: what a dot becomes, who takes part, and that the derivative is that of the forward. The
 * same in vectors is compared with an implementation of its own by test_forward and test_backward. */
#include "kernel/score.h"
#include "support/cmocka.h"
#include "support/rng.h"

enum { KEYS = 7 };

static const ra_tile TILE = {.q_rows = {0, 1, 1}, .k_rows = {0, 1, KEYS}, .heads = {0, 1, 1}, .hi = KEYS};

static ra_score stage_of(ra_dtype dtype, double scale) {
    ra_shape shape = {.scale = scale, .dtype = dtype};
    return ra_score_make(&shape);
}

static ra_score_place place_of(int64_t key) {
    return (ra_score_place){&TILE, 0, 0, key};
}

/* A score is rounded once, to the accumulation type. */
static void test_scores_are_rounded(void **state) {
    (void)state;
    double dot = 123456789.1234567, scale = 1.0 / 3;
    ra_score narrow = stage_of(RA_BF16, scale), wide = stage_of(RA_F64, scale);
    assert_true(ra_score_of(&narrow, place_of(0), dot) == (double)(float)(scale * dot));
    assert_true(ra_score_of(&wide, place_of(0), dot) == scale * dot);
    assert_true(ra_score_of(&narrow, place_of(0), dot) != ra_score_of(&wide, place_of(0), dot));
}

/* Sum over keys of P dP, and log of the sum of e^score, by the forward functions. */
static double weigh(const ra_score *stage, const double *dots, const double *dp, double *lse_out) {
    double m = -INFINITY, l = 0, sum = 0;
    for (int j = 0; j < KEYS; j++) m = fmax(m, ra_score_of(stage, place_of(j), dots[j]));
    for (int j = 0; j < KEYS; j++) {
        double score = ra_score_of(stage, place_of(j), dots[j]);
        sum += ra_score_forward(stage, place_of(j), score, m, &l) * dp[j];
    }
    *lse_out = m + log(l);
    return sum / l;
}

static void test_derivative_is_the_forwards(void **state) {
    (void)state;
    print_message("seed 11\n");
    rng r = {11};
    for (int n = 0; n < 50; n++) {
        ra_score stage = stage_of(RA_F64, 2 * rng_real(&r));
        double dots[KEYS], dp[KEYS], lse, p = 0, ds = 0, total = 0, step = 1e-6;
        for (int j = 0; j < KEYS; j++) dots[j] = 3 * rng_real(&r), dp[j] = rng_real(&r);
        double delta = weigh(&stage, dots, dp, &lse);
        for (int j = 0; j < KEYS; j++) {
            double own_lse = lse, before = dots[j];
            assert_int_equal(ra_score_backward(&stage, place_of(j), before, dp[j], lse, delta, &p, &ds), 1);
            total += p;
            dots[j] = before + step;
            double above = weigh(&stage, dots, dp, &own_lse);
            dots[j] = before - step;
            double under = weigh(&stage, dots, dp, &own_lse);
            dots[j] = before;
            assert_true(fabs((above - under) / (2 * step) - ds) < 1e-8);
        }
        assert_true(fabs(total - 1) < 1e-14);
    }
}

/* A row that saw nothing and a score of -inf take no part; what is NaN, or an lse of +inf, shows. */
static void test_who_takes_part(void **state) {
    (void)state;
    ra_score stage = stage_of(RA_F32, 1);
    double p = 5, ds = 6;
    assert_int_equal(ra_score_backward(&stage, place_of(0), 1, 1, -INFINITY, 1, &p, &ds), 0);
    assert_int_equal(ra_score_backward(&stage, place_of(0), -INFINITY, 1, 0, 1, &p, &ds), 0);
    assert_true(p == 5 && ds == 6);
    assert_int_equal(ra_score_backward(&stage, place_of(0), 1, 1, INFINITY, 1, &p, &ds), 1);
    assert_true(isnan(p) && isnan(ds));
    assert_int_equal(ra_score_backward(&stage, place_of(0), NAN, 1, 0, 1, &p, &ds), 1);
    assert_true(isnan(p) && isnan(ds));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores_are_rounded),
        cmocka_unit_test(test_derivative_is_the_forwards),
        cmocka_unit_test(test_who_takes_part),
    };
    return cmocka_run_group_tests_name("score", tests, NULL, NULL);
}
