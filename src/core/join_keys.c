/* Rounds that are joined for the backward pass (join_rounds.h).
 *
 * A backward kernel takes blocks of keys, and adds to dQ of the queries that they go through. So that a key's dK and dV
 * are made once, and a block of queries is added to by one item after the other, both are dealt to cells, and a cell of
 * queries that meets one of keys, in however many rounds, is one tile:
 *
 *     2 rounds   queries 0..7, keys 0..7        then  queries 0 4, keys 0 4
 *     1 round    queries 0 4: keys 0 4, which count twice, keys 1 5, 2 6, 3 7     queries 1 5: keys 0 4, 1 5, 2 6, 3 7
 *                queries 2 6: ...
 */
#include "base/status.h"
#include "core/join_rounds.h"
#include "core/joinable.h"

#include <stdlib.h>

/* What is known of a class's heads. */
typedef struct class_cells {
    ra_cells queries, keys; /* members: groups; names of keys */
    double cost;
    int64_t tiles; /* that it would be */
} class_cells;

/* A cell of keys, in the list of those of a name. */
typedef struct named_cell {
    int64_t cell, next; /* -1: none */
} named_cell;

/* How a cell of queries meets one of keys. */
typedef struct meeting {
    int64_t cell;  /* of keys */
    int64_t tile;  /* the first of the list's tiles that has pairs of both */
    int64_t times; /* each pair counts so often, over all rounds */
} meeting;

typedef struct joining {
    ra_joinable of;
    ra_pool *scratch;
    const ra_work_costs *costs;
    int *joined;          /* [rounds] */
    int64_t *names;       /* [tiles]: of its keys: the number of the first of its round's tiles that have the same */
    int64_t *taken;       /* [tiles]: the last family that had keys of that name */
    int64_t families;     /* so far */
    class_cells *classes; /* of the joined rounds */
    /* For the class in hand: */
    int64_t *first; /* [tiles]: the first of the cells of that name; -1: none */
    named_cell *named;
    int64_t named_count, named_capacity;
    /* For the cell of queries in hand: */
    meeting *met;
    int64_t met_count, met_capacity;
    int64_t *met_at; /* [cells of keys]: 1 + the meeting's number; 0: none */
    int64_t met_at_capacity;
} joining;

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static int compare(int64_t x, int64_t y) {
    return (x > y) - (x < y);
}

/* By keys, and then in the order of the list. */
static int compare_tiles(const void *x, const void *y) {
    const ra_tile *a = *(const ra_tile *const *)x, *b = *(const ra_tile *const *)y;
    int order = compare(a->part, b->part);
    if (!order) order = compare(a->k_rows.first, b->k_rows.first);
    if (!order) order = compare(a->k_rows.stride, b->k_rows.stride);
    if (!order) order = compare(a->k_rows.count, b->k_rows.count);
    return order ? order : compare(a - b, 0);
}

static void name_keys(const joining *j, const ra_tile_round *round, const ra_tile **sorted) {
    const ra_tile_list *list = j->of.list;
    int64_t count = 0;
    for (int64_t g = round->first; g < ra_round_end(round); g++)
        for (int64_t t = 0; t < list->groups[g].count; t++) sorted[count++] = &list->tiles[list->groups[g].first + t];
    if (count > 1) qsort(sorted, (size_t)count, sizeof *sorted, compare_tiles);
    for (int64_t i = 0, first = 0; i < count; i++) {
        if (sorted[i]->part != sorted[first]->part || !ra_span_same(sorted[i]->k_rows, sorted[first]->k_rows))
            first = i;
        j->names[sorted[i] - list->tiles] = sorted[first] - list->tiles;
    }
}

/* Keys that an index names have no cells. */
static int has_index(const ra_tile_list *list, const ra_tile_round *round) {
    for (int64_t g = round->first; g < ra_round_end(round); g++)
        for (int64_t t = 0; t < list->groups[g].count; t++)
            if (list->tiles[list->groups[g].first + t].k_index) return 1;
    return 0;
}

static ra_status find_names(joining *j) {
    const ra_tile_list *list = j->of.list;
    const ra_tile **sorted = ra_pool_take(j->scratch, list->tile_count, sizeof *sorted);
    if (!sorted) return ra_no_memory();
    for (int64_t r = 0; r < list->round_count; r++) {
        if (!j->of.rounds[r]) continue;
        if (has_index(list, &list->rounds[r]))
            j->of.rounds[r] = 0, j->of.round_count--;
        else
            name_keys(j, &list->rounds[r], sorted);
    }
    return RA_OK;
}

/* The cells of a class's keys when the round's are one family more. */
static ra_status add_keys(joining *j, const ra_tile_round *round, int64_t class_number, int64_t *work,
                          ra_cells *cells) {
    const ra_tile_list *list = j->of.list;
    int64_t count = 0, capacity = 0;
    ra_named_span *spans = NULL;
    j->families++;
    for (int64_t g = round->first; g < ra_round_end(round); g++)
        for (int64_t t = 0; ra_joinable_has(&j->of, g, class_number) && t < list->groups[g].count; t++) {
            int64_t name = j->names[list->groups[g].first + t];
            if (j->taken[name] == j->families) continue;
            j->taken[name] = j->families;
            ra_named_span *span = ra_pool_append(j->scratch, &spans, &count, &capacity, sizeof *span);
            if (!span) return ra_no_memory();
            *span = (ra_named_span){ra_keys_numbered(&list->tiles[name]), name};
        }
    return ra_cells_add(j->scratch, cells, spans, count, work, cells);
}

/* ---- meetings ---------------------------------------------------------------------------------------------------- */

/* Makes the class the one in hand: its cells of keys can be found by name, in rising order. */
static ra_status begin_class(joining *j, const ra_cells *keys) {
    j->named_count = 0;
    for (int64_t i = keys->count - 1; i >= 0; i--)
        for (const ra_cell_member *m = keys->cells[i].members; m; m = m->before) {
            named_cell *named =
                ra_pool_append(j->scratch, &j->named, &j->named_count, &j->named_capacity, sizeof *named);
            if (!named) return ra_no_memory();
            *named = (named_cell){i, j->first[m->span]};
            j->first[m->span] = j->named_count - 1;
        }
    if (keys->count <= j->met_at_capacity) return RA_OK;
    j->met_at_capacity = keys->count * 2;
    j->met_at = ra_pool_take(j->scratch, j->met_at_capacity, sizeof *j->met_at);
    return j->met_at ? RA_OK : ra_no_memory();
}

static void end_class(joining *j, const ra_cells *keys) {
    for (int64_t i = 0; i < keys->count; i++)
        for (const ra_cell_member *m = keys->cells[i].members; m; m = m->before) j->first[m->span] = -1;
}

static ra_status meet(joining *j, int64_t cell, int64_t tile) {
    int64_t times = 1 + j->of.list->tiles[tile].extra;
    if (j->met_at[cell]) {
        j->met[j->met_at[cell] - 1].times += times;
        return RA_OK;
    }
    meeting *m = ra_pool_append(j->scratch, &j->met, &j->met_count, &j->met_capacity, sizeof *m);
    if (!m) return ra_no_memory();
    *m = (meeting){cell, tile, times};
    j->met_at[cell] = j->met_count;
    return RA_OK;
}

/* The meetings of a cell of queries, by its members, the first family's first. */
static ra_status add_meetings(joining *j, const ra_cell_member *m, int64_t *work) {
    if (!m) return RA_OK;
    RA_TRY(add_meetings(j, m->before, work));
    const ra_tile_group *group = &j->of.list->groups[m->span];
    for (int64_t t = group->first; t < group->first + group->count; t++)
        for (int64_t i = j->first[j->names[t]]; i >= 0; i = j->named[i].next) {
            *work -= 1;
            if (*work < 0) return RA_OK;
            RA_TRY(meet(j, j->named[i].cell, t));
        }
    return RA_OK;
}

static ra_status find_meetings(joining *j, const ra_cell *queries, int64_t *work) {
    for (int64_t i = 0; i < j->met_count; i++) j->met_at[j->met[i].cell] = 0;
    j->met_count = 0;
    return add_meetings(j, queries->members, work);
}

/* ---- costs ------------------------------------------------------------------------------------------------------- */

/* What the class would be. */
static ra_status weigh(joining *j, int64_t class_number, int64_t *work, class_cells *c) {
    double *queries = ra_pool_take(j->scratch, c->keys.count, sizeof *queries); /* that a block goes through */
    int64_t step = j->costs->step, heads = j->of.classes[class_number].count;
    if (!queries) return ra_no_memory();
    c->tiles = 0;
    c->cost = 0;
    RA_TRY(begin_class(j, &c->keys));
    for (int64_t i = 0; i < c->queries.count && *work >= 0; i++) {
        int64_t rows = (c->queries.cells[i].rows.count + step - 1) / step * step;
        RA_TRY(find_meetings(j, &c->queries.cells[i], work));
        for (int64_t n = 0; n < j->met_count; n++) queries[j->met[n].cell] += (double)rows + j->costs->tile;
        c->tiles += j->met_count;
    }
    for (int64_t i = 0; i < c->keys.count; i++) {
        int64_t blocks = (c->keys.cells[i].rows.count + j->costs->rows - 1) / j->costs->rows;
        c->cost += (double)(blocks * heads) * (queries[i] + j->costs->block);
    }
    end_class(j, &c->keys);
    return RA_OK;
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

/* The class's cells with the round's among them. *work below 0: there would be too many, or keys of a round that
 * neither are the same nor have none in common. */
static ra_status add_round(joining *j, int64_t r, int64_t class_number, int64_t *work, class_cells *c) {
    const ra_tile_round *round = &j->of.list->rounds[r];
    RA_TRY(ra_joinable_queries(j->scratch, &j->of, round, class_number, &c->queries, work, &c->queries));
    if (*work >= 0) RA_TRY(add_keys(j, round, class_number, work, &c->keys));
    return *work < 0 ? RA_OK : weigh(j, class_number, work, c);
}

/* Joins the round with those that are joined already, where that costs less, or it is the first. */
static ra_status join(joining *j, int64_t r, int is_first) {
    class_cells *added = ra_pool_take(j->scratch, j->of.class_count, sizeof *added);
    double apart = j->costs->round, together = 0;
    int64_t tiles = 0, work = RA_JOIN_WORK;
    if (!added) return ra_no_memory();
    for (int64_t i = 0; i < j->of.class_count; i++) {
        class_cells alone = {0};
        added[i] = j->classes[i];
        RA_TRY(add_round(j, r, i, &work, &alone));
        if (work >= 0) RA_TRY(add_round(j, r, i, &work, &added[i]));
        if (work < 0) return RA_OK;
        apart += j->classes[i].cost + alone.cost;
        together += added[i].cost;
        tiles += added[i].tiles;
    }
    if (tiles > RA_JOIN_TILES || (!is_first && together >= apart)) return RA_OK;
    j->classes = added;
    j->joined[r] = 1;
    return RA_OK;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static ra_status put_cell(joining *j, const class_cells *c, const ra_cell *queries, ra_span heads,
                          ra_list_maker *maker) {
    int64_t work = RA_JOIN_WORK; /* it has been enough before */
    RA_TRY(ra_list_maker_group(maker));
    RA_TRY(find_meetings(j, queries, &work));
    for (int64_t i = 0; i < j->met_count; i++) {
        const meeting *m = &j->met[i];
        ra_tile tile = ra_tile_of_cells(&j->of.list->tiles[m->tile], queries->rows, heads, c->keys.cells[m->cell].rows);
        tile.extra = (int)(m->times - 1);
        RA_TRY(ra_list_maker_tile(maker, &tile));
    }
    return RA_OK;
}

static ra_status put_joined(ra_list_maker *maker, void *user) {
    joining *j = user;
    for (int64_t i = 0; i < j->of.class_count; i++) {
        const class_cells *c = &j->classes[i];
        RA_TRY(begin_class(j, &c->keys));
        for (int64_t n = 0; n < c->queries.count; n++)
            RA_TRY(put_cell(j, c, &c->queries.cells[n], j->of.classes[i], maker));
        end_class(j, &c->keys);
    }
    return RA_OK;
}

static ra_status join_all(ra_pool *pool, joining *j, ra_tile_list *list_out) {
    const ra_tile_list *list = j->of.list;
    int64_t joined = 0;
    j->joined = ra_pool_take(j->scratch, list->round_count, sizeof *j->joined);
    j->classes = ra_pool_take(j->scratch, j->of.class_count, sizeof *j->classes);
    j->names = ra_pool_take(j->scratch, list->tile_count, sizeof *j->names);
    j->taken = ra_pool_take(j->scratch, list->tile_count, sizeof *j->taken);
    j->first = ra_pool_take(j->scratch, list->tile_count, sizeof *j->first);
    if (!j->joined || !j->classes || !j->names || !j->taken || !j->first) return ra_no_memory();
    for (int64_t t = 0; t < list->tile_count; t++) j->first[t] = -1;
    RA_TRY(find_names(j));
    for (int64_t r = 0; r < list->round_count && j->of.round_count > 1; r++) {
        if (!j->of.rounds[r]) continue;
        RA_TRY(join(j, r, joined == 0));
        joined += j->joined[r];
    }
    return joined < 2 ? RA_OK : ra_list_maker_make(pool, list, j->joined, put_joined, j, list_out);
}

ra_status ra_join_rounds_by_keys(ra_pool *pool, const ra_tile_list *list, const ra_work_costs *costs,
                                 ra_tile_list *list_out) {
    ra_pool scratch = {0};
    joining j = {.scratch = &scratch, .costs = costs};
    *list_out = *list;
    if (list->round_count < 2) return RA_OK;
    ra_status status = ra_joinable_find(&scratch, list, &j.of);
    if (status == RA_OK && j.of.round_count > 1) status = join_all(pool, &j, list_out);
    ra_pool_free(&scratch);
    return status;
}
