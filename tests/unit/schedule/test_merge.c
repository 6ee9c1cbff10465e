/* Tiles of several computes as one list: the same tiles, each with its part, those with the same rows side by side. */
#include "support/cmocka.h"
#include "support/rng.h"

#include "schedule/schedule.h"

#include <string.h>

enum { MOST_LISTS = 4, MOST_GROUPS = 6, MOST_TILES = 3 };

/* A list of groups, of which group g has the rows [100 g, 100 g + 50), and of their tiles. */
typedef struct made_list {
    ra_tile tiles[MOST_GROUPS * MOST_TILES];
    ra_tile_group groups[MOST_GROUPS];
    ra_tile_round round;
    ra_tile_list list;
} made_list;

static void make_list(rng *r, made_list *m, int parts) {
    memset(m, 0, sizeof *m);
    for (int g = 0; g < MOST_GROUPS; g++) {
        if (rng_one_in(r, 3)) continue;
        ra_tile_group *group = &m->groups[m->list.group_count++];
        *group = (ra_tile_group){m->list.tile_count, rng_between(r, 1, MOST_TILES)};
        for (int64_t i = 0; i < group->count; i++)
            m->tiles[m->list.tile_count++] = (ra_tile){.q_rows = {100 * g, 1, 50},
                                                       .k_rows = {rng_between(r, 0, 1000), 1, 7},
                                                       .heads = {0, 1, 2},
                                                       .hi = 7,
                                                       .part = (int)rng_between(r, 0, parts - 1)};
    }
    m->round.count = m->list.group_count;
    m->list.tiles = m->tiles;
    m->list.groups = m->groups;
    m->list.rounds = &m->round;
    m->list.round_count = 1;
}

static int is_tile(const ra_tile *tile, const ra_tile *of, int64_t first_part) {
    return tile->q_rows.first == of->q_rows.first && tile->k_rows.first == of->k_rows.first &&
           tile->part == of->part + first_part;
}

/* Every tile is there once, in the order of the lists inside its group, and no two groups have the same rows. */
static void check_merged(const ra_tile_list *merged, const ra_tile_list *lists, const int64_t *first_parts, int count) {
    int64_t total = 0, seen = 0;
    for (int i = 0; i < count; i++) total += lists[i].tile_count;
    assert_int_equal(merged->tile_count, total);
    assert_int_equal(merged->round_count, 1);
    assert_int_equal(merged->rounds[0].count, merged->group_count);
    for (int64_t g = 0; g < merged->group_count; g++) {
        int64_t row = merged->tiles[merged->groups[g].first].q_rows.first, at = merged->groups[g].first;
        assert_int_equal(at, seen);
        for (int64_t other = 0; other < g; other++)
            assert_int_not_equal(merged->tiles[merged->groups[other].first].q_rows.first, row);
        for (int i = 0; i < count; i++)
            for (int64_t j = 0; j < lists[i].tile_count; j++)
                if (lists[i].tiles[j].q_rows.first == row)
                    assert_true(is_tile(&merged->tiles[at++], &lists[i].tiles[j], first_parts[i]));
        seen += merged->groups[g].count;
        assert_int_equal(at, seen);
    }
    assert_int_equal(seen, total);
}

static void test_random_lists(void **state) {
    (void)state;
    static made_list made[MOST_LISTS];
    for (uint64_t seed = 1; seed <= 500; seed++) {
        rng r = {seed};
        ra_pool pool = {0};
        ra_tile_list lists[MOST_LISTS], merged;
        int64_t first_parts[MOST_LISTS], parts = 0;
        int count = (int)rng_between(&r, 2, MOST_LISTS);
        for (int i = 0; i < count; i++, parts += 3) {
            do make_list(&r, &made[i], 3);
            while (made[i].list.tile_count == 0);
            lists[i] = made[i].list;
            first_parts[i] = parts;
        }
        assert_int_equal(ra_tiles_merge(&pool, lists, first_parts, count, &merged), RA_OK);
        check_merged(&merged, lists, first_parts, count);
        ra_pool_free(&pool);
    }
}

/* Rows that are in two groups would be two workers'; rounds follow one another. */
static void test_what_cannot_be_one_list(void **state) {
    (void)state;
    static made_list made[2];
    ra_pool pool = {0};
    int64_t first_parts[] = {0, 3};
    for (int kind = 0; kind < 4; kind++) {
        rng r = {(uint64_t)kind + 1};
        for (int i = 0; i < 2; i++) {
            do make_list(&r, &made[i], 3);
            while (made[i].list.group_count < 2);
        }
        ra_tile_list lists[] = {made[0].list, made[1].list}, merged;
        if (kind == 0) lists[1].round_count = 2;
        if (kind == 1) made[1].round.state = 1;
        if (kind == 2) /* rows that begin inside another group's */
            for (int64_t j = 0; j < lists[1].tile_count; j++) made[1].tiles[j].q_rows = (ra_span){530, 1, 50};
        if (kind == 2) made[0].tiles[0].q_rows = (ra_span){500, 1, 50};
        if (kind == 3) /* the same rows of some heads that are the same */
            for (int64_t j = 0; j < lists[1].tile_count; j++) {
                made[1].tiles[j].q_rows = made[0].tiles[0].q_rows;
                made[1].tiles[j].heads = (ra_span){1, 1, 2};
            }
        assert_int_equal(ra_tiles_merge(&pool, lists, first_parts, 2, &merged), RA_OK);
        assert_int_equal(merged.tile_count, 0);
    }
    ra_pool_free(&pool);
}

/* The same rows of heads that are not all apart, the two that are not being no neighbours by their order. */
static void test_heads_that_overlap(void **state) {
    (void)state;
    static const ra_span heads[][3] = {
        {{0, 1, 2}, {4, 1, 4}, {0, 1, 3}}, {{4, 1, 4}, {0, 1, 2}, {1, 1, 1}}, {{0, 1, 2}, {4, 1, 4}, {2, 1, 2}}};
    for (int kind = 0; kind < 3; kind++) {
        ra_pool pool = {0};
        ra_tile tiles[3];
        ra_tile_group group = {0, 1};
        ra_tile_round round = {0, 1, 0};
        ra_tile_list lists[3], merged;
        for (int i = 0; i < 3; i++) {
            tiles[i] = (ra_tile){.q_rows = {0, 1, 50}, .k_rows = {0, 1, 7}, .heads = heads[kind][i], .hi = 7};
            lists[i] = (ra_tile_list){&tiles[i], &group, &round, 1, 1, 1};
        }
        assert_int_equal(ra_tiles_merge(&pool, lists, (int64_t[]){0, 1, 2}, 3, &merged), RA_OK);
        assert_int_equal(merged.tile_count, kind == 2 ? 3 : 0);
        ra_pool_free(&pool);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_lists),
        cmocka_unit_test(test_what_cannot_be_one_list),
        cmocka_unit_test(test_heads_that_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
