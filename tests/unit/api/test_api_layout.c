#include "support/cmocka.h"

#include <ringattn/ringattn.h>

#include <string.h>

static void test_scatter_and_gather_are_inverse(void **state) {
    (void)state;
    enum { BATCH = 2, MOST = 50, ROW = 3 };
    unsigned char whole[BATCH * MOST * ROW], back[sizeof whole], shard[sizeof whole];
    for (size_t i = 0; i < sizeof whole; i++) whole[i] = (unsigned char)(i * 7 + i / 256);
    for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_STRIPED; layout++)
        for (int64_t n = 1; n <= MOST; n += 7)
            for (int p = 1; p <= 9; p++) {
                memset(back, 0, sizeof back);
                for (int r = 0; r < p; r++) {
                    int64_t rows = ra_layout_rows((ra_layout)layout, n, p, r), ids[MOST];
                    assert_int_equal(ra_layout_scatter((ra_layout)layout, n, p, r, BATCH, ROW, whole, shard), RA_OK);
                    assert_int_equal(ra_layout_gather((ra_layout)layout, n, p, r, BATCH, ROW, shard, back), RA_OK);
                    assert_int_equal(ra_layout_positions((ra_layout)layout, n, p, r, ids), RA_OK);
                    for (int64_t row = 0; row < rows; row++) {
                        int64_t position;
                        assert_int_equal(ra_layout_position((ra_layout)layout, n, p, r, row, &position), RA_OK);
                        assert_int_equal(position, ids[row]);
                        assert_memory_equal(shard + row * ROW, whole + position * ROW, ROW);
                    }
                }
                assert_memory_equal(back, whole, (size_t)(BATCH * n * ROW));
            }
}

/* The packed functions agree with the plain ones where these are enough, and know the documents where they are not. */
static void test_packed(void **state) {
    (void)state;
    enum { BATCH = 2, N = 50, ROW = 3, DOCUMENTS = 4 };
    const int64_t cu[DOCUMENTS + 1] = {0, 24, 24, 41, N};
    unsigned char whole[BATCH * N * ROW], back[sizeof whole], shard[sizeof whole];
    for (size_t i = 0; i < sizeof whole; i++) whole[i] = (unsigned char)(i * 7 + i / 256);
    for (int l = RA_LAYOUT_CONTIGUOUS; l <= RA_LAYOUT_DOCUMENTS; l++)
        for (int p = 1; p <= 5; p++) {
            ra_layout layout = (ra_layout)l;
            memset(back, 0, sizeof back);
            for (int r = 0; r < p; r++) {
                int64_t ids[N], plain[N], rows = ra_layout_rows(layout, N, p, r), row_back;
                int rank_back;
                assert_int_equal(ra_packed_scatter(layout, N, DOCUMENTS, cu, p, r, BATCH, ROW, whole, shard), RA_OK);
                assert_int_equal(ra_packed_gather(layout, N, DOCUMENTS, cu, p, r, BATCH, ROW, shard, back), RA_OK);
                assert_int_equal(ra_packed_positions(layout, N, DOCUMENTS, cu, p, r, ids), RA_OK);
                if (layout != RA_LAYOUT_DOCUMENTS) {
                    assert_int_equal(ra_layout_positions(layout, N, p, r, plain), RA_OK);
                    assert_memory_equal(ids, plain, (size_t)rows * sizeof *ids);
                }
                for (int64_t row = 0; row < rows; row++) {
                    assert_memory_equal(shard + row * ROW, whole + ids[row] * ROW, ROW);
                    assert_memory_equal(shard + (rows + row) * ROW, whole + (N + ids[row]) * ROW, ROW);
                    assert_int_equal(ra_packed_locate(layout, N, DOCUMENTS, cu, p, ids[row], &rank_back, &row_back),
                                     RA_OK);
                    assert_int_equal(rank_back, r);
                    assert_int_equal(row_back, row);
                }
            }
            assert_memory_equal(back, whole, sizeof whole);
        }
}

static void test_packed_refusals(void **state) {
    (void)state;
    const int64_t falls[] = {0, 3, 2, 5}, short_of[] = {0, 4}, right[] = {0, 2, 5};
    int64_t ids[5];
    assert_int_equal(ra_layout_positions(RA_LAYOUT_DOCUMENTS, 5, 2, 0, ids), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "ra_packed"));
    assert_int_equal(ra_packed_positions(RA_LAYOUT_DOCUMENTS, 5, 3, falls, 2, 0, ids), RA_ERR_ARGUMENT);
    assert_int_equal(ra_packed_positions(RA_LAYOUT_DOCUMENTS, 5, 1, short_of, 2, 0, ids), RA_ERR_ARGUMENT);
    assert_int_equal(ra_packed_positions(RA_LAYOUT_DOCUMENTS, 5, 2, NULL, 2, 0, ids), RA_ERR_ARGUMENT);
    assert_int_equal(ra_packed_positions(RA_LAYOUT_DOCUMENTS, 5, 0, right, 2, 0, ids), RA_ERR_ARGUMENT);
    assert_int_equal(ra_packed_positions(RA_LAYOUT_AUTO, 5, 2, right, 2, 0, ids), RA_ERR_ARGUMENT);
    assert_int_equal(ra_packed_positions(RA_LAYOUT_DOCUMENTS, 5, 2, right, 2, 0, ids), RA_OK);
    assert_int_equal(ra_packed_positions(RA_LAYOUT_DOCUMENTS, 5, 0, NULL, 2, 0, ids), RA_OK);
}

static void test_refusals(void **state) {
    (void)state;
    int64_t position, row;
    int rank;
    assert_int_equal(ra_layout_rows(RA_LAYOUT_AUTO, 5, 2, 0), -1);
    assert_int_equal(ra_layout_rows(RA_LAYOUT_ZIGZAG, -1, 2, 0), -1);
    assert_int_equal(ra_layout_rows(RA_LAYOUT_ZIGZAG, 5, 0, 0), -1);
    assert_int_equal(ra_layout_rows(RA_LAYOUT_ZIGZAG, 5, 2, 2), -1);
    assert_int_equal(ra_layout_position(RA_LAYOUT_STRIPED, 5, 2, 0, 3, &position), RA_ERR_ARGUMENT);
    assert_int_equal(ra_layout_locate(RA_LAYOUT_STRIPED, 5, 2, 5, &rank, &row), RA_ERR_ARGUMENT);
    assert_int_equal(ra_layout_locate(RA_LAYOUT_STRIPED, 5, 2, -1, &rank, &row), RA_ERR_ARGUMENT);
    assert_int_equal(ra_layout_scatter(RA_LAYOUT_STRIPED, 5, 2, 0, 1, 4, NULL, NULL), RA_ERR_ARGUMENT);
}

static void test_names(void **state) {
    (void)state;
    for (int i = RA_LAYOUT_AUTO; i <= RA_LAYOUT_DOCUMENTS; i++) {
        ra_layout layout;
        ra_strategy strategy;
        assert_int_equal(ra_layout_parse(ra_layout_name((ra_layout)i), &layout), RA_OK);
        assert_int_equal(layout, i);
        assert_int_equal(ra_strategy_parse(ra_strategy_name((ra_strategy)i), &strategy), RA_OK);
        assert_int_equal(strategy, i);
    }
    ra_layout layout = RA_LAYOUT_STRIPED;
    assert_int_equal(ra_layout_parse("spiral", &layout), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "zigzag"));
    assert_int_equal(layout, RA_LAYOUT_STRIPED);
    assert_null(ra_layout_name((ra_layout)17));
    assert_int_equal(ra_layout_parse("zigzag", NULL), RA_ERR_ARGUMENT);
    assert_string_equal(ra_last_error(), "layout_out is NULL");
    assert_int_equal(ra_strategy_parse("ring", NULL), RA_ERR_ARGUMENT);
    assert_string_equal(ra_last_error(), "strategy_out is NULL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scatter_and_gather_are_inverse),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_packed_refusals),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
