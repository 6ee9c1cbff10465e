#include "kernel/cpu/work/forward_units.h"

#include "kernel/parallel.h"

enum { UNITS_PER_THREAD = 4 };

typedef struct pass_work {
    const ra_forward_call *call;
    const ra_forward_cut *cut;
    const ra_tile_pass *pass;
    int64_t strips; /* of a unit, at most */
    int64_t next;   /* unit to be taken */
} pass_work;

/* How a group is cut: chunks of heads that share a key/value head, and blocks of rows. */
typedef struct group_cut {
    const ra_tile *tile; /* the group's first: all have its rows and heads */
    int64_t share;       /* query heads to a key/value head */
    int64_t heads;       /* of a chunk, at most */
    int64_t chunks, rows, blocks;
} group_cut;

/* The end of the chunk of heads that starts at index h. */
static int64_t chunk_end(const group_cut *cut, int64_t h) {
    ra_span heads = cut->tile->heads;
    int64_t kv_head = ra_span_at(heads, h) / cut->share, end = h + 1;
    while (end < heads.count && end - h < cut->heads && ra_span_at(heads, end) / cut->share == kv_head) end++;
    return end;
}

static group_cut cut_group(const pass_work *work, const ra_tile_group *group) {
    const ra_shape *shape = work->call->shape;
    group_cut cut = {.tile = &work->call->tiles.tiles[group->first], .share = shape->heads_q / shape->heads_kv};
    cut.heads = work->strips;
    int64_t widest = 1;
    for (int64_t h = 0, end; h < cut.tile->heads.count; h = end) {
        end = chunk_end(&cut, h);
        widest = end - h > widest ? end - h : widest;
        cut.chunks++;
    }
    cut.rows = work->strips / widest * work->cut->strip;
    cut.blocks = (cut.tile->q_rows.count + cut.rows - 1) / cut.rows;
    return cut;
}

static int64_t units_of(const pass_work *work, const group_cut *cut) {
    return work->call->shape->batch * cut->chunks * cut->blocks;
}

/* Up to `enough`, which keeps long lists cheap. */
static int64_t units_of_pass(const pass_work *work, int64_t enough) {
    int64_t units = 0;
    for (int64_t g = 0; g < work->pass->count && units < enough; g++) {
        group_cut cut = cut_group(work, &work->call->tiles.groups[work->pass->first + g]);
        units += units_of(work, &cut);
    }
    return units;
}

/* The last rows come first: where the pattern is causal they see most, and short units are left for the end. */
static void run_numbered(const pass_work *work, const group_cut *cut, int64_t index, ra_forward_unit *unit) {
    int64_t rest = index / cut->blocks, chunk = rest % cut->chunks, block = cut->blocks - 1 - index % cut->blocks;
    unit->h0 = 0;
    while (chunk-- > 0) unit->h0 = chunk_end(cut, unit->h0);
    unit->h1 = chunk_end(cut, unit->h0);
    unit->kv_head = ra_span_at(cut->tile->heads, unit->h0) / cut->share;
    unit->b = rest / cut->chunks;
    unit->a0 = block * cut->rows;
    unit->a1 = unit->a0 + cut->rows < cut->tile->q_rows.count ? unit->a0 + cut->rows : cut->tile->q_rows.count;
    work->cut->run(unit);
}

/* The units of a pass are numbered through its groups. The numbers that a thread takes only grow, so its place among
 * the groups only moves forward. */
static void run_thread(void *user, int thread) {
    pass_work *work = user;
    const ra_forward_call *call = work->call;
    ra_forward_unit unit = {.call = call,
                            .state = work->pass->state,
                            .thread = thread,
                            .scratch = (char *)call->launch.scratch + (size_t)thread * work->cut->scratch_bytes};
    int64_t number = ra_take(&work->next), first = 0;
    for (int64_t g = 0; g < work->pass->count; g++) {
        const ra_tile_group *group = &call->tiles.groups[work->pass->first + g];
        group_cut cut = cut_group(work, group);
        int64_t units = units_of(work, &cut);
        unit.tiles = cut.tile;
        unit.tile_count = group->count;
        for (; number < first + units; number = ra_take(&work->next)) run_numbered(work, &cut, number - first, &unit);
        first += units;
    }
}

void ra_forward_units(const ra_forward_call *call, const ra_forward_cut *cut) {
    int64_t threads = call->launch.threads, enough = UNITS_PER_THREAD * threads;
    for (int64_t p = 0; p < call->tiles.pass_count; p++) {
        pass_work work = {.call = call, .cut = cut, .pass = &call->tiles.passes[p], .strips = cut->strips_max};
        while (threads > 1 && work.strips > 1 && units_of_pass(&work, enough) < enough) work.strips = work.strips / 2;
        int64_t units = units_of_pass(&work, threads);
        ra_parallel(units < threads ? (int)units : (int)threads, run_thread, &work);
    }
}
