#include "support/cmocka.h"
#include "support/rng.h"

#include "core/tile.h"

static int visible(const ra_tile *t, int64_t a, int64_t b) {
    return t->lo <= b - a && b - a <= t->hi;
}

static ra_tile random_tile(rng *r) {
    ra_tile t = {.q_rows = {0, 1, rng_between(r, 1, 12)}, .k_rows = {0, 1, rng_between(r, 1, 12)}};
    t.lo = rng_between(r, -14, 14);
    t.hi = rng_between(r, -14, 14);
    return t;
}

/* Pairs, visible runs and fullness against looking at every pair. */
static void test_against_every_pair(void **state) {
    (void)state;
    rng r = {11};
    for (int i = 0; i < 20000; i++) {
        ra_tile t = random_tile(&r);
        int64_t pairs = 0, a0 = rng_between(&r, 0, t.q_rows.count - 1), a1 = rng_between(&r, a0 + 1, t.q_rows.count);
        int64_t b0 = rng_between(&r, 0, t.k_rows.count - 1), b1 = rng_between(&r, b0 + 1, t.k_rows.count);
        int64_t from, to, among_from, among_to, first = t.k_rows.count, last = -1;
        int full = 1;
        ra_tile_visible(&t, a0, a1, &from, &to);
        ra_tile_visible_among(&t, a0, a1, b0, b1, &among_from, &among_to);
        for (int64_t a = 0; a < t.q_rows.count; a++)
            for (int64_t b = 0; b < t.k_rows.count; b++) {
                int seen = visible(&t, a, b);
                pairs += seen;
                if (a < a0 || a >= a1) continue;
                if (seen && b < first) first = b;
                if (seen && b > last) last = b;
                if (b < b0 || b >= b1) continue;
                if (seen) assert_true(among_from <= b && b < among_to);
                full &= seen;
            }
        assert_int_equal(ra_tile_pairs(&t), pairs);
        assert_int_equal(ra_tile_is_full(&t, a0, a1, b0, b1), full);
        assert_true(last < 0 ? from == to : from == first && to == last + 1);
        assert_true(from <= to && from >= 0 && to <= t.k_rows.count);
        assert_true(among_from <= among_to && among_from >= b0 && among_to <= b1);
        assert_true(among_from == among_to || (among_from >= from && among_to <= to));
    }
}

static void test_large_counts_do_not_overflow(void **state) {
    (void)state;
    int64_t n = 1 << 30;
    ra_tile causal = {.q_rows = {0, 1, n}, .k_rows = {0, 1, n}, .lo = -n, .hi = 0};
    assert_int_equal(ra_tile_pairs(&causal), n / 2 * (n + 1));
    n = (int64_t)1 << 40; /* rows times keys is 2^80 */
    ra_tile window = {.q_rows = {0, 1, n}, .k_rows = {0, 1, n}, .lo = -10, .hi = 0};
    assert_int_equal(ra_tile_pairs(&window), 11 * n - 55);
}

static void test_steep_bands(void **state) {
    (void)state;
    rng r = {12};
    for (int i = 0; i < 20000; i++) {
        int64_t rows = rng_between(&r, 0, 9), keys = rng_between(&r, 0, 30), slope = rng_between(&r, 1, 7), pairs = 0;
        int64_t lo = rng_between(&r, -40, 40), hi = rng_between(&r, -40, 40);
        for (int64_t a = 0; a < rows; a++)
            for (int64_t b = 0; b < keys; b++) pairs += lo <= b - slope * a && b - slope * a <= hi;
        assert_int_equal(ra_band_pairs(rows, keys, slope, lo, hi), pairs);
    }
}

/* A slice has the tile's rows, positions and visible pairs of its queries and keys. */
static void test_slices(void **state) {
    (void)state;
    rng r = {13};
    for (int i = 0; i < 5000; i++) {
        int64_t rows = rng_between(&r, 1, 9), keys = rng_between(&r, 1, 12);
        ra_tile t = {.q_rows = {5, 2, rows}, .k_rows = {7, 3, keys}, .positions = {100, 3, 40, 5, 0}};
        t.lo = rng_between(&r, -rows, keys), t.hi = rng_between(&r, -rows, keys);
        int64_t a0 = rng_between(&r, 0, rows - 1), a1 = rng_between(&r, a0 + 1, rows);
        int64_t b0 = rng_between(&r, 0, keys - 1), b1 = rng_between(&r, b0 + 1, keys);
        ra_tile s = ra_tile_slice(&t, a0, a1, b0, b1);
        assert_int_equal(s.q_rows.count, a1 - a0);
        assert_int_equal(s.k_rows.count, b1 - b0);
        assert_true(s.lo >= a0 - a1 && s.lo <= b1 - b0 && s.hi >= a0 - a1 && s.hi <= b1 - b0);
        assert_int_equal(ra_span_at(s.q_rows, 0), ra_span_at(t.q_rows, a0));
        assert_int_equal(ra_tile_key(&s, 0), ra_tile_key(&t, b0));
        assert_int_equal(s.positions.query, 100 + 3 * a0);
        assert_int_equal(s.positions.key, 40 + 5 * b0);
        for (int64_t a = a0; a < a1; a++)
            for (int64_t b = b0; b < b1; b++)
                assert_int_equal(t.lo <= b - a && b - a <= t.hi,
                                 s.lo <= b - b0 - (a - a0) && b - b0 - (a - a0) <= s.hi);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_every_pair),
        cmocka_unit_test(test_large_counts_do_not_overflow),
        cmocka_unit_test(test_steep_bands),
        cmocka_unit_test(test_slices),
    };
    return cmocka_run_group_tests_name("tile", tests, NULL, NULL);
}
