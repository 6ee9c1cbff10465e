#include "support/cmocka.h"
#include "support/rng.h"

#include "core/interleave.h"

#include <string.h>

enum { ROWS = 4000 };

/* Rows of some strides, without those of others. */
static ra_rowset random_set(ra_pool *pool, rng *r) {
    ra_rowset set = {0};
    for (int64_t i = rng_between(r, 1, 5); i > 0; i--) {
        ra_span span = {rng_between(r, 0, ROWS / 2), rng_between(r, 1, 16), 1};
        span.count = rng_between(r, 1, (ROWS - 1 - span.first) / span.stride + 1);
        ra_rowset one = {.spans = &span, .count = 1, .capacity = 1}, both;
        assert_int_equal((rng_one_in(r, 3) ? ra_rowset_minus : ra_rowset_union)(pool, &set, &one, &both), RA_OK);
        set = both;
    }
    return set;
}

/* Marks the rows of the spans, none of which may have been marked, and counts them. */
static int64_t mark(const ra_span *spans, int64_t count, unsigned char *marks) {
    int64_t rows = 0;
    for (int64_t i = 0; i < count; i++) {
        assert_true(spans[i].count > 0 && spans[i].stride > 0);
        for (int64_t n = 0; n < spans[i].count; n++) assert_int_equal(marks[ra_span_at(spans[i], n)]++, 0);
        rows += spans[i].count;
    }
    return rows;
}

/* The same rows, each once, in no more spans than before. */
static void test_random_sets(void **state) {
    (void)state;
    rng r = {5};
    int fewer = 0;
    for (int i = 0; i < 3000; i++) {
        ra_pool pool = {0};
        static unsigned char before[ROWS], after[ROWS];
        ra_rowset set = random_set(&pool, &r);
        ra_span_list list;
        memset(before, 0, sizeof before);
        memset(after, 0, sizeof after);
        assert_int_equal(ra_rowset_interleave(&pool, &set, &list), RA_OK);
        assert_int_equal(mark(set.spans, set.count, before), mark(list.spans, list.count, after));
        assert_memory_equal(before, after, sizeof before);
        assert_true(list.count <= set.count);
        fewer += list.count < set.count;
        ra_pool_free(&pool);
    }
    assert_true(fewer > 1000);
}

/* Every row of the first rate that none of the others has, of so many rows. */
static int64_t spans_without(int64_t rows, const int64_t *rates, int count, int64_t *before_out) {
    ra_pool pool = {0};
    ra_span first = {0, rates[0], rows / rates[0]};
    ra_rowset set = {&first, 1, 1};
    ra_span_list list;
    for (int i = 1; i < count; i++) {
        ra_span span = {0, rates[i], rows / rates[i]};
        ra_rowset one = {&span, 1, 1}, rest;
        assert_int_equal(ra_rowset_minus(&pool, &set, &one, &rest), RA_OK);
        set = rest;
    }
    assert_int_equal(ra_rowset_interleave(&pool, &set, &list), RA_OK);
    *before_out = set.count;
    ra_pool_free(&pool);
    return list.count;
}

/* What repeats itself is as many spans as it has rows in a repetition, however long the set is. */
static void test_repetitions(void **state) {
    (void)state;
    int64_t before;
    assert_int_equal(spans_without(1 << 20, (int64_t[]){4, 16}, 2, &before), 3);
    assert_int_equal(before, (1 << 20) / 16);
    assert_int_equal(spans_without(12 * 5000, (int64_t[]){1, 2, 3}, 3, &before), 2);
    assert_int_equal(spans_without(105 * 5000, (int64_t[]){1, 3, 5, 7}, 4, &before), 48);
    /* Too many rows in a repetition to look for it. */
    int64_t after = spans_without(81 * 500, (int64_t[]){1, 81}, 2, &before);
    assert_int_equal(before, 500);
    assert_int_equal(after, before);
}

/* Long runs stay runs, though they repeat themselves. */
static void test_runs_stay_runs(void **state) {
    (void)state;
    ra_pool pool = {0};
    ra_span runs[200];
    ra_span_list list;
    for (int64_t i = 0; i < 200; i++) runs[i] = (ra_span){i * 1024, 1, i < 100 ? 60 : 500};
    ra_rowset set = {runs, 200, 200};
    assert_int_equal(ra_rowset_interleave(&pool, &set, &list), RA_OK);
    assert_int_equal(list.count, 200);
    assert_memory_equal(list.spans, runs, sizeof runs);
    ra_pool_free(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sets),
        cmocka_unit_test(test_repetitions),
        cmocka_unit_test(test_runs_stay_runs),
    };
    return cmocka_run_group_tests_name("interleave", tests, NULL, NULL);
}
