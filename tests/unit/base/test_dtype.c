/* Element types: bf16 and f16 both ways, for every 16-bit pattern and around every rounding boundary. */
#include "base/dtype.h"
#include "support/cmocka.h"

#include <stdlib.h>
#include <string.h>

typedef struct half_type {
    ra_dtype dtype;
    int exponent_bits, fraction_bits;
} half_type;

static const half_type halves[] = {{RA_BF16, 8, 7}, {RA_F16, 5, 10}};

/* The value of a pattern, from the definition of the format. */
static double value_of(half_type type, uint16_t pattern) {
    int bias = (1 << (type.exponent_bits - 1)) - 1;
    int exponent = pattern >> type.fraction_bits & ((1 << type.exponent_bits) - 1);
    int fraction = pattern & ((1 << type.fraction_bits) - 1);
    double sign = pattern & 0x8000 ? -1 : 1;
    if (exponent == (1 << type.exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - type.fraction_bits);
    return sign * ldexp(fraction + (1 << type.fraction_bits), exponent - bias - type.fraction_bits);
}

static uint16_t from_f64(ra_dtype dtype, double x) {
    uint16_t pattern = 0xabcd;
    assert_int_equal(RA_OK, ra_convert(dtype, &pattern, RA_F64, &x, 1));
    return pattern;
}

static uint16_t from_f32(ra_dtype dtype, float x) {
    uint16_t pattern = 0xabcd;
    assert_int_equal(RA_OK, ra_convert(dtype, &pattern, RA_F32, &x, 1));
    return pattern;
}

static void test_every_pattern_both_ways(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        for (unsigned pattern = 0; pattern < 0x10000; pattern++) {
            uint16_t bits = (uint16_t)pattern;
            double want = value_of(halves[t], bits), wide;
            float narrow;
            assert_int_equal(RA_OK, ra_convert(RA_F64, &wide, halves[t].dtype, &bits, 1));
            assert_int_equal(RA_OK, ra_convert(RA_F32, &narrow, halves[t].dtype, &bits, 1));
            if (isnan(want)) {
                assert_true(isnan(wide) && isnan(narrow));
                assert_true(isnan(value_of(halves[t], from_f64(halves[t].dtype, wide))));
                continue;
            }
            assert_true(wide == want && (double)narrow == want && !signbit(wide) == !signbit(want));
            assert_int_equal(from_f64(halves[t].dtype, wide), bits);
            assert_int_equal(from_f32(halves[t].dtype, narrow), bits);
        }
    }
}

/* Between two neighbours: just below, at and just above the half way point, in the step that a double has, which a
 * conversion by way of a rounded float would lose. */
static void test_rounds_to_nearest_even(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        ra_dtype dtype = halves[t].dtype;
        unsigned last = ((1u << halves[t].exponent_bits) - 1) << halves[t].fraction_bits; /* infinity */
        for (unsigned low = 0; low + 1 < last; low++) {
            uint16_t even = (uint16_t)(low % 2 == 0 ? low : low + 1);
            double middle = (value_of(halves[t], (uint16_t)low) + value_of(halves[t], (uint16_t)(low + 1))) / 2;
            assert_int_equal(from_f64(dtype, middle), even);
            assert_int_equal(from_f64(dtype, nextafter(middle, 0)), low);
            assert_int_equal(from_f64(dtype, nextafter(middle, INFINITY)), low + 1);
            assert_int_equal(from_f64(dtype, -middle), even | 0x8000);
            assert_int_equal(from_f64(dtype, -nextafter(middle, INFINITY)), (low + 1) | 0x8000);
            if ((double)(float)middle == middle) {
                assert_int_equal(from_f32(dtype, (float)middle), even);
                assert_int_equal(from_f32(dtype, nextafterf((float)middle, 0)), low);
                assert_int_equal(from_f32(dtype, nextafterf((float)middle, INFINITY)), low + 1);
            }
        }
    }
}

static void test_extremes(void **state) {
    (void)state;
    assert_int_equal(from_f64(RA_F16, 65519.999), 0x7bff);
    assert_int_equal(from_f64(RA_F16, 65520), 0x7c00);
    assert_int_equal(from_f64(RA_F16, 1e300), 0x7c00);
    assert_int_equal(from_f64(RA_BF16, -1e300), 0xff80);
    assert_int_equal(from_f64(RA_BF16, 0x1.ffp127), 0x7f80);
    assert_int_equal(from_f64(RA_BF16, 0x1.fep127), 0x7f7f);
    assert_int_equal(from_f64(RA_F16, 1e-300), 0);
    assert_int_equal(from_f64(RA_F16, -1e-300), 0x8000);
    assert_int_equal(from_f64(RA_BF16, INFINITY), 0x7f80);
    /* A NaN whose payload lies in the bits that are dropped stays one. */
    float sly = ra_f32_from_bits(0x7f800001u);
    assert_true(isnan(ra_bf16_to_f32(ra_f32_to_bf16(sly))));
    assert_true(isnan(ra_f16_to_f32(ra_f32_to_f16(sly))));
}

static void test_names_and_sizes(void **state) {
    (void)state;
    const ra_dtype all[] = {RA_F32, RA_F64, RA_BF16, RA_F16};
    const size_t bytes[] = {4, 8, 2, 2};
    for (int i = 0; i < 4; i++) {
        ra_dtype parsed = (ra_dtype)99;
        assert_int_equal(RA_OK, ra_dtype_parse(ra_dtype_name(all[i]), &parsed));
        assert_int_equal(parsed, all[i]);
        assert_int_equal(ra_dtype_bytes(all[i]), bytes[i]);
    }
    ra_dtype untouched = RA_F16;
    assert_int_equal(RA_ERR_ARGUMENT, ra_dtype_parse("f8", &untouched));
    assert_non_null(strstr(ra_last_error(), "bf16"));
    assert_int_equal(untouched, RA_F16);
    assert_null(ra_dtype_name((ra_dtype)5));
    assert_int_equal(ra_dtype_bytes((ra_dtype)-1), 0);
    assert_int_equal(RA_ERR_ARGUMENT, ra_dtype_parse(NULL, &untouched));
}

static void test_convert_arguments(void **state) {
    (void)state;
    float x[3] = {1, 2, 3}, y[3] = {0};
    assert_int_equal(RA_ERR_ARGUMENT, ra_convert(RA_F32, y, (ra_dtype)7, x, 3));
    assert_int_equal(RA_ERR_ARGUMENT, ra_convert(RA_F32, y, RA_F32, x, -1));
    assert_int_equal(RA_ERR_ARGUMENT, ra_convert(RA_F32, NULL, RA_F32, x, 1));
    assert_int_equal(RA_OK, ra_convert(RA_F32, NULL, RA_F64, NULL, 0));
    assert_int_equal(RA_OK, ra_convert(RA_F32, NULL, RA_F32, NULL, 0));
    assert_int_equal(RA_OK, ra_convert(RA_F32, y, RA_F32, x, 3));
    assert_memory_equal(x, y, sizeof x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pattern_both_ways),
        cmocka_unit_test(test_rounds_to_nearest_even),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_names_and_sizes),
        cmocka_unit_test(test_convert_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
