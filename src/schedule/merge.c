/* Computes of a step that have the same queries, as one: their tiles side by side, and those with the same rows in one
 * group, so that the state of a row is read and written once. */
#include "schedule/schedule.h"

#include "base/status.h"

#include <stdlib.h>

typedef struct merged_group {
    ra_span rows, heads;
    int64_t count, next; /* tiles of it; the place of the next one */
} merged_group;

/* Groups, and a table in which they are found by their rows and heads: number + 1 of each, 0: free. */
typedef struct group_table {
    merged_group *groups;
    int64_t *table;
    int64_t count, size; /* size: a power of two, more than there can be groups */
} group_table;

/* The group with these rows and heads, made where there is none. */
static merged_group *group_of(group_table *t, const ra_tile *tile) {
    uint64_t hash =
        (uint64_t)tile->q_rows.first * 0x9e3779b97f4a7c15u + (uint64_t)tile->heads.first * 0xc2b2ae3d27d4eb4fu;
    for (int64_t at = (int64_t)(hash >> 20) & (t->size - 1);; at = (at + 1) & (t->size - 1)) {
        if (t->table[at] == 0) {
            t->groups[t->count] = (merged_group){.rows = tile->q_rows, .heads = tile->heads};
            t->table[at] = ++t->count;
            return &t->groups[t->count - 1];
        }
        merged_group *g = &t->groups[t->table[at] - 1];
        if (ra_span_same(g->rows, tile->q_rows) && ra_span_same(g->heads, tile->heads)) return g;
    }
}

static int64_t end_of(ra_span s) {
    return ra_span_last(s) + 1;
}

static int compare(int64_t x, int64_t y) {
    return (x > y) - (x < y);
}

/* By rows, and groups with the same rows by heads. */
static int compare_groups(const void *x, const void *y) {
    const merged_group *a = x, *b = y;
    int order = compare(a->rows.first, b->rows.first);
    if (!order) order = compare(a->rows.stride, b->rows.stride);
    if (!order) order = compare(a->rows.count, b->rows.count);
    return order ? order : compare(a->heads.first, b->heads.first);
}

/* Whether no row of a head is in two groups. groups: a copy, which is sorted. Rows and heads are taken for all from the
 * first to the last. */
static int are_disjoint(merged_group *groups, int64_t count) {
    if (count > 1) qsort(groups, (size_t)count, sizeof *groups, compare_groups);
    int64_t rows_end = 0, heads_end = 0; /* of the groups before; of those with the same rows */
    for (int64_t i = 0; i < count; i++) {
        const merged_group *g = &groups[i];
        int same_rows = i > 0 && ra_span_same(g->rows, groups[i - 1].rows);
        if (g->rows.first < rows_end && !same_rows) return 0;
        if (same_rows && g->heads.first < heads_end) return 0;
        if (!same_rows || end_of(g->heads) > heads_end) heads_end = end_of(g->heads);
        if (end_of(g->rows) > rows_end) rows_end = end_of(g->rows);
    }
    return 1;
}

/* Room for as many groups as the lists have. */
static ra_status make_table(ra_pool *pool, int64_t most, group_table *t) {
    *t = (group_table){.size = 2};
    while (t->size < 2 * most) t->size *= 2;
    t->groups = ra_pool_take(pool, most, sizeof *t->groups);
    t->table = ra_pool_take(pool, t->size, sizeof *t->table);
    return t->groups && t->table ? RA_OK : ra_no_memory();
}

/* Whether the lists can be one. */
static int can_merge(const ra_tile_list *lists, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (lists[i].round_count != 1 || lists[i].rounds[0].state != lists[0].rounds[0].state) return 0;
    return 1;
}

static ra_status find_groups(ra_pool *scratch, const ra_tile_list *lists, int64_t count, group_table *t,
                             int *disjoint_out) {
    int64_t most = 0;
    for (int64_t i = 0; i < count; i++) most += lists[i].group_count;
    RA_TRY(make_table(scratch, most, t));
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < lists[i].tile_count; j++) group_of(t, &lists[i].tiles[j])->count++;
    merged_group *copy = ra_pool_take(scratch, t->count, sizeof *copy);
    if (!copy) return ra_no_memory();
    for (int64_t g = 0; g < t->count; g++) copy[g] = t->groups[g];
    *disjoint_out = are_disjoint(copy, t->count);
    return RA_OK;
}

static ra_status write_list(ra_pool *pool, const ra_tile_list *lists, const int64_t *first_parts, int64_t count,
                            group_table *t, ra_tile_list *merged_out) {
    int64_t tile_count = 0;
    for (int64_t i = 0; i < count; i++) tile_count += lists[i].tile_count;
    ra_tile *tiles = ra_pool_take(pool, tile_count, sizeof *tiles);
    ra_tile_group *groups = ra_pool_take(pool, t->count, sizeof *groups);
    ra_tile_round *round = ra_pool_take(pool, 1, sizeof *round);
    if (!tiles || !groups || !round) return ra_no_memory();
    for (int64_t g = 0, first = 0; g < t->count; first += t->groups[g++].count) {
        groups[g] = (ra_tile_group){first, t->groups[g].count};
        t->groups[g].next = first;
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < lists[i].tile_count; j++) {
            ra_tile *tile = &tiles[group_of(t, &lists[i].tiles[j])->next++];
            *tile = lists[i].tiles[j];
            tile->part += (int)first_parts[i];
        }
    *round = (ra_tile_round){0, t->count, lists[0].rounds[0].state};
    *merged_out = (ra_tile_list){tiles, groups, round, tile_count, t->count, 1};
    return RA_OK;
}

ra_status ra_tiles_merge(ra_pool *pool, const ra_tile_list *lists, const int64_t *first_parts, int64_t count,
                         ra_tile_list *merged_out) {
    ra_pool scratch = {0};
    group_table t;
    int disjoint = 0;
    *merged_out = (ra_tile_list){0};
    if (!can_merge(lists, count)) return RA_OK;
    ra_status status = find_groups(&scratch, lists, count, &t, &disjoint);
    if (status == RA_OK && disjoint) status = write_list(pool, lists, first_parts, count, &t, merged_out);
    ra_pool_free(&scratch);
    return status;
}
