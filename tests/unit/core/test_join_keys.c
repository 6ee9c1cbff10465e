/* Rounds that are joined for the backward pass, in which keys are dealt to cells as well. */
#include "support/cmocka.h"
#include "support/tiles/branch_list.h"

/* Whether two tiles of a round that is joined have neither the same rows nor none in common, for a head of both. */
static int overlap(ra_span a, ra_span b) {
    return !ra_span_same(a, b) && ra_span_intersect(a, b).count > 0;
}

static void check_apart(const ra_tile_list *list) {
    for (int64_t i = 0; i < list->tile_count; i++)
        for (int64_t n = 0; n < i; n++) {
            const ra_tile *x = &list->tiles[i], *y = &list->tiles[n];
            if (ra_span_intersect(x->heads, y->heads).count == 0) continue;
            assert_false(x->queries == y->queries && overlap(x->q_rows, y->q_rows));
            assert_false(x->part == y->part && overlap(x->k_rows, y->k_rows));
            assert_false(x->part == y->part && ra_span_same(x->k_rows, y->k_rows) && x->queries == y->queries &&
                         ra_span_same(x->q_rows, y->q_rows));
        }
}

static void test_random_lists_by_keys(void **state) {
    int came[3] = {0};
    for (uint64_t seed = 1; seed <= 600; seed++)
        came[branch_list_check_join(*state, seed, ra_join_rounds_by_keys, check_apart)]++;
    assert_true(came[2] > 50);
}

/* Every key is in one set of whole blocks. */
static void test_longnet_by_keys(void **state) {
    branch_list *m = *state;
    ra_pool pool = {0};
    ra_tile_list joined;
    ra_work_costs costs = {128, 64, 16, 256, 768 * 132};
    branch_list_longnet(m, 1);
    assert_int_equal(ra_join_rounds_by_keys(&pool, &m->list, &costs, &joined), RA_OK);
    assert_int_equal(joined.round_count, 1);
    assert_int_equal(joined.group_count, 16 * 8 * 7);
    /* Of a segment and head, 7 cells of queries meet 7 of keys there; 4 meet 4 in each of 3 segments more; 1 meets 1 in
     * each of 4 more. */
    assert_int_equal(joined.tile_count, 16 * 8 * (7 * 7 + 3 * 4 * 4 + 4));
    assert_int_equal(tile_list_pairs(&joined, 1), tile_list_pairs(&m->list, 0));
    assert_int_equal(tile_list_pairs(&joined, 0), (int64_t)16 * 8 * LONGNET_PAIRS);
    tile_list_check_positions(&joined);
    for (int64_t i = 0; i < joined.tile_count; i++) {
        assert_int_equal(joined.tiles[i].k_rows.count % 128, 0);
        assert_int_equal(joined.tiles[i].q_rows.count % 128, 0);
    }
    ra_pool_free(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_lists_by_keys, branch_list_make, branch_list_free),
        cmocka_unit_test_setup_teardown(test_longnet_by_keys, branch_list_make, branch_list_free),
    };
    return cmocka_run_group_tests_name("join_keys", tests, NULL, NULL);
}
