#include "exec/split_stripes.h"

#include "base/status.h"

typedef struct split {
    int64_t queries, keys; /* rows of each */
} split;

enum {
    SPLIT_POSITIONS = 1024, /* that the keys of all ranks stand in together */
    LEAST_KEYS = 256,       /* the most that a kernel has in a block */
    LEAST_QUERIES = 128,
    MOST_SPLIT_TILES = 1 << 14 /* more would take long to list */
};

static int64_t splits_of(ra_span rows, int64_t each) {
    return (rows.count + each - 1) / each;
}

static int64_t count_split(const ra_tile_list *list, split by) {
    int64_t count = 0;
    for (int64_t i = 0; i < list->tile_count; i++)
        count += splits_of(list->tiles[i].q_rows, by.queries) * splits_of(list->tiles[i].k_rows, by.keys);
    return count;
}

/* How stripes that far apart are split: queries into more rows where there would be too many tiles, and where those are
 * too many then, in the longest sequences, keys not at all. */
static split choose_split(const ra_tile_list *list, int64_t stride) {
    int64_t most = 1;
    for (int64_t i = 0; i < list->tile_count; i++) {
        const ra_tile *t = &list->tiles[i];
        if (t->q_rows.count > most) most = t->q_rows.count;
        if (t->k_rows.count > most) most = t->k_rows.count;
    }
    split by = {LEAST_QUERIES, SPLIT_POSITIONS / stride / LEAST_KEYS * LEAST_KEYS};
    if (by.keys < LEAST_KEYS) by.keys = LEAST_KEYS;
    while (by.queries < most && count_split(list, by) > MOST_SPLIT_TILES) by.queries *= 2;
    if (count_split(list, by) <= MOST_SPLIT_TILES) return by;
    by = (split){LEAST_QUERIES, most};
    while (by.queries < most && count_split(list, by) > MOST_SPLIT_TILES) by.queries *= 2;
    return by;
}

static int64_t end_of(ra_span rows, int64_t from, int64_t each) {
    return rows.count - from < each ? rows.count : from + each;
}

/* A group's queries from number `query` on with its keys, as far as something is visible: a group behind those that are
 * there. */
static void split_group(const ra_tile *from, int64_t count, split by, int64_t query, ra_tile *tiles,
                        ra_tile_group *groups, ra_tile_list *to) {
    ra_tile_group group = {to->tile_count, 0};
    for (int64_t i = 0; i < count; i++)
        for (int64_t key = 0; key < from[i].k_rows.count; key += by.keys) {
            const ra_tile *t = &from[i];
            ra_tile some =
                ra_tile_slice(t, query, end_of(t->q_rows, query, by.queries), key, end_of(t->k_rows, key, by.keys));
            if (ra_tile_pairs(&some) > 0) tiles[to->tile_count++] = some;
        }
    group.count = to->tile_count - group.first;
    if (group.count > 0) groups[to->group_count++] = group;
}

ra_status ra_split_stripes(ra_pool *pool, ra_tile_list *list) {
    if (list->tile_count == 0 || list->tiles[0].positions.key_stride == 1) return RA_OK;
    split by = choose_split(list, list->tiles[0].positions.key_stride);
    int64_t group_count = 0;
    for (int64_t g = 0; g < list->group_count; g++)
        group_count += splits_of(list->tiles[list->groups[g].first].q_rows, by.queries);
    ra_tile *tiles = ra_pool_take(pool, count_split(list, by), sizeof *tiles);
    ra_tile_group *groups = ra_pool_take(pool, group_count, sizeof *groups);
    if (!tiles || !groups) return ra_no_memory();
    ra_tile_list all = {tiles, groups, list->rounds, 0, 0, list->round_count};
    for (int64_t g = 0; g < list->group_count; g++) {
        const ra_tile *from = &list->tiles[list->groups[g].first];
        for (int64_t query = 0; query < from->q_rows.count; query += by.queries)
            split_group(from, list->groups[g].count, by, query, tiles, groups, &all);
    }
    *list = all;
    return RA_OK;
}
