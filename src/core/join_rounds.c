#include "core/join_rounds.h"

#include "base/status.h"
#include "core/cells.h"

#include <string.h>

enum {
    MOST_TILES = 1 << 15, /* more would take long to list */
    MOST_WORK = 1 << 16   /* cells of a round, and what it takes to find them */
};

/* Heads that are in the same groups of all rounds in hand, and the cells of these. */
typedef struct head_class {
    ra_span heads;
    ra_cells cells;
} head_class;

typedef struct joining {
    ra_pool *pool, *scratch;
    const ra_tile_list *list;
    const ra_work_costs *costs;
    int *candidate; /* [rounds]: all pairs of its tiles are visible, and its state is the one of the first that is so */
    int *joined;    /* [rounds] */
    int64_t *keys;  /* [groups]: of its tiles */
    head_class *classes;
    int64_t class_count;
} joining;

static ra_status no_memory(void) {
    return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
}

static const ra_tile *first_tile(const joining *j, int64_t group) {
    return &j->list->tiles[j->list->groups[group].first];
}

static int64_t group_end(const ra_tile_round *round) {
    return round->first + round->count;
}

/* ---- which rounds ------------------------------------------------------------------------------------------------ */

static int sees_all(const joining *j, const ra_tile_round *round) {
    for (int64_t g = round->first; g < group_end(round); g++)
        for (int64_t t = 0; t < j->list->groups[g].count; t++) {
            const ra_tile *tile = &j->list->tiles[j->list->groups[g].first + t];
            if (!ra_tile_is_full(tile, 0, tile->q_rows.count, 0, tile->k_rows.count)) return 0;
        }
    return 1;
}

/* How many may be joined. */
static int64_t find_candidates(joining *j) {
    const ra_tile_list *list = j->list;
    int64_t first = -1, count = 0;
    for (int64_t r = 0; r < list->round_count; r++) {
        if (first >= 0 && list->rounds[r].state != list->rounds[first].state) continue;
        if (list->rounds[r].count == 0 || list->rounds[r].count > MOST_TILES) continue;
        if (!sees_all(j, &list->rounds[r])) continue;
        if (first < 0) first = r;
        j->candidate[r] = 1;
        count++;
    }
    return count;
}

/* ---- heads ------------------------------------------------------------------------------------------------------- */

/* The groups of candidate rounds that a head is in: their number, and a hash of what they are. */
typedef struct membership {
    int64_t count;
    uint64_t hash;
    int dealt; /* to a class */
} membership;

static void note_heads(const joining *j, int64_t group, membership *members) {
    ra_span heads = first_tile(j, group)->heads;
    for (int64_t i = 0; i < heads.count; i++) {
        membership *m = &members[ra_span_at(heads, i)];
        m->count++;
        m->hash = (m->hash ^ (uint64_t)group) * 0x9e3779b97f4a7c15u;
        m->hash ^= m->hash >> 29;
    }
}

static int has_head(const joining *j, int64_t group, int64_t head) {
    return ra_span_clip(first_tile(j, group)->heads, head, head + 1).count > 0;
}

/* Hashes may be the same by chance. */
static int in_same_groups(const joining *j, int64_t a, int64_t b) {
    for (int64_t r = 0; r < j->list->round_count; r++)
        for (int64_t g = j->list->rounds[r].first; j->candidate[r] && g < group_end(&j->list->rounds[r]); g++)
            if (has_head(j, g, a) != has_head(j, g, b)) return 0;
    return 1;
}

static int64_t count_heads(const joining *j) {
    int64_t heads = 0;
    for (int64_t g = 0; g < j->list->group_count; g++) {
        ra_span s = first_tile(j, g)->heads;
        if (s.count > 0 && ra_span_last(s) >= heads) heads = ra_span_last(s) + 1;
    }
    return heads;
}

/* Whether the head continues the class: its heads are evenly apart, so that they are a span. */
static int fits_class(const joining *j, const membership *members, ra_span heads, int64_t head) {
    int64_t last = ra_span_last(heads);
    if (members[last].hash != members[head].hash || members[last].count != members[head].count) return 0;
    if (heads.count > 1 && head - last != heads.stride) return 0;
    return in_same_groups(j, last, head);
}

/* The class that begins with a head, of those below `end`. */
static ra_span class_from(const joining *j, membership *members, int64_t head, int64_t end) {
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
static ra_status find_classes(joining *j) {
    int64_t heads = count_heads(j);
    membership *members = ra_pool_take(j->scratch, heads, sizeof *members);
    j->classes = ra_pool_take(j->scratch, heads, sizeof *j->classes);
    if (!members || !j->classes) return no_memory();
    for (int64_t r = 0; r < j->list->round_count; r++)
        for (int64_t g = j->list->rounds[r].first; j->candidate[r] && g < group_end(&j->list->rounds[r]); g++)
            note_heads(j, g, members);
    for (int64_t h = 0; h < heads; h++)
        if (!members[h].dealt && members[h].count > 0)
            j->classes[j->class_count++].heads = class_from(j, members, h, heads);
    return RA_OK;
}

/* ---- costs ------------------------------------------------------------------------------------------------------- */

static ra_status count_keys(joining *j) {
    j->keys = ra_pool_take(j->scratch, j->list->group_count, sizeof *j->keys);
    if (!j->keys) return no_memory();
    for (int64_t g = 0; g < j->list->group_count; g++)
        for (int64_t t = 0; t < j->list->groups[g].count; t++)
            j->keys[g] += j->list->tiles[j->list->groups[g].first + t].k_rows.count;
    return RA_OK;
}

/* Of rows that go through so many keys. */
static double cost_of(const joining *j, int64_t rows, int64_t heads, int64_t keys) {
    int64_t blocks = (rows + j->costs->rows - 1) / j->costs->rows;
    return (double)(blocks * heads) * ((double)keys + j->costs->block);
}

static double cost_of_cells(const joining *j, const ra_cells *cells, int64_t heads) {
    double cost = 0;
    for (int64_t i = 0; i < cells->count; i++) {
        int64_t keys = 0;
        for (const ra_cell_member *m = cells->cells[i].members; m; m = m->before) keys += j->keys[m->span];
        cost += cost_of(j, cells->cells[i].rows.count, heads, keys);
    }
    return cost;
}

static double cost_of_round(const joining *j, const ra_tile_round *round) {
    double cost = j->costs->round;
    for (int64_t g = round->first; g < group_end(round); g++)
        cost += cost_of(j, first_tile(j, g)->q_rows.count, first_tile(j, g)->heads.count, j->keys[g]);
    return cost;
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

/* The round's groups that a class's heads are in. */
static ra_status family_of(joining *j, const ra_tile_round *round, const head_class *c, ra_named_span **spans_out,
                           int64_t *count_out) {
    ra_named_span *spans = ra_pool_take(j->scratch, round->count, sizeof *spans);
    if (!spans) return no_memory();
    *count_out = 0;
    for (int64_t g = round->first; g < group_end(round); g++)
        if (has_head(j, g, c->heads.first)) spans[(*count_out)++] = (ra_named_span){first_tile(j, g)->q_rows, g};
    *spans_out = spans;
    return RA_OK;
}

static int64_t count_tiles(const joining *j, const ra_cells *cells) {
    int64_t tiles = 0;
    for (int64_t i = 0; i < cells->count; i++)
        for (const ra_cell_member *m = cells->cells[i].members; m; m = m->before)
            tiles += j->list->groups[m->span].count;
    return tiles;
}

/* Joins the round with those that are joined already, where that costs less, or it is the first. */
static ra_status join(joining *j, int64_t r) {
    const ra_tile_round *round = &j->list->rounds[r];
    ra_cells *added = ra_pool_take(j->scratch, j->class_count, sizeof *added);
    double apart = cost_of_round(j, round), together = 0;
    int64_t tiles = 0, work = MOST_WORK;
    int first = 1;
    if (!added) return no_memory();
    for (int64_t i = 0; i < r; i++) first &= !j->joined[i];
    for (int64_t i = 0; i < j->class_count; i++) {
        head_class *c = &j->classes[i];
        ra_named_span *spans = NULL;
        int64_t count = 0;
        RA_TRY(family_of(j, round, c, &spans, &count));
        RA_TRY(ra_cells_add(j->scratch, &c->cells, spans, count, &work, &added[i]));
        if (added[i].count < 0) return RA_OK;
        apart += cost_of_cells(j, &c->cells, c->heads.count);
        together += cost_of_cells(j, &added[i], c->heads.count);
        tiles += count_tiles(j, &added[i]);
    }
    if (tiles > MOST_TILES || (!first && together >= apart)) return RA_OK;
    for (int64_t i = 0; i < j->class_count; i++) j->classes[i].cells = added[i];
    j->joined[r] = 1;
    return RA_OK;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* The tiles of a group for some of its rows and heads, all of whose pairs are visible. */
static void put_tiles(const joining *j, int64_t group, ra_span rows, ra_span heads, ra_tile *tiles, ra_tile_list *to) {
    const ra_tile_group *from = &j->list->groups[group];
    for (int64_t t = 0; t < from->count; t++) {
        ra_tile tile = j->list->tiles[from->first + t];
        tile.positions.query += (rows.first - tile.q_rows.first) / tile.q_rows.stride * tile.positions.stride;
        tile.q_rows = rows;
        tile.heads = heads;
        tile.lo = -rows.count;
        tile.hi = tile.k_rows.count;
        tiles[to->tile_count++] = tile;
    }
}

/* The first family's tiles first, which the list of members ends with. */
static void put_members(const joining *j, const ra_cell_member *m, ra_span rows, ra_span heads, ra_tile *tiles,
                        ra_tile_list *to) {
    if (!m) return;
    put_members(j, m->before, rows, heads, tiles, to);
    put_tiles(j, m->span, rows, heads, tiles, to);
}

static void put_joined(const joining *j, ra_tile *tiles, ra_tile_group *groups, ra_tile_list *to) {
    for (int64_t i = 0; i < j->class_count; i++)
        for (int64_t n = 0; n < j->classes[i].cells.count; n++) {
            const ra_cell *cell = &j->classes[i].cells.cells[n];
            ra_tile_group *group = &groups[to->group_count++];
            group->first = to->tile_count;
            put_members(j, cell->members, cell->rows, j->classes[i].heads, tiles, to);
            group->count = to->tile_count - group->first;
        }
}

static void put_round(const joining *j, const ra_tile_round *round, ra_tile *tiles, ra_tile_group *groups,
                      ra_tile_list *to) {
    for (int64_t g = round->first; g < group_end(round); g++) {
        const ra_tile_group *from = &j->list->groups[g];
        groups[to->group_count++] = (ra_tile_group){to->tile_count, from->count};
        memcpy(&tiles[to->tile_count], &j->list->tiles[from->first], (size_t)from->count * sizeof *tiles);
        to->tile_count += from->count;
    }
}

/* The joined rounds stand where the first of them did. */
static ra_status make_list(const joining *j, ra_tile_list *list_out) {
    int64_t tile_count = j->list->tile_count, group_count = j->list->group_count;
    for (int64_t i = 0; i < j->class_count; i++) {
        tile_count += count_tiles(j, &j->classes[i].cells);
        group_count += j->classes[i].cells.count;
    }
    ra_tile *tiles = ra_pool_take(j->pool, tile_count, sizeof *tiles);
    ra_tile_group *groups = ra_pool_take(j->pool, group_count, sizeof *groups);
    ra_tile_round *rounds = ra_pool_take(j->pool, j->list->round_count, sizeof *rounds);
    ra_tile_list made = {.tiles = tiles, .groups = groups, .rounds = rounds};
    int done = 0;
    if (!tiles || !groups || !rounds) return no_memory();
    for (int64_t r = 0; r < j->list->round_count; r++) {
        if (j->joined[r] && done) continue;
        ra_tile_round *round = &rounds[made.round_count++];
        *round = (ra_tile_round){made.group_count, 0, j->list->rounds[r].state};
        if (j->joined[r])
            put_joined(j, tiles, groups, &made);
        else
            put_round(j, &j->list->rounds[r], tiles, groups, &made);
        done |= j->joined[r];
        round->count = made.group_count - round->first;
    }
    *list_out = made;
    return RA_OK;
}

static ra_status join_all(joining *j, ra_tile_list *list_out) {
    int64_t joined = 0;
    j->candidate = ra_pool_take(j->scratch, j->list->round_count, sizeof *j->candidate);
    j->joined = ra_pool_take(j->scratch, j->list->round_count, sizeof *j->joined);
    if (!j->candidate || !j->joined) return no_memory();
    if (find_candidates(j) < 2) return RA_OK;
    RA_TRY(count_keys(j));
    RA_TRY(find_classes(j));
    for (int64_t r = 0; r < j->list->round_count; r++)
        if (j->candidate[r]) RA_TRY(join(j, r));
    for (int64_t r = 0; r < j->list->round_count; r++) joined += j->joined[r];
    return joined < 2 ? RA_OK : make_list(j, list_out);
}

ra_status ra_join_rounds(ra_pool *pool, const ra_tile_list *list, const ra_work_costs *costs, ra_tile_list *list_out) {
    ra_pool scratch = {0};
    joining j = {.pool = pool, .scratch = &scratch, .list = list, .costs = costs};
    *list_out = *list;
    if (list->round_count < 2) return RA_OK;
    ra_status status = join_all(&j, list_out);
    ra_pool_free(&scratch);
    return status;
}
