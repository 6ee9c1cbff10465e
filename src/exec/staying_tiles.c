#include "exec/staying_tiles.h"

#include "base/status.h"
#include "exec/adds_once.h"
#include "exec/split_stripes.h"

#include <stdlib.h>

/* ---- keys that are the same -------------------------------------------------------------------------------------- */

/* Whether none of a tile's queries would see a key behind its last one, or before its first one. */
static int is_unseen_behind(const ra_tile *t) {
    return t->hi <= t->k_rows.count - t->q_rows.count;
}

static int is_unseen_before(const ra_tile *t) {
    return t->lo >= 0;
}

/* Gives a tile the keys of `all`, a span that has its own, where none of its queries sees those that it gets. */
static void widen(ra_tile *t, ra_span all) {
    int64_t before = (t->k_rows.first - all.first) / all.stride, behind = all.count - before - t->k_rows.count;
    if ((before > 0 && !is_unseen_before(t)) || (behind > 0 && !is_unseen_behind(t))) return;
    t->k_rows = all;
    t->lo += before;
    t->hi += before;
    t->positions.key -= before * t->positions.key_stride;
}

/* Whether a tile has those heads, and keys of the same progression as `all`, some of them in common. */
static int are_of_one(const ra_tile *x, ra_span all, ra_span heads) {
    return ra_span_same(x->heads, heads) && x->k_rows.stride == all.stride &&
           (x->k_rows.first - all.first) % all.stride == 0 && x->k_rows.first <= ra_span_last(all) &&
           all.first <= ra_span_last(x->k_rows);
}

static ra_span hull_of(ra_span x, ra_span y) {
    int64_t first = x.first < y.first ? x.first : y.first;
    int64_t x_end = ra_span_last(x), y_end = ra_span_last(y), end = x_end > y_end ? x_end : y_end;
    return (ra_span){first, x.stride, (end - first) / x.stride + 1};
}

/* Among more tiles it would take long to look for keys that are almost the same. */
enum { MOST_WIDENED = 256 };

/* Tiles with almost the same keys get the same ones: on stripes the queries of one rank see a key more than those of
 * another, and an item of the kernel does all tiles that have its keys. Where tiles are many, their keys are those of
 * documents, which are cut alike for all queries. */
static void widen_all(ra_tile *tiles, int64_t count) {
    if (count > MOST_WIDENED) return;
    for (int64_t i = 0; i < count; i++) {
        ra_span all = tiles[i].k_rows;
        if (tiles[i].k_index || all.count == 0) continue;
        for (int64_t j = 0; j < count; j++)
            if (!tiles[j].k_index && tiles[j].k_rows.count > 0 && are_of_one(&tiles[j], all, tiles[i].heads))
                all = hull_of(all, tiles[j].k_rows);
        widen(&tiles[i], all);
    }
}

/* ---- the order of queries ---------------------------------------------------------------------------------------- */

typedef struct placed_group {
    ra_tile_group group;
    int64_t position; /* of its first query */
} placed_group;

static int compare_groups(const void *x, const void *y) {
    const placed_group *a = x, *b = y;
    if (a->position != b->position) return a->position < b->position ? -1 : 1;
    return (a->group.first > b->group.first) - (a->group.first < b->group.first);
}

/* In the order of the sequence, in one round. Kernels go through queries in the order of the groups, or in the opposite
 * one, with some keys after others: those that are seen by fewer queries, the later ones where masks are causal, then
 * have them in common with the first that the others come to, and wait for nobody. */
static ra_status order_groups(ra_pool *pool, ra_tile_list *list) {
    int64_t count = list->group_count;
    placed_group *placed = malloc((size_t)count * sizeof *placed + 1);
    ra_tile_group *groups = ra_pool_take(pool, count, sizeof *groups);
    ra_tile_round *round = ra_pool_take(pool, 1, sizeof *round);
    if (placed && groups && round) {
        for (int64_t g = 0; g < count; g++)
            placed[g] = (placed_group){list->groups[g], list->tiles[list->groups[g].first].positions.query};
        if (count > 1) qsort(placed, (size_t)count, sizeof *placed, compare_groups);
        for (int64_t g = 0; g < count; g++) groups[g] = placed[g].group;
        *round = (ra_tile_round){.first = 0, .count = count};
        list->groups = groups;
        list->rounds = round;
    }
    free(placed);
    return placed && groups && round ? RA_OK : ra_no_memory();
}

/* ---- one list ---------------------------------------------------------------------------------------------------- */

/* Some queries of one rank with some keys of one rank. */
typedef struct meeting {
    int queries, keys; /* ranks */
    ra_tile_list tiles;
} meeting;

typedef struct meetings {
    meeting *of;
    int64_t count, capacity;
} meetings;

int64_t ra_tiles_met(const ra_schedule *visits) {
    int64_t count = 0;
    for (int s = 0; s < visits->step_count; s++)
        for (int64_t i = 0; i < visits->steps[s].compute_count; i++)
            count += visits->steps[s].computes[i].tiles.tile_count;
    return count;
}

/* What a rank's keys meet, behind what is there; tiles with almost the same keys get the same ones. *alike_out becomes
 * 0 where two of them have keys of which some alone are the same. */
static ra_status add_meetings(ra_pool *scratch, const ra_schedule *visits, meetings *all, int *alike_out) {
    int64_t tile_count = 0;
    ra_tile *tiles = ra_pool_take(scratch, ra_tiles_met(visits), sizeof *tiles);
    if (!tiles) return ra_no_memory();
    for (int s = 0; s < visits->step_count; s++)
        for (int64_t i = 0; i < visits->steps[s].compute_count; i++) {
            const ra_compute *from = &visits->steps[s].computes[i];
            if (from->tiles.tile_count == 0) continue;
            meeting *to = ra_pool_append(scratch, &all->of, &all->count, &all->capacity, sizeof *to);
            if (!to) return ra_no_memory();
            *to = (meeting){from->visit.owner, visits->rank, from->tiles};
            to->tiles.tiles = &tiles[tile_count];
            for (int64_t t = 0; t < from->tiles.tile_count; t++) tiles[tile_count++] = from->tiles.tiles[t];
        }
    widen_all(tiles, tile_count);
    *alike_out &= ra_adds_once(&(ra_tile_list){.tiles = tiles, .tile_count = tile_count, .round_count = 1});
    return RA_OK;
}

/* What all ranks' keys meet. *few_out: whether it is no more than `most` tiles; *alike_out: as above, of any rank's. */
static ra_status find_meetings(ra_pool *scratch, const ra_cut_problem *cut, int64_t most, meetings *all,
                               int64_t *pairs_out, int *few_out, int *alike_out) {
    int64_t tiles = 0;
    *few_out = *alike_out = 1;
    for (int r = 0; r < cut->ranks && *few_out; r++) {
        ra_schedule visits;
        RA_TRY(ra_schedule_visits(scratch, cut, r, &visits));
        tiles += ra_tiles_met(&visits);
        *pairs_out += visits.pairs;
        *few_out = tiles <= most;
        if (*few_out) RA_TRY(add_meetings(scratch, &visits, all, alike_out));
    }
    return RA_OK;
}

/* The tiles of one rank's queries with the keys of all, those of the same rows in one group; *one_out: whether they can
 * be one list. */
static ra_status merge_meetings(ra_pool *scratch, const meetings *all, int queries, ra_tile_list *list_out,
                                int *one_out) {
    ra_tile_list *lists = ra_pool_take(scratch, all->count, sizeof *lists);
    int64_t *parts = ra_pool_take(scratch, all->count, sizeof *parts), count = 0;
    *list_out = (ra_tile_list){0};
    *one_out = 1;
    if (!lists || !parts) return ra_no_memory();
    for (int64_t i = 0; i < all->count; i++) {
        if (all->of[i].queries != queries) continue;
        lists[count] = all->of[i].tiles;
        parts[count++] = all->of[i].keys;
    }
    if (count == 0) return RA_OK;
    RA_TRY(ra_tiles_merge(scratch, lists, parts, count, list_out));
    *one_out = list_out->tile_count > 0;
    return RA_OK;
}

/* Tiles behind those that are there, as queries of that rank. */
static void append_tiles(const ra_tile_list *from, int queries, ra_tile *tiles, ra_tile_group *groups,
                         ra_tile_list *to) {
    for (int64_t g = 0; g < from->group_count; g++) {
        groups[to->group_count] = from->groups[g];
        groups[to->group_count++].first += to->tile_count;
    }
    for (int64_t i = 0; i < from->tile_count; i++) {
        ra_tile *tile = &tiles[to->tile_count + i];
        *tile = from->tiles[i];
        tile->queries = queries;
    }
    to->tile_count += from->tile_count;
}

/* lists [ranks]: of each rank's queries. */
static ra_status join_lists(ra_pool *pool, const ra_tile_list *lists, int ranks, ra_tile_list *list_out) {
    int64_t tile_count = 0, group_count = 0;
    for (int r = 0; r < ranks; r++) {
        tile_count += lists[r].tile_count;
        group_count += lists[r].group_count;
    }
    ra_tile *tiles = ra_pool_take(pool, tile_count, sizeof *tiles);
    ra_tile_group *groups = ra_pool_take(pool, group_count, sizeof *groups);
    if (!tiles || !groups) return ra_no_memory();
    ra_tile_list list = {tiles, groups, NULL, 0, 0, 1};
    for (int r = 0; r < ranks; r++) append_tiles(&lists[r], r, tiles, groups, &list);
    *list_out = list;
    return RA_OK;
}

static ra_status make_lists(ra_pool *pool, ra_pool *scratch, const ra_cut_problem *cut, int64_t most, int backward,
                            ra_staying_lists *lists_out) {
    meetings all = {0};
    int one, alike;
    ra_tile_list *of_ranks = ra_pool_take(scratch, cut->ranks, sizeof *of_ranks), whole, split;
    if (!of_ranks) return ra_no_memory();
    RA_TRY(find_meetings(scratch, cut, most, &all, &lists_out->pairs, &one, &alike));
    for (int r = 0; r < cut->ranks && one; r++) RA_TRY(merge_meetings(scratch, &all, r, &of_ranks[r], &one));
    if (!one) return RA_OK;
    RA_TRY(join_lists(pool, of_ranks, cut->ranks, &whole));
    split = whole;
    RA_TRY(order_groups(pool, &whole));
    lists_out->of[RA_FORWARD] = whole;
    if (!alike || !backward) return RA_OK;
    RA_TRY(ra_split_stripes(pool, &split));
    if (split.tiles == whole.tiles)
        split = whole;
    else
        RA_TRY(order_groups(pool, &split));
    lists_out->of[RA_BACKWARD] = split;
    return RA_OK;
}

ra_status ra_staying_tiles(ra_pool *pool, const ra_cut_problem *cut, int64_t most, int backward,
                           ra_staying_lists *lists_out) {
    ra_pool scratch = {0};
    *lists_out = (ra_staying_lists){0};
    ra_status status = make_lists(pool, &scratch, cut, most, backward, lists_out);
    ra_pool_free(&scratch);
    return status;
}
