#include "support/cmocka.h"
#include "support/rng.h"

#include "core/join_rounds.h"

#include <stdlib.h>

enum { ROWS = 48, HEADS = 6, ROUNDS = 4, MOST = 4096 };

/* A list in the making. Tiles are told apart by their parts. */
typedef struct maker {
    ra_tile tiles[MOST];
    ra_tile_group groups[MOST];
    ra_tile_round rounds[ROUNDS];
    ra_tile_list list;
} maker;

static void start(maker *m) {
    m->list = (ra_tile_list){m->tiles, m->groups, m->rounds, 0, 0, 0};
}

static void add_round(maker *m, int64_t state) {
    m->rounds[m->list.round_count++] = (ra_tile_round){m->list.group_count, 0, state};
}

/* A group of tiles that see all keys, so many each. */
static void add_group(maker *m, ra_span rows, ra_span heads, int64_t tiles, int64_t keys) {
    m->groups[m->list.group_count++] = (ra_tile_group){m->list.tile_count, tiles};
    m->rounds[m->list.round_count - 1].count++;
    for (int64_t i = 0; i < tiles; i++) {
        int part = (int)m->list.tile_count;
        m->tiles[m->list.tile_count++] = (ra_tile){
            .q_rows = rows, .k_rows = {part, 1, keys}, .heads = heads, .lo = -rows.count, .hi = keys, .part = part};
    }
}

/* Every rate-th row of each segment, for heads with that offset. */
static void add_branch(maker *m, int64_t rows, int64_t heads, int64_t segment, int64_t rate) {
    add_round(m, 0);
    for (int64_t offset = 0; offset < rate && offset < heads; offset++)
        for (int64_t from = 0; from < rows; from += segment) {
            int64_t to = from + segment < rows ? from + segment : rows;
            ra_span some = {from + offset, rate, (to - from - offset + rate - 1) / rate};
            ra_span of = {offset, rate, (heads - offset + rate - 1) / rate};
            if (some.count > 0) add_group(m, some, of, 1, some.count);
        }
}

static void make_random(rng *r, maker *m) {
    start(m);
    int64_t rounds = rng_between(r, 1, ROUNDS);
    for (int64_t i = 0; i < rounds; i++) {
        add_branch(m, ROWS, HEADS, rng_between(r, 4, 50), rng_between(r, 1, 6));
        if (rng_between(r, 0, 5) == 0) m->rounds[i].state = 1;
        ra_tile_round *round = &m->rounds[i];
        if (rng_between(r, 0, 4) || !round->count) continue;
        ra_tile *masked = &m->tiles[m->groups[round->first + rng_between(r, 0, round->count - 1)].first];
        masked->hi = 0;
    }
}

/* [ROWS][HEADS][tiles]: in which place, of the pass's, a row goes through a tile; 0: it does not. */
typedef struct visits {
    int64_t *places;
    int64_t tiles;
} visits;

static int64_t *visit_of(const visits *v, int64_t row, int64_t head, int64_t tile) {
    return &v->places[(row * HEADS + head) * v->tiles + tile];
}

static void visit_group(const ra_tile_list *list, const ra_tile_group *group, int64_t place, int *seen, visits *v) {
    for (int64_t t = 0; t < group->count; t++) {
        const ra_tile *tile = &list->tiles[group->first + t], *first = &list->tiles[group->first];
        assert_true(ra_span_same(tile->q_rows, first->q_rows) && ra_span_same(tile->heads, first->heads));
        for (int64_t a = 0; a < tile->q_rows.count; a++)
            for (int64_t h = 0; h < tile->heads.count; h++) {
                int64_t row = ra_span_at(tile->q_rows, a), head = ra_span_at(tile->heads, h);
                if (t == 0) assert_int_equal(seen[row * HEADS + head]++, 0); /* groups of a round have none in common */
                assert_int_equal(*visit_of(v, row, head, tile->part), 0);
                *visit_of(v, row, head, tile->part) = place + t;
            }
    }
}

static visits visits_of(const ra_tile_list *list, int64_t tiles) {
    visits v = {calloc((size_t)(ROWS * HEADS * tiles), sizeof *v.places), tiles};
    for (int64_t r = 0; r < list->round_count; r++) {
        int seen[ROWS * HEADS] = {0};
        const ra_tile_round *round = &list->rounds[r];
        for (int64_t g = round->first; g < round->first + round->count; g++)
            visit_group(list, &list->groups[g], 1 + r * MOST, seen, &v);
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

static ra_work_costs random_costs(rng *r, int64_t round) {
    return (ra_work_costs){rng_between(r, 1, 16), rng_between(r, 1, 4), (double)rng_between(r, 0, 3),
                           (double)rng_between(r, 0, 20), (double)rng_between(r, 0, round)};
}

/* The same rows go through the same tiles; those that are masked, and their bands, stay as they are.
 * Whether rounds have been joined. */
static int check_random(uint64_t seed, maker *m) {
    rng r = {seed};
    ra_pool pool = {0};
    ra_tile_list joined;
    make_random(&r, m);
    ra_work_costs costs = random_costs(&r, 3000);
    assert_int_equal(ra_join_rounds(&pool, &m->list, &costs, &joined), RA_OK);
    visits before = visits_of(&m->list, m->list.tile_count), after = visits_of(&joined, m->list.tile_count);
    for (int64_t i = 0; i < ROWS * HEADS * before.tiles; i++)
        assert_int_equal(before.places[i] > 0, after.places[i] > 0);
    check_order(&joined, &m->list);
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
    maker *m = *state;
    int joined = 0;
    for (uint64_t seed = 1; seed <= 2000; seed++) joined += check_random(seed, m);
    assert_true(joined > 500);
}

/* 2048:1, 8192:4, 16384:16 of 16384 rows and 16 heads. */
static void add_longnet(maker *m) {
    start(m);
    add_branch(m, 16384, 16, 2048, 1);
    add_branch(m, 16384, 16, 8192, 4);
    add_branch(m, 16384, 16, 16384, 16);
}

/* 16 blocks of 128 rows in each segment of 2048 rows and head, all of them whole, where the rounds have 2,048, 512 and
 * 128. */
static void test_longnet(void **state) {
    maker *m = *state;
    ra_pool pool = {0};
    ra_tile_list joined;
    ra_work_costs costs = {128, 128, 48, 256, 768 * 132};
    add_longnet(m);
    assert_int_equal(ra_join_rounds(&pool, &m->list, &costs, &joined), RA_OK);
    assert_int_equal(joined.round_count, 1);
    assert_int_equal(joined.group_count, 16 * 8 * 7);
    for (int64_t g = 0; g < joined.group_count; g++)
        assert_int_equal(joined.tiles[joined.groups[g].first].q_rows.count % 128, 0);
    ra_pool_free(&pool);
}

/* Every 256th row of segments of 2048: cells of 8 rows would be 16 times the blocks that they need be. */
static void test_what_does_not_pay(void **state) {
    maker *m = *state;
    ra_pool pool = {0};
    ra_tile_list joined;
    ra_work_costs costs = {128, 128, 48, 256, 768 * 132};
    start(m);
    add_branch(m, 1 << 19, 1, 2048, 1);
    add_branch(m, 1 << 19, 1, 32768, 16);
    add_branch(m, 1 << 19, 1, 1 << 19, 256);
    assert_int_equal(ra_join_rounds(&pool, &m->list, &costs, &joined), RA_OK);
    assert_int_equal(joined.round_count, 2);
    assert_int_equal(joined.tiles[joined.groups[joined.rounds[1].first].first].q_rows.stride, 256);
    ra_pool_free(&pool);
}

/* Neither rounds of different states nor masked ones: the list itself comes back. */
static void test_what_cannot_be(void **state) {
    maker *m = *state;
    ra_pool pool = {0};
    ra_tile_list joined;
    ra_work_costs costs = {4, 1, 0, 0, 1e9};
    for (int masked = 0; masked < 2; masked++) {
        start(m);
        add_branch(m, ROWS, 1, 12, 1);
        add_branch(m, ROWS, 1, 24, 2);
        if (masked)
            m->tiles[0].hi = 0;
        else
            m->rounds[1].state = 1;
        assert_int_equal(ra_join_rounds(&pool, &m->list, &costs, &joined), RA_OK);
        assert_memory_equal(&joined, &m->list, sizeof joined);
    }
    ra_pool_free(&pool);
}

/* ---- by keys ----------------------------------------------------------------------------------------------------- */

enum { PARTS = 2, RANKS = 2, MEETINGS = RANKS * HEADS * ROWS * PARTS * (ROWS + 1) };

/* Keys of segments that are those of the queries, in one of two parts, or in both; queries are of one or two ranks,
 * and some pairs may count several times already. */
static void give_keys(rng *r, maker *m) {
    int ranks = (int)rng_between(r, 1, RANKS), counted = rng_one_in(r, 4);
    for (int64_t i = 0; i < m->list.tile_count; i++) {
        ra_tile *t = &m->tiles[i];
        t->part = t->q_rows.first % 3 == 0 ? 1 : 0;
        t->queries = (int)(t->q_rows.first / 8) % ranks;
        t->k_rows = t->q_rows;
        if (rng_one_in(r, 40)) t->k_rows.first++; /* they may overlap others then */
        if (counted && rng_one_in(r, 5)) t->extra = (int)rng_between(r, 1, 2);
        t->lo = -t->q_rows.count;
        if (t->hi) t->hi = t->k_rows.count;
    }
}

/* [RANKS][HEADS][ROWS][PARTS][ROWS + 1]: how often a query meets a key. */
static int *meetings_of(const ra_tile_list *list) {
    int *count = calloc(MEETINGS, sizeof *count);
    for (int64_t i = 0; i < list->tile_count; i++) {
        const ra_tile *t = &list->tiles[i];
        for (int64_t h = 0; h < t->heads.count; h++)
            for (int64_t a = 0; a < t->q_rows.count; a++)
                for (int64_t b = 0; b < t->k_rows.count; b++) {
                    if (b - a < t->lo || b - a > t->hi) continue;
                    int64_t query = (t->queries * HEADS + ra_span_at(t->heads, h)) * ROWS + ra_span_at(t->q_rows, a);
                    count[(query * PARTS + t->part) * (ROWS + 1) + ra_tile_key(t, b)] += 1 + t->extra;
                }
    }
    return count;
}

/* Whether two tiles of a round that is joined have neither the same rows nor none in common, for a head of both. */
static int overlap(ra_span a, ra_span b) {
    return !ra_span_same(a, b) && ra_span_intersect(a, b).count > 0;
}

static void check_apart(const ra_tile_list *list, const ra_tile_round *round) {
    for (int64_t g = round->first; g < round->first + round->count; g++)
        for (int64_t i = list->groups[g].first; i < list->groups[g].first + list->groups[g].count; i++)
            for (int64_t n = list->groups[round->first].first; n < i; n++) {
                const ra_tile *x = &list->tiles[i], *y = &list->tiles[n];
                if (ra_span_intersect(x->heads, y->heads).count == 0) continue;
                assert_false(x->queries == y->queries && overlap(x->q_rows, y->q_rows));
                assert_false(x->part == y->part && overlap(x->k_rows, y->k_rows));
                assert_false(x->part == y->part && ra_span_same(x->k_rows, y->k_rows) && x->queries == y->queries &&
                             ra_span_same(x->q_rows, y->q_rows));
            }
}

typedef ra_status (*joins)(ra_pool *pool, const ra_tile_list *list, const ra_work_costs *costs, ra_tile_list *list_out);

static int has_extra(const ra_tile_list *list) {
    for (int64_t i = 0; i < list->tile_count; i++)
        if (list->tiles[i].extra) return 1;
    return 0;
}

/* Every query meets every key as often as before. What came of it: 1: rounds have been joined; 2: and there are pairs
 * that count several times. */
static int check_random_keys(uint64_t seed, maker *m, joins join, int by_keys) {
    rng r = {seed};
    ra_pool pool = {0};
    ra_tile_list joined;
    make_random(&r, m);
    give_keys(&r, m);
    ra_work_costs costs = random_costs(&r, 6000);
    assert_int_equal(join(&pool, &m->list, &costs, &joined), RA_OK);
    int *before = meetings_of(&m->list), *after = meetings_of(&joined);
    assert_memory_equal(before, after, MEETINGS * sizeof *before);
    int fewer = joined.round_count < m->list.round_count, extra = fewer && has_extra(&joined);
    if (by_keys && fewer && joined.round_count == 1) check_apart(&joined, &joined.rounds[0]);
    free(before);
    free(after);
    ra_pool_free(&pool);
    return fewer + extra;
}

static void test_random_keys(void **state) {
    int came[3] = {0};
    for (uint64_t seed = 1; seed <= 600; seed++) came[check_random_keys(seed, *state, ra_join_rounds, 0)]++;
    assert_true(came[1] > 50 && came[2] > 50);
}

static void test_random_lists_by_keys(void **state) {
    int came[3] = {0};
    for (uint64_t seed = 1; seed <= 600; seed++) came[check_random_keys(seed, *state, ra_join_rounds_by_keys, 1)]++;
    assert_true(came[2] > 50);
}

/* The same, and keys that are its queries. */
static void make_longnet(maker *m) {
    add_longnet(m);
    for (int64_t i = 0; i < m->list.tile_count; i++) m->tiles[i].k_rows = m->tiles[i].q_rows, m->tiles[i].part = 0;
}

/* Pairs of a list, each counted once, or as often as it counts. */
static int64_t count_pairs(const ra_tile_list *list, int with_extra) {
    int64_t pairs = 0;
    for (int64_t i = 0; i < list->tile_count; i++)
        pairs +=
            ra_tile_pairs(&list->tiles[i]) * list->tiles[i].heads.count * (with_extra ? 1 + list->tiles[i].extra : 1);
    return pairs;
}

/* Pairs of a segment of 2048 rows and a head: all of these; of the second branch those with three more segments; of the
 * third those with four segments more. */
enum { PAIRS_ONCE = 2048 * 2048 + 512 * 1536 + 128 * 512 };

/* Blocks of keys are whole, and pairs are multiplied once. */
static void test_longnet_once(void **state) {
    maker *m = *state;
    ra_pool pool = {0};
    ra_tile_list joined;
    ra_work_costs costs = {128, 128, 48, 256, 768 * 132};
    make_longnet(m);
    assert_int_equal(ra_join_rounds(&pool, &m->list, &costs, &joined), RA_OK);
    assert_int_equal(joined.round_count, 1);
    assert_int_equal(count_pairs(&joined, 1), count_pairs(&m->list, 0));
    assert_int_equal(count_pairs(&joined, 0), (int64_t)16 * 8 * PAIRS_ONCE);
    for (int64_t i = 0; i < joined.tile_count; i++) assert_int_equal(joined.tiles[i].k_rows.count % 128, 0);
    ra_pool_free(&pool);
}

/* Every key is in one set of whole blocks. */
static void test_longnet_by_keys(void **state) {
    maker *m = *state;
    ra_pool pool = {0};
    ra_tile_list joined;
    ra_work_costs costs = {128, 64, 16, 256, 768 * 132};
    make_longnet(m);
    assert_int_equal(ra_join_rounds_by_keys(&pool, &m->list, &costs, &joined), RA_OK);
    assert_int_equal(joined.round_count, 1);
    assert_int_equal(joined.group_count, 16 * 8 * 7);
    /* Of a segment and head, 7 cells of queries meet 7 of keys there; 4 meet 4 in each of 3 segments more; 1 meets 1 in
     * each of 4 more. */
    assert_int_equal(joined.tile_count, 16 * 8 * (7 * 7 + 3 * 4 * 4 + 4));
    assert_int_equal(count_pairs(&joined, 1), count_pairs(&m->list, 0));
    assert_int_equal(count_pairs(&joined, 0), (int64_t)16 * 8 * PAIRS_ONCE);
    for (int64_t i = 0; i < joined.tile_count; i++) {
        assert_int_equal(joined.tiles[i].k_rows.count % 128, 0);
        assert_int_equal(joined.tiles[i].q_rows.count % 128, 0);
    }
    ra_pool_free(&pool);
}

static int make_maker(void **state) {
    *state = malloc(sizeof(maker));
    return *state ? 0 : -1;
}

static int free_maker(void **state) {
    free(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_lists, make_maker, free_maker),
        cmocka_unit_test_setup_teardown(test_longnet, make_maker, free_maker),
        cmocka_unit_test_setup_teardown(test_what_does_not_pay, make_maker, free_maker),
        cmocka_unit_test_setup_teardown(test_what_cannot_be, make_maker, free_maker),
        cmocka_unit_test_setup_teardown(test_random_keys, make_maker, free_maker),
        cmocka_unit_test_setup_teardown(test_random_lists_by_keys, make_maker, free_maker),
        cmocka_unit_test_setup_teardown(test_longnet_once, make_maker, free_maker),
        cmocka_unit_test_setup_teardown(test_longnet_by_keys, make_maker, free_maker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
