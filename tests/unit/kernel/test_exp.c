/* The portable kernel's vector exponential for float. */
#include "kernel/cpu/portable/type_f32.h"
#include "support/cmocka.h"

#include <string.h>

static float exp_of(float x) {
    vec y = vec_exp(splat(x));
    for (int i = 1; i < LANES; i++) assert_memory_equal(&y, (char *)&y + (size_t)i * sizeof(float), sizeof(float));
    return y[0];
}

/* The error in units of the last place of the right result. */
static double ulps(float x) {
    double right = exp((double)x);
    float rounded = (float)right;
    return fabs((double)exp_of(x) - right) / ((double)nextafterf(rounded, INFINITY) - (double)rounded);
}

/* Every 37th float: 8 million of them from -87 to -2^-27, where e^x rounds to 1. */
static void test_two_ulps_from_minus_87_to_0(void **state) {
    (void)state;
    double worst = 0;
    for (float x = -87; x < -0x1p-27f;) {
        uint32_t bits;
        worst = fmax(worst, ulps(x));
        memcpy(&bits, &x, sizeof bits);
        bits -= 37;
        memcpy(&x, &bits, sizeof x);
    }
    print_message("worst error: %.3f ulp\n", worst);
    assert_true(worst <= 2);
}

static void test_edges(void **state) {
    (void)state;
    assert_true(exp_of(0) == 1);
    assert_true(exp_of(-0.0f) == 1);
    assert_true(exp_of(-0x1p-40f) == 1);
    assert_true(exp_of(-87) > 0);
    assert_true(exp_of(nextafterf(-87, -INFINITY)) == 0);
    assert_true(exp_of(-1e30f) == 0);
    assert_true(exp_of(-3e38f) == 0);
    assert_true(exp_of(-INFINITY) == 0);
    assert_true(!signbit(exp_of(-INFINITY)));
    assert_true(isnan(exp_of(NAN)));
    assert_true(ulps(1) <= 2 && ulps(50) <= 2 && ulps(88) <= 2);
    assert_true(isfinite(exp_of(INFINITY)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ulps_from_minus_87_to_0),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
