#include "kernel/cpu/partition/forward_units.h"

#include "kernel/cpu/partition/underflow.h"
#include "kernel/parallel.h"

enum { UNITS_PER_THREAD = 4 };

/* ---- inside a unit --------------------------------------------------------------------------------------- */

static int64_t strips_per_head(const ra_forward_unit *unit, int64_t rows) {
    return (unit->a1 - unit->a0 + rows - 1) / rows;
}

int64_t ra_strip_count(const ra_forward_unit *unit, int64_t rows) {
    return (unit->h1 - unit->h0) * strips_per_head(unit, rows);
}

ra_strip ra_strip_at(const ra_forward_unit *unit, int64_t rows, int64_t index) {
    int64_t each = strips_per_head(unit, rows);
    ra_strip strip = {.h = ra_span_at(unit->tiles->heads, unit->h0 + index / each),
                      .a0 = unit->a0 + index % each * rows,
                      .at = index * rows};
    strip.queries = unit->a1 - strip.a0 < rows ? unit->a1 - strip.a0 : rows;
    return strip;
}

void ra_forward_blocks(const ra_forward_unit *unit, int64_t keys,
                       void (*visit)(void *user, const ra_tile *tile, int64_t b0, int64_t b1), void *user) {
    for (int64_t t = 0; t < unit->tile_count; t++) {
        int64_t from, to, next;
        ra_tile_visible(&unit->tiles[t], unit->a0, unit->a1, &from, &to);
        for (int64_t b0 = from; b0 < to; b0 = next) {
            next = (b0 / keys + 1) * keys;
            visit(user, &unit->tiles[t], b0, next < to ? next : to);
        }
    }
}

int64_t ra_block_number(const ra_forward_unit *unit, int64_t keys, const ra_tile *tile, int64_t b0,
                        ra_key_place *place) {
    for (; place->tile < tile - unit->tiles; place->tile++)
        place->blocks += (unit->tiles[place->tile].k_rows.count + keys - 1) / keys;
    return place->blocks + b0 / keys;
}

/* ---- taking units ---------------------------------------------------------------------------------------- */

typedef struct round_work {
    const ra_forward_call *call;
    const ra_forward_partition *partition;
    const ra_tile_round *round;
    int64_t strips; /* of a unit, at most */
    int64_t next;   /* unit to be taken */
} round_work;

/* Rows in blocks of much the same size. */
typedef struct row_split {
    int64_t rows, blocks;
} row_split;

/* How a group is split: lots, which are chunks of heads of one GQA group, one for each batch; and their rows. The last
 * lots of a round have small blocks, so that no thread is left with a large one when the others are done. */
typedef struct group_split {
    const ra_tile *tile; /* the group's first: all have its rows and heads */
    int64_t gqa_ratio;   /* query heads to a key/value head */
    int64_t heads;       /* of a chunk, at most */
    int64_t chunks;
    int64_t lots, coarse_lots;
    row_split coarse, fine;
} group_split;

/* The end of the chunk of heads that starts at index h. */
static int64_t chunk_end(const group_split *split, int64_t h) {
    ra_span heads = split->tile->heads;
    int64_t kv_head = ra_span_at(heads, h) / split->gqa_ratio, end = h + 1;
    while (end < heads.count && end - h < split->heads && ra_span_at(heads, end) / split->gqa_ratio == kv_head) end++;
    return end;
}

static row_split split_rows(int64_t rows, int64_t strip, int64_t strips_max) {
    int64_t strips = (rows + strip - 1) / strip, blocks = (strips + strips_max - 1) / strips_max;
    int64_t each = (strips + blocks - 1) / blocks;
    return (row_split){each * strip, (strips + each - 1) / each};
}

static group_split split_group(const round_work *work, int64_t index) {
    const ra_shape *shape = work->call->shape;
    const ra_tile_group *group = &work->call->tiles.groups[work->round->first + index];
    group_split split = {.tile = &work->call->tiles.tiles[group->first],
                         .gqa_ratio = shape->heads_q / shape->heads_kv,
                         .heads = work->strips};
    int64_t widest = 1, rows = split.tile->q_rows.count, strip = work->partition->strip;
    for (int64_t h = 0, end; h < split.tile->heads.count; h = end) {
        end = chunk_end(&split, h);
        widest = end - h > widest ? end - h : widest;
        split.chunks++;
    }
    int64_t strips = work->strips / widest;
    split.lots = split.coarse_lots = shape->batch * split.chunks;
    if (index == work->round->count - 1 && work->call->context.threads > 1) split.coarse_lots -= split.lots / 4;
    split.coarse = split_rows(rows, strip, strips);
    split.fine = split_rows(rows, strip, strips > 4 ? strips / 4 : 1);
    return split;
}

static int64_t units_of(const group_split *split) {
    return split->coarse_lots * split->coarse.blocks + (split->lots - split->coarse_lots) * split->fine.blocks;
}

/* Up to `enough`, which keeps long lists cheap. */
static int64_t units_of_round(const round_work *work, int64_t enough) {
    int64_t units = 0;
    for (int64_t g = 0; g < work->round->count && units < enough; g++) {
        group_split split = split_group(work, g);
        units += split.lots * split.coarse.blocks;
    }
    return units;
}

/* The last rows come first: where the pattern is causal they see most, and short units are left for the end. */
static void run_numbered(const round_work *work, const group_split *split, int64_t index, ra_forward_unit *unit) {
    int64_t coarse_units = split->coarse_lots * split->coarse.blocks, first_lot = 0;
    row_split rows = split->coarse;
    if (index >= coarse_units) {
        index -= coarse_units;
        first_lot = split->coarse_lots;
        rows = split->fine;
    }
    int64_t lot = first_lot + index / rows.blocks, chunk = lot % split->chunks, count = split->tile->q_rows.count;
    unit->h0 = 0;
    while (chunk-- > 0) unit->h0 = chunk_end(split, unit->h0);
    unit->h1 = chunk_end(split, unit->h0);
    unit->kv_head = ra_span_at(split->tile->heads, unit->h0) / split->gqa_ratio;
    unit->b = lot / split->chunks;
    unit->a0 = (rows.blocks - 1 - index % rows.blocks) * rows.rows;
    unit->a1 = unit->a0 + rows.rows < count ? unit->a0 + rows.rows : count;
    work->partition->run(unit);
}

/* The units of a round are numbered through its groups. The numbers that a thread takes only grow, so its place among
 * the groups only moves forward. Messages move before the first unit, when the others can make up for the time it
 * takes, and after the last, when this thread has nothing else to do. */
static void run_thread(void *user, int thread) {
    round_work *work = user;
    const ra_forward_call *call = work->call;
    ra_forward_unit unit = {.call = call,
                            .state = work->round->state,
                            .thread = thread,
                            .scratch = (char *)call->context.scratch + (size_t)thread * work->partition->scratch_bytes};
    unsigned underflow = ra_underflow_to_zero(call->shape);
    ra_context_progress(&call->context, thread);
    int64_t number = ra_context_take(&call->context, &work->next), first = 0;
    for (int64_t g = 0; g < work->round->count; g++) {
        group_split split = split_group(work, g);
        int64_t units = units_of(&split);
        unit.tiles = split.tile;
        unit.tile_count = call->tiles.groups[work->round->first + g].count;
        for (; number < first + units; number = ra_context_take(&call->context, &work->next))
            run_numbered(work, &split, number - first, &unit);
        first += units;
    }
    ra_context_progress(&call->context, thread);
    ra_underflow_restore(underflow);
}

void ra_forward_units(const ra_forward_call *call, const ra_forward_partition *partition) {
    int64_t threads = call->context.threads, enough = UNITS_PER_THREAD * threads;
    for (int64_t p = 0; p < call->tiles.round_count; p++) {
        round_work work = {
            .call = call, .partition = partition, .round = &call->tiles.rounds[p], .strips = partition->strips_max};
        while (threads > 1 && work.strips > 1 && units_of_round(&work, enough) < enough) work.strips = work.strips / 2;
        int64_t units = units_of_round(&work, threads);
        ra_parallel(units < threads ? (int)units : (int)threads, run_thread, &work);
    }
}
