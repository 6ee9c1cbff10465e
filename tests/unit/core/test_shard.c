#include "support/cmocka.h"

#include "core/shard.h"
#include "support/rng.h"

#include <stdlib.h>

/* Every position has one owner, rows are in order, shards are as even as can be, for any n and p. */
static void test_every_position_once(void **state) {
    (void)state;
    for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_DOCUMENTS; layout++)
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
                assert_true(most - least <= (layout == RA_LAYOUT_ZIGZAG || layout == RA_LAYOUT_DOCUMENTS ? 2 : 1));
            }
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

enum { MOST_DOCUMENTS = 9, MOST_POSITIONS = 400 };

/* Documents of lengths below `longest`, times `unit`. */
static ra_sequence random_documents(rng *r, int64_t longest, int64_t unit, int64_t *cu) {
    int64_t documents = rng_between(r, 1, MOST_DOCUMENTS);
    cu[0] = 0;
    for (int64_t d = 0; d < documents; d++) cu[d + 1] = cu[d] + unit * rng_between(r, 0, longest);
    return (ra_sequence){cu[documents], documents, cu};
}

/* Every position has one owner, a rank's rows are in order, it has as many as ra_shard_of says, which is within two of
 * any other's, and of each document it has two runs, which differ by at most one from any other run. */
static void test_documents_are_dealt_to_all(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        rng r = {seed};
        int64_t cu[MOST_DOCUMENTS + 1], row_back;
        int p = (int)rng_between(&r, 1, 9), seen[MOST_POSITIONS] = {0}, rank_back;
        ra_sequence s = random_documents(&r, 40, 1, cu);
        int64_t least = s.n, most = 0;
        for (int rank = 0; rank < p; rank++) {
            int64_t rows = ra_shard_of(RA_LAYOUT_DOCUMENTS, s.n, p, rank).rows, before = -1;
            for (int64_t row = 0; row < rows; row++) {
                int64_t position = ra_sequence_position(&s, RA_LAYOUT_DOCUMENTS, p, rank, row);
                assert_true(position > before && position < s.n);
                before = position;
                seen[position]++;
                ra_sequence_locate(&s, RA_LAYOUT_DOCUMENTS, p, position, &rank_back, &row_back);
                assert_int_equal(rank_back, rank);
                assert_int_equal(row_back, row);
            }
            if (rows < least) least = rows;
            if (rows > most) most = rows;
            for (int64_t d = 0; d < s.documents; d++) {
                ra_shard shard = ra_shard_in_document(cu[d], cu[d + 1], p, rank, rank + 1);
                for (int i = 0; i < 2; i++) {
                    int64_t each = (cu[d + 1] - cu[d]) / (2 * p);
                    assert_true(shard.spans[i].count == each || shard.spans[i].count == each + 1);
                }
            }
        }
        for (int64_t i = 0; i < s.n; i++) assert_int_equal(seen[i], 1);
        assert_true(most - least <= 2);
    }
}

/* Where every document's length is a multiple of 2p: chunks r and 2p - 1 - r of each document, one document after
 * another, which is how ring_flash_attn's zigzag varlen functions and Transformer Engine's THD format cut them. */
static void test_even_documents_as_others_cut_them(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        rng r = {seed};
        int64_t cu[MOST_DOCUMENTS + 1];
        int p = (int)rng_between(&r, 1, 4);
        ra_sequence s = random_documents(&r, 5, 2 * p, cu);
        for (int rank = 0; rank < p; rank++) {
            int64_t row = 0;
            for (int64_t d = 0; d < s.documents; d++) {
                int64_t chunk = (cu[d + 1] - cu[d]) / (2 * p);
                for (int half = 0; half < 2; half++)
                    for (int64_t i = 0; i < chunk; i++) {
                        int64_t want = cu[d] + (half ? 2 * p - 1 - rank : rank) * chunk + i;
                        assert_int_equal(ra_sequence_position(&s, RA_LAYOUT_DOCUMENTS, p, rank, row), want);
                        row++;
                    }
            }
            assert_int_equal(ra_shard_of(RA_LAYOUT_DOCUMENTS, s.n, p, rank).rows, row);
        }
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
    for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_DOCUMENTS; layout++)
        for (int64_t n = 0; n <= 40; n++)
            for (int p = 1; p <= 9; p++)
                for (int from = 0; from < p; from++)
                    for (int to = from + 1; to <= p; to++) check_hull((ra_layout)layout, n, p, from, to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_position_once), cmocka_unit_test(test_documents_are_dealt_to_all),
        cmocka_unit_test(test_even_documents_as_others_cut_them), cmocka_unit_test(test_hulls)};
    return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
