#include "support/cmocka.h"
#include "support/rng.h"

#include "core/rowset.h"

enum { ROWS = 60 };

static ra_rowset random_set(ra_pool *pool, rng *r, unsigned char *bits) {
    ra_rowset set = {0}, sum;
    for (int i = 0; i < ROWS; i++) bits[i] = 0;
    for (int i = (int)rng_between(r, 0, 6); i > 0; i--) {
        ra_span span = {rng_between(r, 0, ROWS - 1), rng_one_in(r, 2) ? 1 : rng_between(r, 2, 9), 1};
        span.count = rng_between(r, 1, (ROWS - 1 - span.first) / span.stride + 1);
        ra_rowset one = {.spans = &span, .count = 1, .capacity = 1};
        assert_int_equal(ra_rowset_union(pool, &set, &one, &sum), RA_OK);
        set = sum;
        for (int64_t j = 0; j < span.count; j++) bits[ra_span_at(span, j)] = 1;
    }
    return set;
}

/* The set is what the bits say: spans in order, none reaching into the next. */
static void check(const ra_rowset *set, const unsigned char *bits) {
    int64_t rows = 0, last = -1;
    for (int i = 0; i < ROWS; i++) rows += bits[i];
    assert_int_equal(ra_rowset_rows(set), rows);
    for (int64_t i = 0; i < set->count; i++)
        for (int64_t j = 0; j < set->spans[i].count; j++) {
            int64_t row = ra_span_at(set->spans[i], j);
            assert_true(row > last && row < ROWS && bits[row]);
            last = row;
        }
}

static void test_union_and_minus(void **state) {
    (void)state;
    rng r = {3};
    for (int i = 0; i < 3000; i++) {
        ra_pool pool = {0};
        unsigned char a_bits[ROWS], b_bits[ROWS], bits[ROWS];
        ra_rowset a = random_set(&pool, &r, a_bits), b = random_set(&pool, &r, b_bits), c;
        check(&a, a_bits);
        assert_int_equal(ra_rowset_union(&pool, &a, &b, &c), RA_OK);
        for (int j = 0; j < ROWS; j++) bits[j] = a_bits[j] | b_bits[j];
        check(&c, bits);
        assert_true(ra_rowset_within(&a, &c) && ra_rowset_within(&b, &c));
        int within = 1;
        for (int j = 0; j < ROWS; j++) within &= !a_bits[j] || b_bits[j];
        assert_int_equal(ra_rowset_within(&a, &b), within);
        assert_int_equal(ra_rowset_minus(&pool, &a, &b, &c), RA_OK);
        for (int j = 0; j < ROWS; j++) bits[j] = a_bits[j] && !b_bits[j];
        check(&c, bits);
        ra_pool_free(&pool);
    }
}

/* Long dense sets stay short lists, whatever is added to them. */
static void test_runs_stay_runs(void **state) {
    (void)state;
    ra_pool pool = {0};
    ra_span left = {0, 1, 1000000}, right = {500000, 1, 1500000}, comb = {0, 7, 100000};
    ra_rowset a = {&left, 1, 1}, b = {&right, 1, 1}, c = {&comb, 1, 1}, sum;
    assert_int_equal(ra_rowset_union(&pool, &a, &b, &sum), RA_OK);
    assert_int_equal(sum.count, 1);
    assert_int_equal(sum.spans[0].count, 2000000);
    assert_int_equal(ra_rowset_union(&pool, &sum, &c, &sum), RA_OK);
    assert_int_equal(sum.count, 1);
    assert_int_equal(ra_rowset_minus(&pool, &b, &a, &sum), RA_OK);
    assert_int_equal(sum.count, 1);
    assert_int_equal(sum.spans[0].first, 1000000);
    ra_pool_free(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_union_and_minus), cmocka_unit_test(test_runs_stay_runs)};
    return cmocka_run_group_tests_name("rowset", tests, NULL, NULL);
}
