#include "support/cmocka.h"
#include "support/rng.h"

#include "core/rowset.h"

enum { ROWS = 60 };

static ra_rowset random_set(ra_pool *pool, rng *r, unsigned char *bits) {
    ra_rowset set = {0}, one = {0}, sum;
    for (int i = 0; i < ROWS; i++) bits[i] = 0;
    for (int i = (int)rng_between(r, 0, 6); i > 0; i--) {
        ra_run run = {rng_between(r, 0, ROWS - 1), 0};
        run.to = rng_between(r, run.from + 1, ROWS);
        one = (ra_rowset){.runs = &run, .count = 1, .capacity = 1};
        assert_int_equal(ra_rowset_union(pool, &set, &one, &sum), RA_OK);
        set = sum;
        for (int64_t row = run.from; row < run.to; row++) bits[row] = 1;
    }
    return set;
}

/* The set is what the bits say: disjoint runs that do not touch, in order. */
static void check(const ra_rowset *set, const unsigned char *bits) {
    int64_t rows = 0, end = -1;
    for (int i = 0; i < ROWS; i++) rows += bits[i];
    assert_int_equal(ra_rowset_rows(set), rows);
    for (int64_t i = 0; i < set->count; i++) {
        assert_true(set->runs[i].from > end && set->runs[i].from < set->runs[i].to);
        end = set->runs[i].to;
        for (int64_t row = set->runs[i].from; row < end; row++) assert_true(bits[row]);
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
        assert_int_equal(ra_rowset_minus(&pool, &a, &b, &c), RA_OK);
        for (int j = 0; j < ROWS; j++) bits[j] = a_bits[j] && !b_bits[j];
        check(&c, bits);
        ra_pool_free(&pool);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_union_and_minus)};
    return cmocka_run_group_tests_name("rowset", tests, NULL, NULL);
}
