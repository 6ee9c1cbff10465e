#include "support/cmocka.h"

#include "core/shard.h"

#include <stdlib.h>

/* Every position has one owner, rows are in order, shards are as even as can be, for any n and p. */
static void test_every_position_once(void **state) {
    (void)state;
    for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_STRIPED; layout++)
        for (int64_t n = 0; n <= 70; n++)
            for (int p = 1; p <= 17; p++) {
                int seen[70] = {0};
                int64_t total = 0, least = n, most = 0;
                for (int r = 0; r < p; r++) {
                    ra_shard shard = ra_shard_of((ra_layout)layout, n, p, r);
                    int64_t before = -1;
                    for (int64_t row = 0; row < shard.rows; row++) {
                        int64_t position = ra_shard_position(&shard, row), row_back;
                        int rank_back;
                        assert_true(position > before && position < n);
                        before = position;
                        seen[position]++;
                        ra_shard_locate((ra_layout)layout, n, p, position, &rank_back, &row_back);
                        assert_int_equal(rank_back, r);
                        assert_int_equal(row_back, row);
                    }
                    total += shard.rows;
                    if (shard.rows < least) least = shard.rows;
                    if (shard.rows > most) most = shard.rows;
                }
                assert_int_equal(total, n);
                for (int64_t i = 0; i < n; i++) assert_int_equal(seen[i], 1);
                assert_true(most - least <= (layout == RA_LAYOUT_ZIGZAG ? 2 : 1));
            }
}

/* A hull has the positions of its ranks and no others; on stripes it reaches from the first of them to the last. */
static void check_hull(ra_layout layout, int64_t n, int p, int from, int to) {
    ra_shard hull = ra_shard_hull(layout, n, p, from, to);
    int64_t first = n, last = -1, row;
    for (int64_t i = 0; i < n; i++) {
        int rank, inside = 0;
        ra_shard_locate(layout, n, p, i, &rank, &row);
        for (int s = 0; s < hull.span_count; s++) inside += ra_span_clip(hull.spans[s], i, i + 1).count == 1;
        int owned = rank >= from && rank < to;
        if (layout != RA_LAYOUT_STRIPED) assert_int_equal(inside, owned);
        if (owned) assert_int_equal(inside, 1);
        if (owned && i < first) first = i;
        if (owned) last = i;
    }
    if (layout == RA_LAYOUT_STRIPED) assert_int_equal(hull.rows, last < first ? 0 : last - first + 1);
}

static void test_hulls(void **state) {
    (void)state;
    for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_STRIPED; layout++)
        for (int64_t n = 0; n <= 40; n++)
            for (int p = 1; p <= 9; p++)
                for (int from = 0; from < p; from++)
                    for (int to = from + 1; to <= p; to++) check_hull((ra_layout)layout, n, p, from, to);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_position_once), cmocka_unit_test(test_hulls)};
    return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
