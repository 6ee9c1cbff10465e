#include "core/join_rounds.h"

#include "base/status.h"
#include "core/cells.h"

#include <string.h>

enum {
    MOST_TILES = 1 << 15, /* more would take long to list */
    MOST_WORK = 1 << 16   /* cells of a round, and what it takes to find them */
};

/* Heads that are in the same groups of all rounds in hand: heads[first], heads[first + 1] and so on. */
typedef struct head_class {
    int64_t first, count;
    ra_cells cells;
} head_class;

typedef struct joining {
    ra_pool *pool, *scratch;
    const ra_tile_list *list;
    const ra_work_costs *costs;
    int *candidate; /* [rounds]: all pairs of its tiles are visible, and its state is the one of the first that is so */
    int *joined;    /* [rounds] */
    int64_t *heads; /* those of the classes */
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
    int64_t head, count;
    uint64_t hash;
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
        if (s.count > 0 && ra_span_at(s, s.count - 1) >= heads) heads = ra_span_at(s, s.count - 1) + 1;
    }
    return heads;
}

/* Whether head i starts, or continues, the class c: its heads are an even step apart, so that they are a span. */
static int fits_class(const joining *j, const membership *members, const head_class *c, int64_t i) {
    int64_t last = j->heads[c->first + c->count - 1];
    if (members[last].hash != members[i].hash || members[last].count != members[i].count) return 0;
    if (c->count > 1 && i - last != last - j->heads[c->first + c->count - 2]) return 0;
    return in_same_groups(j, last, i);
}

/* Deals the heads to classes, in rising order of each class's first head. */
static ra_status find_classes(joining *j) {
    int64_t heads = count_heads(j), listed = 0;
    membership *members = ra_pool_take(j->scratch, heads, sizeof *members);
    int *dealt = ra_pool_take(j->scratch, heads, sizeof *dealt);
    j->heads = ra_pool_take(j->scratch, heads, sizeof *j->heads);
    j->classes = ra_pool_take(j->scratch, heads, sizeof *j->classes);
    if (!members || !dealt || !j->heads || !j->classes) return no_memory();
    for (int64_t r = 0; r < j->list->round_count; r++)
        for (int64_t g = j->list->rounds[r].first; j->candidate[r] && g < group_end(&j->list->rounds[r]); g++)
            note_heads(j, g, members);
    for (int64_t h = 0; h < heads; h++) {
        if (dealt[h] || members[h].count == 0) continue;
        head_class *c = &j->classes[j->class_count++];
        *c = (head_class){.first = listed, .count = 1};
        j->heads[listed++] = h;
        for (int64_t i = h + 1; i < heads; i++)
            if (!dealt[i] && fits_class(j, members, c, i)) {
                j->heads[listed++] = i;
                c->count++;
                dealt[i] = 1;
            }
    }
    return RA_OK;
}

static ra_span heads_of(const joining *j, const head_class *c) {
    int64_t first = j->heads[c->first];
    return (ra_span){first, c->count > 1 ? j->heads[c->first + 1] - first : 1, c->count};
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
        if (has_head(j, g, j->heads[c->first])) spans[(*count_out)++] = (ra_named_span){first_tile(j, g)->q_rows, g};
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

typedef struct row_sets {
    ra_span *of; /* stride and remainder of each */
    int64_t count, capacity;
} row_sets;

static ra_status note_sets(ra_pool *scratch, const ra_cells *cells, int64_t most, row_sets *sets) {
    for (int64_t i = 0; i < cells->count && sets->count <= most; i++) {
        ra_span rows = cells->cells[i].rows;
        int64_t remainder = rows.first % rows.stride, n = 0;
        while (n < sets->count && (sets->of[n].stride != rows.stride || sets->of[n].first != remainder)) n++;
        if (n < sets->count) continue;
        ra_span *set = ra_pool_append(scratch, &sets->of, &sets->count, &sets->capacity, sizeof *set);
        if (!set) return no_memory();
        *set = (ra_span){remainder, rows.stride, 1};
    }
    return RA_OK;
}

/* Joins the round with those that are joined already, where that costs less, or it is the first. */
static ra_status join(joining *j, int64_t r) {
    const ra_tile_round *round = &j->list->rounds[r];
    ra_cells *added = ra_pool_take(j->scratch, j->class_count, sizeof *added);
    double apart = cost_of_round(j, round), together = 0;
    int64_t tiles = 0, work = MOST_WORK;
    row_sets sets = {0};
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
        apart += cost_of_cells(j, &c->cells, c->count);
        together += cost_of_cells(j, &added[i], c->count);
        tiles += count_tiles(j, &added[i]);
        if (j->costs->row_sets) RA_TRY(note_sets(j->scratch, &added[i], j->costs->row_sets, &sets));
    }
    if (tiles > MOST_TILES || sets.count > j->costs->row_sets || (!first && together >= apart)) return RA_OK;
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
            put_members(j, cell->members, cell->rows, heads_of(j, &j->classes[i]), tiles, to);
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
