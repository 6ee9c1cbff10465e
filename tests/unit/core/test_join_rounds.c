#include "support/cmocka.h"
#include "support/tiles/branch_list.h"

#include <stdlib.h>

/* [LIST_ROWS][LIST_HEADS][tiles]: in which place, of the pass's, a row goes through a tile; 0: it does not. */
typedef struct visits {
    int64_t *places;
    int64_t tiles;
} visits;

static int64_t *visit_of(const visits *v, int64_t row, int64_t head, int64_t tile) {
    return &v->places[(row * LIST_HEADS + head) * v->tiles + tile];
}

static void visit_group(const ra_tile_list *list, const ra_tile_group *group, int64_t place, int *seen, visits *v) {
    for (int64_t t = 0; t < group->count; t++) {
        const ra_tile *tile = &list->tiles[group->first + t], *first = &list->tiles[group->first];
        assert_true(ra_span_same(tile->q_rows, first->q_rows) && ra_span_same(tile->heads, first->heads));
        for (int64_t a = 0; a < tile->q_rows.count; a++)
            for (int64_t h = 0; h < tile->heads.count; h++) {
                int64_t row = ra_span_at(tile->q_rows, a), head = ra_span_at(tile->heads, h);
                if (t == 0)
                    assert_int_equal(seen[row * LIST_HEADS + head]++, 0); /* groups of a round have none in common */
                assert_int_equal(*visit_of(v, row, head, tile->part), 0);
                *visit_of(v, row, head, tile->part) = place + t;
            }
    }
}

static visits visits_of(const ra_tile_list *list, int64_t tiles) {
    visits v = {calloc((size_t)(LIST_ROWS * LIST_HEADS * tiles), sizeof *v.places), tiles};
    for (int64_t r = 0; r < list->round_count; r++) {
        int seen[LIST_ROWS * LIST_HEADS] = {0};
        const ra_tile_round *round = &list->rounds[r];
        for (int64_t g = round->first; g < round->first + round->count; g++)
            visit_group(list, &list->groups[g], 1 + r * LIST_MOST, seen, &v);
    }
    return v;
}

static int is_masked(const ra_tile *t) {
    return !ra_tile_is_full(t, 0, t->q_rows.count, 0, t->k_rows.count);
}

static int count_masked(const ra_tile_list *list) {
    int count = 0;
    for (int64_t i = 0; i < list->tile_count; i++) count += is_masked(&list->tiles[i]);
    return count;
}

/* A group's tiles come in the order in which they were listed, which is that of the rounds. */
static void check_order(const ra_tile_list *joined, const ra_tile_list *from) {
    for (int64_t g = 0; g < joined->group_count; g++)
        for (int64_t t = 1; t < joined->groups[g].count; t++) {
            const ra_tile *tile = &joined->tiles[joined->groups[g].first + t];
            assert_true(tile[-1].part < tile->part && tile->part < from->tile_count);
        }
}

/* The same rows go through the same tiles; those that are masked, and their bands, stay as they are.
 * Whether rounds have been joined. */
static int check_random(uint64_t seed, branch_list *m) {
    rng r = {seed};
    ra_pool pool = {0};
    ra_tile_list joined;
    branch_list_random(m, &r);
    ra_work_costs costs = random_work_costs(&r, 3000);
    assert_int_equal(ra_join_rounds(&pool, &m->list, &costs, &joined), RA_OK);
    visits before = visits_of(&m->list, m->list.tile_count), after = visits_of(&joined, m->list.tile_count);
    for (int64_t i = 0; i < LIST_ROWS * LIST_HEADS * before.tiles; i++)
        assert_int_equal(before.places[i] > 0, after.places[i] > 0);
    check_order(&joined, &m->list);
    tile_list_check_positions(&joined);
    for (int64_t i = 0; i < joined.tile_count; i++) {
        const ra_tile *t = &joined.tiles[i], *from = &m->list.tiles[t->part];
        assert_true(ra_span_same(t->k_rows, from->k_rows));
        if (is_masked(from)) assert_memory_equal(t, from, sizeof *t);
    }
    assert_int_equal(count_masked(&joined), count_masked(&m->list));
    free(before.places);
    free(after.places);
    ra_pool_free(&pool);
    return joined.round_count < m->list.round_count;
}

static void test_random_lists(void **state) {
    branch_list *m = *state;
    int joined = 0;
    for (uint64_t seed = 1; seed <= 2000; seed++) joined += check_random(seed, m);
    assert_true(joined > 500);
}

/* 16 blocks of 128 rows in each segment of 2048 rows and head, all of them whole, where the rounds have 2,048, 512 and
 * 128. */
static void test_longnet(void **state) {
    branch_list *m = *state;
    ra_pool pool = {0};
    ra_tile_list joined;
    ra_work_costs costs = {128, 128, 48, 256, 768 * 132};
    branch_list_longnet(m, 0);
    assert_int_equal(ra_join_rounds(&pool, &m->list, &costs, &joined), RA_OK);
    assert_int_equal(joined.round_count, 1);
    assert_int_equal(joined.group_count, 16 * 8 * 7);
    for (int64_t g = 0; g < joined.group_count; g++)
        assert_int_equal(joined.tiles[joined.groups[g].first].q_rows.count % 128, 0);
    ra_pool_free(&pool);
}

/* Every 256th row of segments of 2048: cells of 8 rows would be 16 times the blocks that they need be. */
static void test_what_does_not_pay(void **state) {
    branch_list *m = *state;
    ra_pool pool = {0};
    ra_tile_list joined;
    ra_work_costs costs = {128, 128, 48, 256, 768 * 132};
    branch_list_start(m);
    branch_list_add(m, 1 << 19, 1, 2048, 1);
    branch_list_add(m, 1 << 19, 1, 32768, 16);
    branch_list_add(m, 1 << 19, 1, 1 << 19, 256);
    assert_int_equal(ra_join_rounds(&pool, &m->list, &costs, &joined), RA_OK);
    assert_int_equal(joined.round_count, 2);
    assert_int_equal(joined.tiles[joined.groups[joined.rounds[1].first].first].q_rows.stride, 256);
    ra_pool_free(&pool);
}

/* Neither rounds of different states nor masked ones: the list itself comes back. */
static void test_what_cannot_be(void **state) {
    branch_list *m = *state;
    ra_pool pool = {0};
    ra_tile_list joined;
    ra_work_costs costs = {4, 1, 0, 0, 1e9};
    for (int masked = 0; masked < 2; masked++) {
        branch_list_start(m);
        branch_list_add(m, LIST_ROWS, 1, 12, 1);
        branch_list_add(m, LIST_ROWS, 1, 24, 2);
        if (masked)
            m->tiles[0].hi = 0;
        else
            m->rounds[1].state = 1;
        assert_int_equal(ra_join_rounds(&pool, &m->list, &costs, &joined), RA_OK);
        assert_memory_equal(&joined, &m->list, sizeof joined);
    }
    ra_pool_free(&pool);
}

static void test_random_keys(void **state) {
    int came[3] = {0};
    for (uint64_t seed = 1; seed <= 600; seed++) came[branch_list_check_join(*state, seed, ra_join_rounds, NULL)]++;
    assert_true(came[1] > 50 && came[2] > 50);
}

/* Blocks of keys are whole, and pairs are multiplied once. */
static void test_longnet_once(void **state) {
    branch_list *m = *state;
    ra_pool pool = {0};
    ra_tile_list joined;
    ra_work_costs costs = {128, 128, 48, 256, 768 * 132};
    branch_list_longnet(m, 1);
    assert_int_equal(ra_join_rounds(&pool, &m->list, &costs, &joined), RA_OK);
    assert_int_equal(joined.round_count, 1);
    assert_int_equal(tile_list_pairs(&joined, 1), tile_list_pairs(&m->list, 0));
    assert_int_equal(tile_list_pairs(&joined, 0), (int64_t)16 * 8 * LONGNET_PAIRS);
    for (int64_t i = 0; i < joined.tile_count; i++) assert_int_equal(joined.tiles[i].k_rows.count % 128, 0);
    ra_pool_free(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_lists, branch_list_make, branch_list_free),
        cmocka_unit_test_setup_teardown(test_longnet, branch_list_make, branch_list_free),
        cmocka_unit_test_setup_teardown(test_what_does_not_pay, branch_list_make, branch_list_free),
        cmocka_unit_test_setup_teardown(test_what_cannot_be, branch_list_make, branch_list_free),
        cmocka_unit_test_setup_teardown(test_random_keys, branch_list_make, branch_list_free),
        cmocka_unit_test_setup_teardown(test_longnet_once, branch_list_make, branch_list_free),
    };
    return cmocka_run_group_tests_name("join_rounds", tests, NULL, NULL);
}
