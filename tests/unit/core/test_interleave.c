#include "support/cmocka.h"
#include "support/rng.h"

#include "core/interleave.h"

#include <string.h>

enum { ROWS = 4000, DISTANCE = 1000 };

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

/* What is no span of the set is one of a repetition, no more than so many rows apart. */
static void check_distances(const ra_rowset *set, const ra_span_list *list, int64_t distance) {
    for (int64_t i = 0, n = 0; i < list->count; i++) {
        while (n < set->count && ra_span_last(set->spans[n]) < list->spans[i].first) n++;
        if (n < set->count && ra_span_same(set->spans[n], list->spans[i])) continue;
        assert_true(list->spans[i].count == 1 || list->spans[i].stride <= distance);
    }
}

/* The same rows, each once, in no more spans than before, those of a repetition by their first rows. */
static void test_random_sets(void **state) {
    (void)state;
    rng r = {5};
    int fewer = 0;
    for (int i = 0; i < 3000; i++) {
        ra_pool pool = {0};
        static unsigned char before[ROWS], after[ROWS];
        ra_rowset set = random_set(&pool, &r);
        ra_span_list list;
        int64_t distance = rng_one_in(&r, 4) ? rng_between(&r, 0, 20) : DISTANCE;
        memset(before, 0, sizeof before);
        memset(after, 0, sizeof after);
        assert_int_equal(ra_rowset_interleave(&pool, &set, &(ra_distance_limit){INT64_MAX, distance}, 1, &list), RA_OK);
        check_distances(&set, &list, distance);
        assert_int_equal(mark(set.spans, set.count, before), mark(list.spans, list.count, after));
        assert_memory_equal(before, after, sizeof before);
        assert_true(list.count <= set.count);
        fewer += list.count < set.count;
        ra_pool_free(&pool);
    }
    assert_true(fewer > 700);
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
    assert_int_equal(ra_rowset_interleave(&pool, &set, &(ra_distance_limit){INT64_MAX, DISTANCE}, 1, &list), RA_OK);
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
    /* Too many rows in a repetition to look for it, or too far apart. */
    int64_t after = spans_without(81 * 500, (int64_t[]){1, 81}, 2, &before);
    assert_int_equal(before, 500);
    assert_int_equal(after, before);
    after = spans_without((DISTANCE + 1) * 500, (int64_t[]){DISTANCE + 1, 3 * (DISTANCE + 1)}, 2, &before);
    assert_int_equal(after, before);
    after = spans_without(300 * 500, (int64_t[]){300, 900}, 2, &before);
    assert_true(after < 5 && before > 100);
}

/* Every 64th row without every 256th: far apart for rows that are 16 apart, of which there are none, and not for those
 * that are 64. */
static void test_limits_are_by_rate(void **state) {
    (void)state;
    ra_pool pool = {0};
    ra_span near = {0, 64, 4000}, far = {0, 256, 1000};
    ra_rowset all = {&near, 1, 1}, some = {&far, 1, 1}, set;
    ra_distance_limit limits[] = {{16, 100}, {64, 1000}};
    ra_span_list list;
    assert_int_equal(ra_rowset_minus(&pool, &all, &some, &set), RA_OK);
    assert_int_equal(ra_rowset_interleave(&pool, &set, limits, 2, &list), RA_OK);
    assert_int_equal(list.count, 3);
    limits[1].distance = 255;
    assert_int_equal(ra_rowset_interleave(&pool, &set, limits, 2, &list), RA_OK);
    assert_int_equal(list.count, set.count);
    ra_pool_free(&pool);
}

/* Long runs stay runs, though they repeat themselves. */
static void test_runs_stay_runs(void **state) {
    (void)state;
    ra_pool pool = {0};
    ra_span runs[200];
    ra_span_list list;
    for (int64_t i = 0; i < 200; i++) runs[i] = (ra_span){i * 1024, 1, i < 100 ? 60 : 500};
    ra_rowset set = {runs, 200, 200};
    assert_int_equal(ra_rowset_interleave(&pool, &set, &(ra_distance_limit){INT64_MAX, DISTANCE}, 1, &list), RA_OK);
    assert_int_equal(list.count, 200);
    assert_memory_equal(list.spans, runs, sizeof runs);
    ra_pool_free(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sets),
        cmocka_unit_test(test_repetitions),
        cmocka_unit_test(test_limits_are_by_rate),
        cmocka_unit_test(test_runs_stay_runs),
    };
    return cmocka_run_group_tests_name("interleave", tests, NULL, NULL);
}
