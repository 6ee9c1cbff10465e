#include "core/joinable.h"

#include "base/status.h"

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* More rows than a shard has, and how many parts or ranks can be numbered with that. */
static const int64_t NUMBERS = (int64_t)1 << 44;
enum { MOST_NUMBERED = 1 << 18 };

/* Whether all pairs of the round's tiles are visible, of which none is empty, and their rows can be numbered. */
static int sees_all(const ra_tile_list *list, const ra_tile_round *round) {
    for (int64_t g = round->first; g < ra_round_end(round); g++)
        for (int64_t t = 0; t < list->groups[g].count; t++) {
            const ra_tile *tile = &list->tiles[list->groups[g].first + t];
            if (tile->k_rows.count == 0 || tile->part > MOST_NUMBERED || tile->queries > MOST_NUMBERED) return 0;
            if (!ra_tile_is_full(tile, 0, tile->q_rows.count, 0, tile->k_rows.count)) return 0;
        }
    return 1;
}

static ra_status find_rounds(ra_pool *pool, ra_joinable *j) {
    const ra_tile_list *list = j->list;
    int64_t first = -1;
    j->rounds = ra_pool_take(pool, list->round_count, sizeof *j->rounds);
    if (!j->rounds) return ra_no_memory();
    for (int64_t r = 0; r < list->round_count; r++) {
        if (first >= 0 && list->rounds[r].state != list->rounds[first].state) continue;
        if (list->rounds[r].count == 0 || list->rounds[r].count > RA_JOIN_TILES) continue;
        if (!sees_all(list, &list->rounds[r])) continue;
        if (first < 0) first = r;
        j->rounds[r] = 1;
        j->round_count++;
    }
    return RA_OK;
}

/* ---- heads ------------------------------------------------------------------------------------------------------- */

/* The groups that a head is in: their number, and a hash of what they are. */
typedef struct membership {
    int64_t count;
    uint64_t hash;
    int dealt; /* it has a class */
} membership;

static void note_heads(ra_span heads, int64_t group, membership *members) {
    for (int64_t i = 0; i < heads.count; i++) {
        membership *m = &members[ra_span_at(heads, i)];
        m->count++;
        m->hash = (m->hash ^ (uint64_t)group) * 0x9e3779b97f4a7c15u;
        m->hash ^= m->hash >> 29;
    }
}

static int has_head(const ra_joinable *j, int64_t group, int64_t head) {
    return ra_span_clip(ra_first_tile(j->list, group)->heads, head, head + 1).count > 0;
}

/* Hashes may be the same by chance. */
static int in_same_groups(const ra_joinable *j, int64_t a, int64_t b) {
    for (int64_t r = 0; r < j->list->round_count; r++)
        for (int64_t g = j->list->rounds[r].first; j->rounds[r] && g < ra_round_end(&j->list->rounds[r]); g++)
            if (has_head(j, g, a) != has_head(j, g, b)) return 0;
    return 1;
}

/* Groups that heads are compared by, for all heads: more would take long. */
static const int64_t MOST_COMPARED = (int64_t)1 << 23;

static int64_t count_heads(const ra_tile_list *list) {
    int64_t heads = 0;
    for (int64_t g = 0; g < list->group_count; g++) {
        ra_span s = ra_first_tile(list, g)->heads;
        if (s.count > 0 && ra_span_last(s) >= heads) heads = ra_span_last(s) + 1;
    }
    return heads;
}

/* Whether the head continues the class: its heads are evenly apart, so that they are a span. */
static int fits_class(const ra_joinable *j, const membership *members, ra_span heads, int64_t head) {
    int64_t last = ra_span_last(heads);
    if (members[last].hash != members[head].hash || members[last].count != members[head].count) return 0;
    if (heads.count > 1 && head - last != heads.stride) return 0;
    return in_same_groups(j, last, head);
}

/* The class that begins with a head, of those below `end`. */
static ra_span class_from(const ra_joinable *j, membership *members, int64_t head, int64_t end) {
    ra_span heads = {head, 1, 1};
    for (int64_t i = head + 1; i < end; i++) {
        if (members[i].dealt || !fits_class(j, members, heads, i)) continue;
        if (heads.count == 1) heads.stride = i - head;
        heads.count++;
        members[i].dealt = 1;
    }
    return heads;
}

/* Deals the heads to classes, in rising order of each class's first head. */
static ra_status find_classes(ra_pool *pool, ra_joinable *j) {
    const ra_tile_list *list = j->list;
    int64_t heads = count_heads(list);
    membership *members = ra_pool_take(pool, heads, sizeof *members);
    j->classes = ra_pool_take(pool, heads, sizeof *j->classes);
    if (!members || !j->classes) return ra_no_memory();
    for (int64_t r = 0; r < list->round_count; r++)
        for (int64_t g = list->rounds[r].first; j->rounds[r] && g < ra_round_end(&list->rounds[r]); g++)
            note_heads(ra_first_tile(list, g)->heads, g, members);
    for (int64_t h = 0; h < heads; h++)
        if (!members[h].dealt && members[h].count > 0) j->classes[j->class_count++] = class_from(j, members, h, heads);
    return RA_OK;
}

ra_status ra_joinable_find(ra_pool *pool, const ra_tile_list *list, ra_joinable *joinable_out) {
    *joinable_out = (ra_joinable){.list = list};
    RA_TRY(find_rounds(pool, joinable_out));
    if (list->group_count * count_heads(list) > MOST_COMPARED) joinable_out->round_count = 0;
    return joinable_out->round_count < 2 ? RA_OK : find_classes(pool, joinable_out);
}

int ra_joinable_has(const ra_joinable *joinable, int64_t group, int64_t class_number) {
    return has_head(joinable, group, joinable->classes[class_number].first);
}

ra_status ra_joinable_queries(ra_pool *pool, const ra_joinable *joinable, const ra_tile_round *round,
                              int64_t class_number, const ra_cells *cells, int64_t *work, ra_cells *cells_out) {
    ra_named_span *spans = ra_pool_take(pool, round->count, sizeof *spans);
    int64_t count = 0;
    if (!spans) return ra_no_memory();
    for (int64_t g = round->first; g < ra_round_end(round); g++)
        if (ra_joinable_has(joinable, g, class_number))
            spans[count++] = (ra_named_span){ra_queries_numbered(ra_first_tile(joinable->list, g)), g};
    return ra_cells_add(pool, cells, spans, count, work, cells_out);
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

ra_span ra_queries_numbered(const ra_tile *tile) {
    ra_span queries = tile->q_rows;
    queries.first += tile->queries * NUMBERS;
    return queries;
}

ra_span ra_keys_numbered(const ra_tile *tile) {
    ra_span keys = tile->k_rows;
    keys.first += tile->part * NUMBERS;
    return keys;
}

ra_tile ra_tile_of_cells(const ra_tile *tile, ra_span queries, ra_span heads, ra_span keys) {
    ra_tile made = *tile;
    ra_positions *at = &made.positions;
    queries.first -= tile->queries * NUMBERS;
    keys.first -= tile->part * NUMBERS;
    at->query += (queries.first - tile->q_rows.first) / tile->q_rows.stride * at->query_stride;
    if (queries.count > 1) at->query_stride *= queries.stride / tile->q_rows.stride;
    at->key += (keys.first - tile->k_rows.first) / tile->k_rows.stride * at->key_stride;
    if (keys.count > 1) at->key_stride *= keys.stride / tile->k_rows.stride;
    made.q_rows = queries;
    made.heads = heads;
    made.k_rows = keys;
    made.lo = -queries.count;
    made.hi = keys.count;
    return made;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

ra_status ra_list_maker_group(ra_list_maker *maker) {
    ra_tile_group *group =
        ra_pool_append(maker->pool, &maker->groups, &maker->group_count, &maker->group_capacity, sizeof *group);
    if (!group) return ra_no_memory();
    group->first = maker->tile_count;
    maker->rounds[maker->round_count - 1].count++;
    return RA_OK;
}

ra_status ra_list_maker_tile(ra_list_maker *maker, const ra_tile *tile) {
    ra_tile *added =
        ra_pool_append(maker->pool, &maker->tiles, &maker->tile_count, &maker->tile_capacity, sizeof *added);
    if (!added) return ra_no_memory();
    *added = *tile;
    maker->groups[maker->group_count - 1].count++;
    return RA_OK;
}

static ra_status put_round(ra_list_maker *maker, const ra_tile_list *from, const ra_tile_round *round) {
    for (int64_t g = round->first; g < ra_round_end(round); g++) {
        RA_TRY(ra_list_maker_group(maker));
        for (int64_t t = 0; t < from->groups[g].count; t++)
            RA_TRY(ra_list_maker_tile(maker, &from->tiles[from->groups[g].first + t]));
    }
    return RA_OK;
}

ra_status ra_list_maker_make(ra_pool *pool, const ra_tile_list *from, const int *joined,
                             ra_status (*put_joined)(ra_list_maker *maker, void *user), void *user,
                             ra_tile_list *list_out) {
    ra_list_maker m = {.pool = pool};
    int done = 0;
    for (int64_t r = 0; r < from->round_count; r++) {
        if (joined[r] && done) continue;
        ra_tile_round *round = ra_pool_append(pool, &m.rounds, &m.round_count, &m.round_capacity, sizeof *round);
        if (!round) return ra_no_memory();
        *round = (ra_tile_round){m.group_count, 0, from->rounds[r].state};
        RA_TRY(joined[r] ? put_joined(&m, user) : put_round(&m, from, &from->rounds[r]));
        done |= joined[r];
    }
    *list_out = (ra_tile_list){m.tiles, m.groups, m.rounds, m.tile_count, m.group_count, m.round_count};
    return RA_OK;
}
