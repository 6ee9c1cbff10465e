/* Every kernel's vector exponentials, where this machine can run it. */
#include "kernel/backend.h"
#include "kernel/cpu/portable/portable.h"
#include "support/cmocka.h"
#include "support/rng.h"
#if defined(__x86_64__)
#include "kernel/cpu/avx2/avx2.h"
#include "kernel/cpu/avx512/avx512.h"
#endif

#include <math.h>
#include <string.h>

typedef void (*exponential)(float *x, int64_t count);

static const struct {
    const char *kernel;
    exponential run;
    void (*run_double)(double *x, int64_t count);
} all[] = {
    {"portable", ra_portable_exp_f32, ra_portable_exp_f64},
#if defined(__x86_64__)
    {"avx2", ra_avx2_exp_f32, ra_avx2_exp_f64},
    {"avx512", ra_avx512_exp_f32, ra_avx512_exp_f64},
#endif
};

enum { COUNT = sizeof all / sizeof *all };

static int usable(int which) {
    const ra_kernel *kernel;
    return ra_backend_find_kernel(&ra_backend_cpu, all[which].kernel, &kernel) == RA_OK;
}

static double ulps_between(float got, float x) {
    double right = exp((double)x);
    float rounded = (float)right;
    return fabs((double)got - right) / ((double)nextafterf(rounded, INFINITY) - (double)rounded);
}

/* Every 37th float: 8 million of them from -87 to -2^-27, where e^x rounds to 1. */
static double worst_from_minus_87_to_0(exponential run) {
    enum { BATCH = 4096 };
    float x[BATCH], y[BATCH], next = -87;
    double worst = 0;
    while (next < -0x1p-27f) {
        int count = 0;
        for (; count < BATCH && next < -0x1p-27f; count++) {
            uint32_t bits;
            x[count] = next;
            memcpy(&bits, &next, sizeof bits);
            bits -= 37;
            memcpy(&next, &bits, sizeof next);
        }
        memcpy(y, x, sizeof y);
        run(y, count);
        for (int i = 0; i < count; i++) worst = fmax(worst, ulps_between(y[i], x[i]));
    }
    return worst;
}

static void test_two_ulps_from_minus_87_to_0(void **state) {
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        if (!usable(i)) {
            print_message("%s: not on this machine\n", all[i].kernel);
            continue;
        }
        double worst = worst_from_minus_87_to_0(all[i].run);
        print_message("%s, worst error: %.3f ulp\n", all[i].kernel, worst);
        assert_true(worst <= 2);
    }
}

static float exp_of(exponential run, float x) {
    run(&x, 1);
    return x;
}

static void check_edges(exponential run) {
    assert_true(exp_of(run, 0) == 1);
    assert_true(exp_of(run, -0.0f) == 1);
    assert_true(exp_of(run, -0x1p-40f) == 1);
    assert_true(exp_of(run, -87) > 0);
    assert_true(exp_of(run, nextafterf(-87, -INFINITY)) == 0);
    assert_true(exp_of(run, -1e30f) == 0);
    assert_true(exp_of(run, -3e38f) == 0);
    assert_true(exp_of(run, -INFINITY) == 0);
    assert_true(!signbit(exp_of(run, -INFINITY)));
    assert_true(isnan(exp_of(run, NAN)));
    for (float x = 1; x <= 88; x += 0.37f) assert_true(ulps_between(exp_of(run, x), x) <= 2);
    assert_true(!isfinite(exp_of(run, INFINITY)));
}

static void test_edges(void **state) {
    (void)state;
    for (int i = 0; i < COUNT; i++)
        if (usable(i)) check_edges(all[i].run);
}

static double ulps_of_double(double got, double x) {
    long double right = expl(x);
    double rounded = (double)right;
    return (double)(fabsl(got - right) / (nextafter(rounded, INFINITY) - rounded));
}

static void check_double(int which) {
    double worst = 0, edges[] = {0, -0.0, -INFINITY, NAN, -1e300, -750};
    rng r = {7};
    for (int i = 0; i < 1000000; i++) {
        double x = -708 * pow(fabs(rng_real(&r)), i % 5), y = x;
        all[which].run_double(&y, 1);
        worst = fmax(worst, ulps_of_double(y, x));
    }
    print_message("%s, seed 7, worst error for double: %.3f ulp\n", all[which].kernel, worst);
    assert_true(worst <= 2);
    all[which].run_double(edges, 6);
    assert_true(edges[0] == 1 && edges[1] == 1 && edges[2] == 0 && !signbit(edges[2]));
    assert_true(isnan(edges[3]) && edges[4] == 0 && edges[5] < 1e-307);
}

static void test_two_ulps_for_double(void **state) {
    (void)state;
    for (int i = 0; i < COUNT; i++)
        if (usable(i)) check_double(i);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ulps_from_minus_87_to_0),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_two_ulps_for_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
