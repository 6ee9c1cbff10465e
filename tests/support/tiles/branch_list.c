#include "support/tiles/branch_list.h"

#include "support/cmocka.h"

#include <stdlib.h>

int branch_list_make(void **state) {
    *state = malloc(sizeof(branch_list));
    return *state ? 0 : -1;
}

int branch_list_free(void **state) {
    free(*state);
    return 0;
}

void branch_list_start(branch_list *m) {
    m->list = (ra_tile_list){m->tiles, m->groups, m->rounds, 0, 0, 0};
}

static void add_round(branch_list *m, int64_t state) {
    m->rounds[m->list.round_count++] = (ra_tile_round){m->list.group_count, 0, state};
}

/* Where row r of queries, or key row r of a part, is in the sequence: anything that differs from the row. */
static int64_t query_position(int64_t row) {
    return 1000 + 2 * row;
}

static int64_t key_position(int part, int64_t row) {
    return 3 * row + part;
}

static void give_positions(ra_tile *t) {
    t->positions = (ra_positions){.query = query_position(t->q_rows.first),
                                  .query_stride = 2 * t->q_rows.stride,
                                  .key = key_position(t->part, t->k_rows.first),
                                  .key_stride = 3 * t->k_rows.stride};
}

void tile_list_check_positions(const ra_tile_list *list) {
    for (int64_t i = 0; i < list->tile_count; i++) {
        const ra_tile *t = &list->tiles[i];
        const ra_positions *at = &t->positions;
        for (int64_t a = 0; a < t->q_rows.count; a++)
            assert_int_equal(at->query + a * at->query_stride, query_position(ra_span_at(t->q_rows, a)));
        for (int64_t b = 0; b < t->k_rows.count; b++)
            assert_int_equal(at->key + b * at->key_stride, key_position(t->part, ra_tile_key(t, b)));
    }
}

/* A group of a tile that sees all keys, so many. */
static void add_group(branch_list *m, ra_span rows, ra_span heads, int64_t keys) {
    int part = (int)m->list.tile_count;
    ra_tile *tile = &m->tiles[m->list.tile_count];
    m->groups[m->list.group_count++] = (ra_tile_group){m->list.tile_count++, 1};
    m->rounds[m->list.round_count - 1].count++;
    *tile = (ra_tile){
        .q_rows = rows, .k_rows = {part, 1, keys}, .heads = heads, .lo = -rows.count, .hi = keys, .part = part};
    give_positions(tile);
}

void branch_list_add(branch_list *m, int64_t rows, int64_t heads, int64_t segment, int64_t rate) {
    add_round(m, 0);
    for (int64_t offset = 0; offset < rate && offset < heads; offset++)
        for (int64_t from = 0; from < rows; from += segment) {
            int64_t to = from + segment < rows ? from + segment : rows;
            ra_span some = {from + offset, rate, (to - from - offset + rate - 1) / rate};
            ra_span of = {offset, rate, (heads - offset + rate - 1) / rate};
            if (some.count > 0) add_group(m, some, of, some.count);
        }
}

void branch_list_random(branch_list *m, rng *r) {
    branch_list_start(m);
    int64_t rounds = rng_between(r, 1, LIST_ROUNDS);
    for (int64_t i = 0; i < rounds; i++) {
        branch_list_add(m, LIST_ROWS, LIST_HEADS, rng_between(r, 4, 50), rng_between(r, 1, 6));
        if (rng_between(r, 0, 5) == 0) m->rounds[i].state = 1;
        ra_tile_round *round = &m->rounds[i];
        if (rng_between(r, 0, 4) || !round->count) continue;
        ra_tile *masked = &m->tiles[m->groups[round->first + rng_between(r, 0, round->count - 1)].first];
        masked->hi = 0;
    }
}

void branch_list_longnet(branch_list *m, int with_keys) {
    branch_list_start(m);
    branch_list_add(m, 16384, 16, 2048, 1);
    branch_list_add(m, 16384, 16, 8192, 4);
    branch_list_add(m, 16384, 16, 16384, 16);
    for (int64_t i = 0; with_keys && i < m->list.tile_count; i++) {
        m->tiles[i].k_rows = m->tiles[i].q_rows;
        m->tiles[i].part = 0;
        give_positions(&m->tiles[i]);
    }
}

ra_work_costs random_work_costs(rng *r, int64_t round) {
    return (ra_work_costs){rng_between(r, 1, 16), rng_between(r, 1, 4), (double)rng_between(r, 0, 3),
                           (double)rng_between(r, 0, 20), (double)rng_between(r, 0, round)};
}

int64_t tile_list_pairs(const ra_tile_list *list, int with_extra) {
    int64_t pairs = 0;
    for (int64_t i = 0; i < list->tile_count; i++)
        pairs +=
            ra_tile_pairs(&list->tiles[i]) * list->tiles[i].heads.count * (with_extra ? 1 + list->tiles[i].extra : 1);
    return pairs;
}

enum { PARTS = 2, RANKS = 2, MEETINGS = RANKS * LIST_HEADS * LIST_ROWS * PARTS * (LIST_ROWS + 1) };

/* Keys of segments that are those of the queries, in one of two parts, or in both; queries are of one or two ranks,
 * and some pairs may count several times already. */
static void give_keys(rng *r, branch_list *m) {
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
        give_positions(t);
    }
}

/* [RANKS][LIST_HEADS][LIST_ROWS][PARTS][LIST_ROWS + 1]: how often a query meets a key. */
static int *meetings_of(const ra_tile_list *list) {
    int *count = calloc(MEETINGS, sizeof *count);
    for (int64_t i = 0; i < list->tile_count; i++) {
        const ra_tile *t = &list->tiles[i];
        for (int64_t h = 0; h < t->heads.count; h++)
            for (int64_t a = 0; a < t->q_rows.count; a++)
                for (int64_t b = 0; b < t->k_rows.count; b++) {
                    if (b - a < t->lo || b - a > t->hi) continue;
                    int64_t query =
                        (t->queries * LIST_HEADS + ra_span_at(t->heads, h)) * LIST_ROWS + ra_span_at(t->q_rows, a);
                    count[(query * PARTS + t->part) * (LIST_ROWS + 1) + ra_tile_key(t, b)] += 1 + t->extra;
                }
    }
    return count;
}

static int has_extra(const ra_tile_list *list) {
    for (int64_t i = 0; i < list->tile_count; i++)
        if (list->tiles[i].extra) return 1;
    return 0;
}

int branch_list_check_join(branch_list *m, uint64_t seed, join_function join, void (*check)(const ra_tile_list *list)) {
    rng r = {seed};
    ra_pool pool = {0};
    ra_tile_list joined;
    branch_list_random(m, &r);
    give_keys(&r, m);
    ra_work_costs costs = random_work_costs(&r, 6000);
    assert_int_equal(join(&pool, &m->list, &costs, &joined), RA_OK);
    int *before = meetings_of(&m->list), *after = meetings_of(&joined);
    assert_memory_equal(before, after, MEETINGS * sizeof *before);
    int fewer = joined.round_count < m->list.round_count, extra = fewer && has_extra(&joined);
    tile_list_check_positions(&joined);
    if (check && fewer && joined.round_count == 1) check(&joined);
    free(before);
    free(after);
    ra_pool_free(&pool);
    return fewer + extra;
}
