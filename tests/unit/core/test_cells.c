#include "support/cmocka.h"
#include "support/rng.h"

#include "core/cells.h"

enum { ROWS = 60, FAMILIES = 4, MOST_SPANS = 64 };

/* With so much work allowed. */
static ra_status add(ra_pool *pool, const ra_cells *cells, ra_named_span *spans, int64_t count, int64_t work,
                     ra_cells *cells_out) {
    int64_t left = work;
    ra_status status = ra_cells_add(pool, cells, spans, count, &left, cells_out);
    assert_true(left < work);
    assert_true(cells_out->count < 0 || left >= 0);
    return status;
}

enum { MOST_WORK = 1 << 16 };

typedef struct family {
    ra_named_span spans[MOST_SPANS];
    int64_t count;
} family;

/* Segments one after the other, in each of which every stride-th row is kept, of one or two remainders. */
static void make_family(rng *r, int64_t number, family *f) {
    int64_t width = rng_between(r, 1, 30), stride = rng_between(r, 1, 7);
    f->count = 0;
    for (int64_t from = rng_between(r, 0, 10); from < ROWS; from += width) {
        int64_t to = from + width < ROWS ? from + width : ROWS;
        int64_t step = rng_between(r, 0, 3) ? stride : rng_between(r, 1, 5);
        int64_t first = from + rng_between(r, 0, step - 1), second = from + rng_between(r, 0, step - 1);
        for (int i = 0; i < 2; i++) {
            int64_t start = i ? second : first;
            if (start >= to || (i && second == first)) continue;
            ra_span rows = {start, step, (to - 1 - start) / step + 1};
            f->spans[f->count] = (ra_named_span){rows, number * 1000 + f->count};
            f->count++;
        }
    }
}

static int has_row(ra_span s, int64_t row) {
    return ra_span_clip(s, row, row + 1).count > 0;
}

static const ra_cell *cell_of(const ra_cells *cells, int64_t row) {
    const ra_cell *found = NULL;
    for (int64_t i = 0; i < cells->count; i++)
        if (has_row(cells->cells[i].rows, row)) {
            assert_null(found); /* a row is in one cell */
            found = &cells->cells[i];
        }
    return found;
}

/* A row's cell has the spans that the row is in, the last family's first. */
static void check_row(const ra_cells *cells, const family *families, int64_t row) {
    const ra_cell *cell = cell_of(cells, row);
    const ra_cell_member *m = cell ? cell->members : NULL;
    for (int f = FAMILIES - 1; f >= 0; f--)
        for (int64_t i = 0; i < families[f].count; i++) {
            if (!has_row(families[f].spans[i].rows, row)) continue;
            assert_non_null(m);
            assert_int_equal(m->span, families[f].spans[i].name);
            m = m->before;
        }
    assert_null(m);
}

static void test_against_every_row(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        rng r = {seed};
        ra_pool pool = {0};
        ra_cells cells = {0};
        family families[FAMILIES];
        for (int f = 0; f < FAMILIES; f++) {
            make_family(&r, f, &families[f]);
            ra_status status = add(&pool, &cells, families[f].spans, families[f].count, MOST_WORK, &cells);
            assert_int_equal(status, RA_OK);
            assert_true(cells.count >= 0);
        }
        for (int64_t i = 0; i < cells.count; i++) {
            assert_true(cells.cells[i].rows.count > 0);
            assert_true(i == 0 || cells.cells[i - 1].rows.first <= cells.cells[i].rows.first);
        }
        for (int64_t row = 0; row < ROWS; row++) check_row(&cells, families, row);
        ra_pool_free(&pool);
    }
}

/* Every 4th row of a segment leaves three cells, not the rows before it and behind it as well. */
static void test_remainders_are_whole(void **state) {
    (void)state;
    ra_pool pool = {0};
    ra_cells cells = {0};
    ra_named_span all = {{0, 1, 2048}, 0}, some = {{3, 4, 512}, 1}, fewer = {{7, 16, 128}, 2};
    assert_int_equal(add(&pool, &cells, &all, 1, MOST_WORK, &cells), RA_OK);
    assert_int_equal(add(&pool, &cells, &some, 1, MOST_WORK, &cells), RA_OK);
    assert_int_equal(cells.count, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(cells.cells[i].rows.count, 512);
    assert_int_equal(add(&pool, &cells, &fewer, 1, MOST_WORK, &cells), RA_OK);
    assert_int_equal(cells.count, 7);
    ra_pool_free(&pool);
}

static void test_too_many(void **state) {
    (void)state;
    ra_pool pool = {0};
    ra_cells cells = {0}, none;
    ra_named_span all = {{0, 1, 1 << 20}, 0}, some = {{5, 1000, 1000}, 1};
    assert_int_equal(add(&pool, &cells, &all, 1, MOST_WORK, &cells), RA_OK);
    assert_int_equal(add(&pool, &cells, &some, 1, 500, &none), RA_OK);
    assert_int_equal(none.count, -1);
    assert_int_equal(add(&pool, &cells, &some, 1, MOST_WORK, &cells), RA_OK);
    assert_int_equal(cells.count, 1001); /* 1,000 remainders, and what is behind the last of some */
    ra_pool_free(&pool);
}

static void test_overlapping_family(void **state) {
    (void)state;
    ra_pool pool = {0};
    ra_cells cells = {0}, none;
    ra_named_span apart[] = {{{0, 4, 10}, 0}, {{1, 2, 20}, 1}}, not_apart[] = {{{0, 4, 10}, 0}, {{2, 6, 3}, 1}};
    assert_int_equal(add(&pool, &cells, not_apart, 2, MOST_WORK, &none), RA_OK);
    assert_int_equal(none.count, -1); /* 8 is in both */
    assert_int_equal(add(&pool, &cells, apart, 2, MOST_WORK, &cells), RA_OK);
    assert_int_equal(cells.count, 2);
    ra_pool_free(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_every_row),
        cmocka_unit_test(test_remainders_are_whole),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_overlapping_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
