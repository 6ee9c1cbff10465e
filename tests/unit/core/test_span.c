#include "support/cmocka.h"
#include "support/rng.h"

#include "core/span.h"

#include <inttypes.h>
#include <stdio.h>

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

/* ---- elements that lie far apart --------------------------------------------------------------------------------- */

/* Whether the elements in common are those that a look at every pair finds. *found_out: how many there are. */
static int is_intersection(ra_span a, ra_span b, int64_t *found_out) {
    ra_span common = ra_span_intersect(a, b);
    int64_t found = 0;
    int same = 1;
    for (int64_t j = 0; j < a.count; j++)
        for (int64_t k = 0; k < b.count; k++) {
            if (ra_span_at(a, j) != ra_span_at(b, k)) continue;
            same &= found < common.count && ra_span_at(common, found) == ra_span_at(a, j);
            found++;
        }
    *found_out = found;
    return same && found == common.count && common.stride >= 1;
}

static void check_intersection(ra_span a, ra_span b, int64_t found) {
    int64_t count;
    assert_true(is_intersection(a, b, &count));
    assert_int_equal(count, found);
    assert_true(is_intersection(b, a, &count));
    assert_int_equal(count, found);
}

/* As the rows of two dilated branches are. */
static void test_strides_whose_product_is_beyond_int64(void **state) {
    (void)state;
    const int64_t rate = (int64_t)1 << 33, far = (int64_t)1 << 40;
    check_intersection((ra_span){0, rate, 16}, (ra_span){0, rate + 1, 16}, 1);
    check_intersection((ra_span){5, rate, 16}, (ra_span){2, rate + 1, 16}, 1); /* at 5 + 3 rate */
    check_intersection((ra_span){1, far - 1, 3}, (ra_span){0, far, 3}, 1);
    check_intersection((ra_span){0, far - 1, 3}, (ra_span){1, far, 3}, 0);
    check_intersection((ra_span){0, 3 * rate, 16}, (ra_span){0, 2 * rate, 24}, 8);
    check_intersection((ra_span){rate, 3 * rate, 16}, (ra_span){0, 2 * rate, 24}, 8);
    check_intersection((ra_span){7, far, 1}, (ra_span){7, far - 1, 1}, 1);
}

/* The queries and keys of a contact come from the same two strides, and must have one stride though there may be only
 * one of either. */
static void test_one_element_has_the_stride_of_more(void **state) {
    (void)state;
    ra_span some = ra_span_intersect((ra_span){0, 1000003, 1}, (ra_span){0, 4096, 1});
    assert_int_equal(some.count, 1);
    assert_int_equal(some.stride, 1000003 * (int64_t)4096);
}

/* From the least to the greatest of int64. */
static void test_the_ends_of_int64(void **state) {
    (void)state;
    const int64_t half = (int64_t)1 << 62;
    const ra_span low = {INT64_MIN, half - 1, 3}, high = {INT64_MAX - 2 * (half - 1), half - 1, 3};
    check_intersection(low, low, 3);
    check_intersection(high, high, 3);
    check_intersection(low, high, 0);
    check_intersection((ra_span){INT64_MIN, 1, 4}, (ra_span){INT64_MAX - 3, 1, 4}, 0);
    check_intersection((ra_span){INT64_MAX - 3, 1, 4}, (ra_span){INT64_MAX, 5, 1}, 1);
    check_intersection((ra_span){INT64_MIN, 3, 4}, (ra_span){INT64_MIN + 9, INT64_MAX, 2}, 1);
    check_intersection((ra_span){-1, INT64_MAX, 2}, (ra_span){INT64_MAX - 1, INT64_MAX, 1}, 1);
    check_intersection((ra_span){0, INT64_MAX, 2}, (ra_span){1, INT64_MAX - 1, 2}, 1);
}

/* A stride that shares a divisor with `like`, or one of its own, of any size up to `most`. */
static int64_t stride_like(rng *r, int64_t like, int64_t most) {
    int64_t stride = rng_between(r, 1, most >> rng_between(r, 0, 40));
    if (rng_one_in(r, 3)) return stride;
    int64_t divisor = like >> rng_between(r, 0, 10), times = rng_between(r, 1, 12);
    return divisor > 0 && divisor <= most / times ? divisor * times : stride;
}

/* Few elements, one of which is `at`. */
static ra_span span_through(rng *r, int64_t at, int64_t stride) {
    int64_t before = rng_between(r, 0, 11), behind = rng_between(r, 0, 11);
    return (ra_span){at - before * stride, stride, before + 1 + behind};
}

static void test_large_strides(void **state) {
    (void)state;
    int64_t alone = 0, several = 0;
    for (uint64_t seed = 1; seed <= 40000; seed++) {
        rng r = {seed};
        int64_t most = (int64_t)1 << rng_between(&r, 41, 56), at = rng_between(&r, -most, most), found;
        ra_span a = span_through(&r, at, stride_like(&r, most, most));
        ra_span b = span_through(&r, at, stride_like(&r, a.stride, most));
        if (rng_one_in(&r, 4)) b.first += rng_between(&r, -3, 3);
        if (!is_intersection(a, b, &found))
            fail_msg("seed %d: {%" PRId64 ", %" PRId64 ", %" PRId64 "} and {%" PRId64 ", %" PRId64 ", %" PRId64 "}",
                     (int)seed, a.first, a.stride, a.count, b.first, b.stride, b.count);
        alone += found == 1;
        several += found > 1;
    }
    printf("%d spans with one element in common, %d with several\n", (int)alone, (int)several);
    assert_true(alone > 1000 && several > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_division_rounds_as_named),
        cmocka_unit_test(test_clip_and_indices),
        cmocka_unit_test(test_intersection),
        cmocka_unit_test(test_strides_whose_product_is_beyond_int64),
        cmocka_unit_test(test_one_element_has_the_stride_of_more),
        cmocka_unit_test(test_the_ends_of_int64),
        cmocka_unit_test(test_large_strides),
    };
    return cmocka_run_group_tests_name("span", tests, NULL, NULL);
}
