#include "core/join_rounds.h"

#include "base/status.h"
#include "core/joinable.h"

typedef struct joining {
    ra_joinable of;
    ra_pool *scratch;
    const ra_work_costs *costs;
    int *joined;     /* [rounds] */
    double *keys;    /* [groups]: what it costs a block of queries to go through those of its tiles */
    ra_cells *cells; /* [classes]: of the joined rounds */
    int64_t work;    /* that is left for finding out which keys a cell meets several times */
} joining;

/* ---- costs ------------------------------------------------------------------------------------------------------- */

/* Of a tile with so many keys. */
static double cost_of_keys(const joining *j, int64_t keys) {
    int64_t step = j->costs->step, padded = (keys + step - 1) / step * step;
    return j->costs->tile + (double)padded;
}

static double cost_of_group(const joining *j, int64_t group) {
    const ra_tile_group *g = &j->of.list->groups[group];
    double cost = 0;
    for (int64_t t = g->first; t < g->first + g->count; t++) cost += cost_of_keys(j, j->of.list->tiles[t].k_rows.count);
    return cost;
}

/* Of rows whose keys cost so much. */
static double cost_of(const joining *j, int64_t rows, int64_t heads, double keys) {
    int64_t blocks = (rows + j->costs->rows - 1) / j->costs->rows;
    return (double)(blocks * heads) * (keys + j->costs->block);
}

/* Of what a cell's groups go through. */
static double cost_of_members(const joining *j, const ra_cell *cell) {
    double keys = 0;
    for (const ra_cell_member *m = cell->members; m; m = m->before) keys += j->keys[m->span];
    return keys;
}

static double cost_of_cells(const joining *j, const ra_cells *cells, int64_t heads) {
    double cost = 0;
    for (int64_t i = 0; i < cells->count; i++)
        cost += cost_of(j, cells->cells[i].rows.count, heads, cost_of_members(j, &cells->cells[i]));
    return cost;
}

static double cost_of_round(const joining *j, const ra_tile_round *round) {
    double cost = j->costs->round;
    for (int64_t g = round->first; g < ra_round_end(round); g++) {
        const ra_tile *tile = ra_first_tile(j->of.list, g);
        cost += cost_of(j, tile->q_rows.count, tile->heads.count, j->keys[g]);
    }
    return cost;
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

static int64_t count_tiles(const joining *j, const ra_cells *cells) {
    int64_t tiles = 0;
    for (int64_t i = 0; i < cells->count; i++)
        for (const ra_cell_member *m = cells->cells[i].members; m; m = m->before)
            tiles += j->of.list->groups[m->span].count;
    return tiles;
}

/* Joins the round with those that are joined already, where that costs less, or it is the first. */
static ra_status join(joining *j, int64_t r, int is_first) {
    const ra_tile_round *round = &j->of.list->rounds[r];
    ra_cells *added = ra_pool_take(j->scratch, j->of.class_count, sizeof *added);
    double apart = cost_of_round(j, round), together = 0;
    int64_t tiles = 0, work = RA_JOIN_WORK;
    if (!added) return ra_no_memory();
    for (int64_t i = 0; i < j->of.class_count; i++) {
        int64_t heads = j->of.classes[i].count;
        RA_TRY(ra_joinable_queries(j->scratch, &j->of, round, i, &j->cells[i], &work, &added[i]));
        if (added[i].count < 0) return RA_OK;
        apart += cost_of_cells(j, &j->cells[i], heads);
        together += cost_of_cells(j, &added[i], heads);
        tiles += count_tiles(j, &added[i]);
    }
    if (tiles > RA_JOIN_TILES || (!is_first && together >= apart)) return RA_OK;
    j->cells = added;
    j->joined[r] = 1;
    return RA_OK;
}

/* ---- keys that a cell meets several times ------------------------------------------------------------------------ */

/* One family of keys more, those of a group's tiles; a count of -1: they have no cells. */
static ra_status add_keys(joining *j, int64_t group, ra_cells *keys) {
    const ra_tile_group *g = &j->of.list->groups[group];
    ra_named_span *spans = ra_pool_take(j->scratch, g->count, sizeof *spans);
    if (!spans) return ra_no_memory();
    for (int64_t t = 0; t < g->count; t++) {
        const ra_tile *tile = &j->of.list->tiles[g->first + t];
        if (tile->k_index) keys->count = -1;
        spans[t] = (ra_named_span){ra_keys_numbered(tile), g->first + t};
    }
    if (keys->count < 0) return RA_OK;
    int64_t work = j->work; /* below 0 as well where the group's own tiles have keys in common */
    RA_TRY(ra_cells_add(j->scratch, keys, spans, g->count, &work, keys));
    if (work >= 0) j->work = work;
    return RA_OK;
}

/* The keys of all of a cell's groups, the first family's first, which the list of members ends with. */
static ra_status find_keys(joining *j, const ra_cell_member *m, ra_cells *keys) {
    if (!m) return RA_OK;
    RA_TRY(find_keys(j, m->before, keys));
    return keys->count < 0 ? RA_OK : add_keys(j, m->span, keys);
}

static int is_less(const joining *j, const ra_cells *keys, const ra_cell *cell) {
    double cost = 0;
    if (keys->count < 0) return 0;
    for (int64_t i = 0; i < keys->count; i++) cost += cost_of_keys(j, keys->cells[i].rows.count);
    return cost < cost_of_members(j, cell);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* The tiles of all of a cell's groups. */
static ra_status put_members(const joining *j, const ra_cell_member *m, ra_span rows, ra_span heads,
                             ra_list_maker *maker) {
    if (!m) return RA_OK;
    RA_TRY(put_members(j, m->before, rows, heads, maker));
    const ra_tile_group *group = &j->of.list->groups[m->span];
    for (int64_t t = group->first; t < group->first + group->count; t++) {
        const ra_tile *from = &j->of.list->tiles[t];
        ra_tile tile = ra_tile_of_cells(from, rows, heads, ra_keys_numbered(from));
        RA_TRY(ra_list_maker_tile(maker, &tile));
    }
    return RA_OK;
}

static ra_status put_keys(const joining *j, const ra_cells *keys, ra_span rows, ra_span heads, ra_list_maker *maker) {
    for (int64_t i = 0; i < keys->count; i++) {
        const ra_cell_member *m = keys->cells[i].members;
        ra_tile tile = ra_tile_of_cells(&j->of.list->tiles[m->span], rows, heads, keys->cells[i].rows);
        while ((m = m->before)) tile.extra += 1 + j->of.list->tiles[m->span].extra;
        RA_TRY(ra_list_maker_tile(maker, &tile));
    }
    return RA_OK;
}

static ra_status put_cell(joining *j, const ra_cell *cell, ra_span heads, ra_list_maker *maker) {
    ra_cells keys = {0};
    RA_TRY(ra_list_maker_group(maker));
    if (cell->members->before && j->work > 0) RA_TRY(find_keys(j, cell->members, &keys));
    if (keys.count > 0 && is_less(j, &keys, cell)) return put_keys(j, &keys, cell->rows, heads, maker);
    return put_members(j, cell->members, cell->rows, heads, maker);
}

static ra_status put_joined(ra_list_maker *maker, void *user) {
    joining *j = user;
    for (int64_t i = 0; i < j->of.class_count; i++)
        for (int64_t n = 0; n < j->cells[i].count; n++)
            RA_TRY(put_cell(j, &j->cells[i].cells[n], j->of.classes[i], maker));
    return RA_OK;
}

static ra_status join_all(ra_pool *pool, joining *j, ra_tile_list *list_out) {
    const ra_tile_list *list = j->of.list;
    int64_t joined = 0;
    j->joined = ra_pool_take(j->scratch, list->round_count, sizeof *j->joined);
    j->keys = ra_pool_take(j->scratch, list->group_count, sizeof *j->keys);
    j->cells = ra_pool_take(j->scratch, j->of.class_count, sizeof *j->cells);
    if (!j->joined || !j->keys || !j->cells) return ra_no_memory();
    for (int64_t g = 0; g < list->group_count; g++) j->keys[g] = cost_of_group(j, g);
    for (int64_t r = 0; r < list->round_count; r++) {
        if (!j->of.rounds[r]) continue;
        RA_TRY(join(j, r, joined == 0));
        joined += j->joined[r];
    }
    return joined < 2 ? RA_OK : ra_list_maker_make(pool, list, j->joined, put_joined, j, list_out);
}

ra_status ra_join_rounds(ra_pool *pool, const ra_tile_list *list, const ra_work_costs *costs, ra_tile_list *list_out) {
    ra_pool scratch = {0};
    joining j = {.scratch = &scratch, .costs = costs, .work = RA_JOIN_WORK};
    *list_out = *list;
    if (list->round_count < 2) return RA_OK;
    ra_status status = ra_joinable_find(&scratch, list, &j.of);
    if (status == RA_OK && j.of.round_count > 1) status = join_all(pool, &j, list_out);
    ra_pool_free(&scratch);
    return status;
}
