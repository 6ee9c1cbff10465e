#include "support/cmocka.h"
#include "support/rng.h"

#include "core/span.h"

static void test_division_rounds_as_named(void **state) {
    (void)state;
    for (int64_t a = -20; a <= 20; a++)
        for (int64_t b = 1; b <= 7; b++) {
            int64_t floor = ra_floor_div(a, b), ceil = ra_ceil_div(a, b);
            assert_true(floor * b <= a && a < (floor + 1) * b);
            assert_true((ceil - 1) * b < a && a <= ceil * b);
        }
}

/* Against counting the elements one by one. */
static void test_clip_and_indices(void **state) {
    (void)state;
    rng r = {7};
    for (int i = 0; i < 20000; i++) {
        ra_span s = {rng_between(&r, -5, 30), rng_between(&r, 1, 6), rng_between(&r, 0, 12)};
        int64_t lo = rng_between(&r, -10, 60), hi = lo + rng_between(&r, -3, 40), from, to, first = -1, count = 0;
        for (int64_t j = 0; j < s.count; j++)
            if (ra_span_at(s, j) >= lo && ra_span_at(s, j) < hi) {
                if (count++ == 0) first = j;
            }
        ra_span_indices(s, lo, hi, &from, &to);
        assert_int_equal(to - from, count);
        if (count) assert_int_equal(from, first);
        ra_span clipped = ra_span_clip(s, lo, hi);
        assert_int_equal(clipped.count, count);
        assert_int_equal(clipped.stride, s.stride);
        if (count) assert_int_equal(clipped.first, ra_span_at(s, first));
    }
}

/* Against looking for common elements one by one. */
static void test_intersection(void **state) {
    (void)state;
    rng r = {23};
    for (int i = 0; i < 20000; i++) {
        ra_span a = {rng_between(&r, -20, 40), rng_between(&r, 1, 12), rng_between(&r, 0, 15)};
        ra_span b = {rng_between(&r, -20, 40), rng_between(&r, 1, 12), rng_between(&r, 0, 15)};
        ra_span common = ra_span_intersect(a, b);
        int64_t found = 0;
        for (int64_t j = 0; j < a.count; j++)
            for (int64_t k = 0; k < b.count; k++)
                if (ra_span_at(a, j) == ra_span_at(b, k))
                    assert_int_equal(ra_span_at(common, found++), ra_span_at(a, j));
        assert_int_equal(common.count, found);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_division_rounds_as_named),
        cmocka_unit_test(test_clip_and_indices),
        cmocka_unit_test(test_intersection),
    };
    return cmocka_run_group_tests_name("span", tests, NULL, NULL);
}
