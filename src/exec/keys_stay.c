#include "exec/keys_stay.h"

#include "base/status.h"

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
    t->positions.key -= before * t->positions.stride;
}

/* Whether a tile has those heads, and keys of the same progression as `all`, some of them in common. */
static int are_of_one(const ra_tile *x, ra_span all, ra_span heads) {
    return ra_span_same(x->heads, heads) && x->k_rows.stride == all.stride &&
           (x->k_rows.first - all.first) % all.stride == 0 && x->k_rows.first <= ra_span_at(all, all.count - 1) &&
           all.first <= ra_span_at(x->k_rows, x->k_rows.count - 1);
}

static ra_span hull_of(ra_span x, ra_span y) {
    int64_t first = x.first < y.first ? x.first : y.first;
    int64_t x_end = ra_span_at(x, x.count - 1), y_end = ra_span_at(y, y.count - 1), end = x_end > y_end ? x_end : y_end;
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

/* ---- whether, and with what -------------------------------------------------------------------------------------- */

static int is_wanted(const ra_setup *setup, const ra_schedule *planned) {
    int64_t keys = setup->shape.batch * setup->shape.heads_kv * setup->rows_k, busy = setup->kernel->busy_keys;
    return setup->backward && busy > 0 && keys >= busy && setup->shape.states == 1 && setup->problem.branches == 0 &&
           setup->ranks > 1 && setup->ranks <= RA_PARTS_IN_PLACE && ra_schedule_has_sources(planned, RA_CARGO_KV);
}

/* A compute's tiles behind those that are there, as queries of their owner. */
static void append_tiles(const ra_compute *from, ra_tile *tiles, ra_tile_group *groups, ra_tile_list *to) {
    for (int64_t g = 0; g < from->tiles.group_count; g++) {
        groups[to->group_count] = from->tiles.groups[g];
        groups[to->group_count++].first += to->tile_count;
    }
    for (int64_t i = 0; i < from->tiles.tile_count; i++) {
        ra_tile *tile = &tiles[to->tile_count + i];
        *tile = from->tiles.tiles[i];
        tile->queries = from->visit.owner;
    }
    to->tile_count += from->tiles.tile_count;
}

/* On stripes the queries of all ranks lie among each other. They are split into so many rows, so that those of all
 * ranks that stand near each other in the sequence come one after the other. */
enum { SPLIT_ROWS = 512 };

static int64_t splits_of(const ra_tile *t) {
    return t->positions.stride == 1 ? 1 : (t->q_rows.count + SPLIT_ROWS - 1) / SPLIT_ROWS;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}

/* The n-th split of a tile. */
static ra_tile split_of(const ra_tile *t, int64_t n) {
    ra_tile some = *t;
    int64_t from = n * SPLIT_ROWS, left = t->q_rows.count - from;
    if (splits_of(t) == 1) return some;
    some.q_rows = (ra_span){ra_span_at(t->q_rows, from), t->q_rows.stride, left < SPLIT_ROWS ? left : SPLIT_ROWS};
    some.lo = clamp(t->lo + from, -some.q_rows.count, t->k_rows.count);
    some.hi = clamp(t->hi + from, -some.q_rows.count, t->k_rows.count);
    some.positions.query += from * t->positions.stride;
    return some;
}

/* Splits the groups of a list. */
static ra_status split_all(ra_pool *pool, ra_tile_list *list) {
    int64_t tile_count = 0, group_count = 0;
    for (int64_t g = 0; g < list->group_count; g++) {
        int64_t splits = splits_of(&list->tiles[list->groups[g].first]);
        tile_count += splits * list->groups[g].count;
        group_count += splits;
    }
    if (group_count == list->group_count) return RA_OK;
    ra_tile *tiles = ra_pool_take(pool, tile_count, sizeof *tiles);
    ra_tile_group *groups = ra_pool_take(pool, group_count, sizeof *groups);
    if (!tiles || !groups) return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    ra_tile_list split = {tiles, groups, list->rounds, 0, 0, list->round_count};
    for (int64_t g = 0; g < list->group_count; g++) {
        const ra_tile *from = &list->tiles[list->groups[g].first];
        for (int64_t n = 0; n < splits_of(from); n++) {
            groups[split.group_count++] = (ra_tile_group){split.tile_count, list->groups[g].count};
            for (int64_t i = 0; i < list->groups[g].count; i++) tiles[split.tile_count++] = split_of(&from[i], n);
        }
    }
    *list = split;
    return RA_OK;
}

typedef struct placed_group {
    ra_tile_group group;
    int64_t position; /* of its first query */
} placed_group;

static int compare_groups(const void *x, const void *y) {
    const placed_group *a = x, *b = y;
    if (a->position != b->position) return a->position < b->position ? -1 : 1;
    return (a->group.first > b->group.first) - (a->group.first < b->group.first);
}

/* In the order of the sequence. Kernels go through queries in the order of the groups, or in the opposite one, with
 * some keys after others: those that are seen by fewer queries, the later ones where masks are causal, then have them
 * in common with the first that the others come to, and wait for nobody. */
static ra_status order_groups(ra_pool *pool, ra_tile_list *list) {
    int64_t count = list->group_count;
    placed_group *placed = malloc((size_t)count * sizeof *placed + 1);
    ra_tile_group *groups = ra_pool_take(pool, count, sizeof *groups);
    if (placed && groups) {
        for (int64_t g = 0; g < count; g++)
            placed[g] = (placed_group){list->groups[g], list->tiles[list->groups[g].first].positions.query};
        if (count > 1) qsort(placed, (size_t)count, sizeof *placed, compare_groups);
        for (int64_t g = 0; g < count; g++) groups[g] = placed[g].group;
        list->groups = groups;
    }
    free(placed);
    return placed && groups ? RA_OK : ra_fail(RA_ERR_MEMORY, "no memory for a plan");
}

/* The tiles of all computes as one list; they have one round each, since nothing is dilated. */
static ra_status list_all(ra_pool *pool, const ra_schedule *visits, ra_tile_list *list_out) {
    int64_t tile_count = 0, group_count = 0;
    for (int s = 0; s < visits->step_count; s++)
        for (int64_t i = 0; i < visits->steps[s].compute_count; i++) {
            tile_count += visits->steps[s].computes[i].tiles.tile_count;
            group_count += visits->steps[s].computes[i].tiles.group_count;
        }
    ra_tile *tiles = ra_pool_take(pool, tile_count, sizeof *tiles);
    ra_tile_group *groups = ra_pool_take(pool, group_count, sizeof *groups);
    ra_tile_round *round = ra_pool_take(pool, 1, sizeof *round);
    if (!tiles || !groups || !round) return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    ra_tile_list list = {tiles, groups, round, 0, 0, 1};
    for (int s = 0; s < visits->step_count; s++)
        for (int64_t i = 0; i < visits->steps[s].compute_count; i++)
            append_tiles(&visits->steps[s].computes[i], tiles, groups, &list);
    widen_all(tiles, list.tile_count);
    RA_TRY(split_all(pool, &list));
    RA_TRY(order_groups(pool, &list));
    *round = (ra_tile_round){.first = 0, .count = list.group_count};
    *list_out = list;
    return RA_OK;
}

/* The rank's own step, behind the rounds. */
static int own_step(const ra_schedule *schedule) {
    return ra_rounds_of(schedule->ranks) + schedule->rank;
}

static ra_status make_schedule(ra_pool *pool, const ra_setup *setup, ra_schedule *schedule_out) {
    ra_cut_problem cut = ra_setup_cut(setup);
    ra_schedule visits;
    RA_TRY(ra_schedule_visits(pool, &cut, setup->rank, &visits));
    ra_schedule staying = {.pass = RA_BACKWARD,
                           .rank = setup->rank,
                           .ranks = setup->ranks,
                           .strategy = RA_STRATEGY_PASSQ,
                           .step_count = ra_rounds_of(setup->ranks) + setup->ranks,
                           .pairs = visits.pairs};
    staying.steps = ra_pool_take(pool, staying.step_count, sizeof *staying.steps);
    ra_compute *compute = ra_pool_take(pool, 1, sizeof *compute);
    if (!staying.steps || !compute) return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    *compute = (ra_compute){.visit = {.slot = RA_OWN, .owner = setup->rank},
                            .kv_slot = RA_OWN,
                            .grad_slot = RA_OWN,
                            .parcel = {.owner = setup->rank},
                            .part_count = 1,
                            .pairs = visits.pairs};
    RA_TRY(list_all(pool, &visits, &compute->tiles));
    ra_step *step = &staying.steps[own_step(&staying)];
    step->computes = compute;
    step->compute_count = 1;
    *schedule_out = staying;
    return RA_OK;
}

int64_t ra_keys_received(const ra_schedule *planned) {
    int64_t records = 0;
    for (int s = 0; s < planned->step_count; s++)
        for (int64_t i = 0; i < planned->steps[s].compute_count; i++) {
            const ra_compute *c = &planned->steps[s].computes[i];
            if (c->kv_slot != RA_OWN) records += ra_parcel_records(&c->parcel, c->parcel.piece_count);
        }
    return records;
}

int ra_keys_stay(ra_pool *pool, const ra_setup *setup, const ra_schedule *planned, ra_schedule *schedule_out) {
    if (!is_wanted(setup, planned) || make_schedule(pool, setup, schedule_out) != RA_OK) return 0;
    return ra_adds_once(&schedule_out->steps[own_step(schedule_out)].computes->tiles);
}

/* ---- binding ----------------------------------------------------------------------------------------------------- */

/* The turn comes from the rank before, in the rank's own step, and goes to the one behind it, in that one's. */
static ra_status bind_turn(ra_pool *pool, const ra_program *program, int step, int peer, int is_send,
                           ra_bound_step *bound) {
    bound->messages = ra_pool_take(pool, 1, sizeof *bound->messages);
    if (!bound->messages) return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    bound->messages[0] = ra_order_message(program, step, peer, is_send);
    bound->message_count = 1;
    bound->waits_first = !is_send;
    return RA_OK;
}

static ra_status bind_call(ra_pool *pool, ra_program *program, ra_bound_step *bound, const ra_compute *compute) {
    bound->computes = ra_pool_take(pool, 1, sizeof *bound->computes);
    program->call_queries = ra_pool_take(pool, program->schedule->ranks, sizeof *program->call_queries);
    if (!bound->computes || !program->call_queries) return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    ra_bound_compute *call = &bound->computes[0];
    bound->compute_count = 1;
    call->compute = compute;
    call->tiles = compute->tiles;
    call->part_count = 1;
    RA_TRY(ra_program_prepare(program, call));
    call->overwrite = ra_program_overwrites(program, call);
    return RA_OK;
}

ra_status ra_keys_stay_bind(ra_pool *pool, ra_program *program) {
    const ra_schedule *schedule = program->schedule;
    int rank = schedule->rank, own = own_step(schedule);
    for (int i = 0; i < ra_rounds_of(schedule->ranks); i++)
        RA_TRY(ra_bind_round(pool, program, i, i, &program->steps[i]));
    if (rank > 0) RA_TRY(bind_turn(pool, program, own, rank - 1, 0, &program->steps[own]));
    if (rank + 1 < schedule->ranks) RA_TRY(bind_turn(pool, program, own + 1, rank + 1, 1, &program->steps[own + 1]));
    return bind_call(pool, program, &program->steps[own], schedule->steps[own].computes);
}
