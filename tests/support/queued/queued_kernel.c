#include "support/queued/queued_kernel.h"

#include "base/status.h"
#include "kernel/row_io.h"
#include "support/queued/queued_gradients.h"
#include "support/queued/queued_rows.h"

#include <stdlib.h>
#include <string.h>

/* What a device kernel has uploaded; used instead of what comes with the call. Calls write to the counters. */
struct ra_prepared {
    ra_tile_list tiles; /* the plan's; once they are placed, in device memory */
    const ra_tile *planned;
    const ra_kv_rows *parts; /* likewise; NULL: the rank's own rows, which come with the call */
    int64_t part_count;
    int come_with_calls; /* the parts, too: each call writes them there */
    int last_queries;    /* of those that the tiles are of */
    void *counters;
    int64_t overwritten, overwritten_queries;
    int finishes;
};

/* Some of the problems of tests have more keys, and some fewer. */
enum { COUNTER_BYTES = 100, BUSY_KEYS = 200 };

static int last_queries(const ra_tile_list *tiles) {
    int last = 0;
    for (int64_t i = 0; i < tiles->tile_count; i++)
        last = tiles->tiles[i].queries > last ? tiles->tiles[i].queries : last;
    return last;
}

static int64_t overwrites_queries(const ra_prepared *prepared) {
    return prepared->overwritten_queries;
}

static int finishes(const ra_prepared *prepared) {
    return prepared->finishes;
}

/* Forward calls of one round must have all rows for that, as those of a device; the others have, anyway. */
static int can_finish(const ra_shape *shape, const ra_tile_list *tiles, ra_pass pass) {
    int has_all = queued_query_rows(tiles) == shape->rows_q * shape->heads_q;
    return shape->states == 1 && (pass == RA_BACKWARD || tiles->round_count > 1 || has_all);
}

static int64_t overwrites(const ra_prepared *prepared) {
    return prepared->overwritten;
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

static ra_status prepare(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts, int64_t part_count,
                         ra_pass pass, ra_prepared **prepared_out) {
    ra_prepared *p = calloc(1, sizeof *p);
    if (!p) return ra_fail(RA_ERR_MEMORY, "no memory for a test");
    p->tiles = *tiles;
    p->planned = tiles->tiles;
    p->parts = parts;
    p->finishes = can_finish(shape, tiles, pass);
    p->last_queries = last_queries(tiles);
    p->part_count = parts ? part_count : 0;
    for (int64_t i = 0; i < p->part_count; i++) p->come_with_calls |= !parts[i].k.data;
    if (pass == RA_BACKWARD)
        p->overwritten = queued_key_rows(shape, tiles, parts), p->overwritten_queries = queued_query_rows(tiles);
    *prepared_out = p;
    return RA_OK;
}

/* Where the arrays stand in the lists; each has the alignment of an int64_t. */
typedef struct list_layout {
    size_t tiles, groups, rounds, parts, index, bytes;
} list_layout;

static size_t index_bytes(const ra_tile *tile) {
    return tile->k_index ? (size_t)tile->k_rows.count * sizeof *tile->k_index : 0;
}

static list_layout lay_out(const ra_prepared *p) {
    list_layout at = {.groups = (size_t)p->tiles.tile_count * sizeof *p->tiles.tiles};
    at.rounds = at.groups + (size_t)p->tiles.group_count * sizeof *p->tiles.groups;
    at.parts = at.rounds + (size_t)p->tiles.round_count * sizeof *p->tiles.rounds;
    at.index = at.parts + (size_t)p->part_count * sizeof *p->parts;
    at.bytes = at.index;
    for (int64_t i = 0; i < p->tiles.tile_count; i++) at.bytes += index_bytes(&p->tiles.tiles[i]);
    return at;
}

static ra_list_size list_size(const ra_prepared *prepared) {
    return (ra_list_size){lay_out(prepared).bytes, COUNTER_BYTES};
}

static void place_index(ra_tile *tiles, int64_t count, unsigned char *device, unsigned char *to) {
    for (int64_t i = 0; i < count; i++) {
        size_t bytes = index_bytes(&tiles[i]);
        if (bytes == 0) continue;
        memcpy(to, tiles[i].k_index, bytes);
        tiles[i].k_index = (const int64_t *)(void *)device;
        to += bytes;
        device += bytes;
    }
}

static void place(ra_prepared *p, void *lists, void *counters, void *lists_out) {
    list_layout at = lay_out(p);
    unsigned char *to = lists_out, *device = lists;
    if ((uintptr_t)lists % RA_LIST_ALIGNMENT || (uintptr_t)counters % RA_LIST_ALIGNMENT) abort();
    memcpy(to + at.tiles, p->tiles.tiles, at.groups - at.tiles);
    memcpy(to + at.groups, p->tiles.groups, at.rounds - at.groups);
    memcpy(to + at.rounds, p->tiles.rounds, at.parts - at.rounds);
    if (p->parts) memcpy(to + at.parts, p->parts, at.index - at.parts);
    place_index((ra_tile *)(void *)(to + at.tiles), p->tiles.tile_count, device + at.index, to + at.index);
    p->tiles.tiles = (void *)(device + at.tiles);
    p->tiles.groups = (void *)(device + at.groups);
    p->tiles.rounds = (void *)(device + at.rounds);
    if (p->parts) p->parts = (void *)(device + at.parts);
    p->counters = counters;
}

static void discard(ra_prepared *prepared) {
    free(prepared);
}

static void run_write_parts(const job *j) {
    memcpy(j->to, j->to_too, (size_t)j->count * sizeof(ra_kv_rows));
    free(j->to_too);
}

/* In stream order, as a device does it. */
static void take_parts(const ra_shape *shape, const ra_prepared *prepared, const ra_kv_rows *parts,
                       const ra_context *context) {
    job j = queued_job_of(shape, context, run_write_parts);
    size_t bytes = (size_t)prepared->part_count * sizeof *parts;
    if (!prepared->come_with_calls) return;
    j.to = (void *)(intptr_t)prepared->parts;
    j.to_too = malloc(bytes);
    j.count = prepared->part_count;
    if (!j.to_too) abort();
    memcpy(j.to_too, parts, bytes);
    queued_put(context->stream, &j);
}

/* ---- queries of several ranks ----------------------------------------------------------------------------------- */

/* The groups of one rank's queries alone, all of one round. */
typedef struct queries_alone {
    ra_tile_round round;
    ra_tile_group *groups; /* on the heap */
} queries_alone;

/* The list becomes that of these queries. */
static void take_queries(ra_tile_list *tiles, int number, queries_alone *alone) {
    *alone = (queries_alone){.groups = malloc((size_t)tiles->group_count * sizeof *alone->groups + 1)};
    if (!alone->groups) abort();
    for (int64_t g = 0; g < tiles->group_count; g++)
        if (tiles->tiles[tiles->groups[g].first].queries == number)
            alone->groups[alone->round.count++] = tiles->groups[g];
    tiles->groups = alone->groups;
    tiles->rounds = &alone->round;
    tiles->group_count = alone->round.count;
}

/* A copy on the heap, as the caller's array does not stay; NULL: there are none. */
static void *keep_queries(const ra_prepared *prepared, const ra_query_rows *queries) {
    size_t bytes = (size_t)(prepared->last_queries + 1) * sizeof *queries;
    if (!queries) return NULL;
    void *kept = malloc(bytes);
    if (!kept) abort();
    return memcpy(kept, queries, bytes);
}

/* ---- forward ---------------------------------------------------------------------------------------------------- */

/* begins, finishes: the call does. */
static void attend(ra_forward_call call, const ra_shape *shape, int begins, int finishes_too, ra_view o, ra_view lse) {
    call.shape = shape;
    call.results = NULL;
    call.queries = NULL;
    if (begins) queued_inner_kernel()->begin(shape, call.state, &call.context);
    queued_inner_kernel()->forward(&call);
    if (finishes_too) queued_inner_kernel()->finish(shape, call.state, o, lse, &call.context);
}

static void run_forward(const job *j) {
    ra_forward_call call = j->forward;
    const ra_query_rows *queries = j->to_too;
    int finishes_too = call.results != NULL, begins = j->count != 0;
    if (!call.parts) call.parts = &j->own;
    call.context = j->context;
    memset(j->to, 0xff, COUNTER_BYTES);
    if (!queries) attend(call, &j->shape, begins, finishes_too, j->a, j->b);
    for (int i = 0; queries && i <= last_queries(&call.tiles); i++) {
        ra_forward_call one = call;
        ra_shape shape = j->shape;
        queries_alone alone;
        take_queries(&one.tiles, i, &alone);
        shape.rows_q = queries[i].rows;
        one.q = queries[i].q, one.state = queries[i].state;
        attend(one, &shape, begins, finishes_too, queries[i].o_out, queries[i].lse_out);
        free(alone.groups);
    }
    free(j->to_too);
}

static void forward(const ra_forward_call *call) {
    job j = queued_job_of(call->shape, &call->context, run_forward);
    if (!call->prepared || call->prepared->planned != call->tiles.tiles) abort();
    take_parts(call->shape, call->prepared, call->parts, &call->context);
    j.forward = *call;
    j.forward.tiles = call->prepared->tiles;
    j.forward.parts = call->prepared->parts;
    j.forward.prepared = NULL; /* it may be discarded before the job is done */
    j.own = call->parts[0];
    if (call->results) /* the caller's structure does not stay */
        j.a = call->results->o, j.b = call->results->lse, j.count = call->results->begins;
    j.to = call->prepared->counters;
    j.to_too = keep_queries(call->prepared, call->queries);
    queued_put(call->context.stream, &j);
}

/* ---- backward --------------------------------------------------------------------------------------------------- */

static void run_queries(ra_backward_call call, ra_shape shape, const ra_query_rows *rows, int number) {
    queries_alone alone;
    take_queries(&call.tiles, number, &alone);
    shape.rows_q = rows->rows;
    call.shape = &shape;
    call.q = rows->q, call.dout = rows->dout, call.dq = rows->dq;
    call.lse = rows->lse, call.delta = rows->delta;
    call.queries = NULL;
    queued_inner_kernel()->backward(&call);
    free(alone.groups);
}

/* How many rows of a part the tiles have keys in, up to the last. */
static int64_t key_rows(const ra_tile_list *tiles, int64_t part) {
    int64_t rows = 0;
    for (int64_t i = 0; i < tiles->tile_count; i++)
        for (int64_t b = 0; tiles->tiles[i].part == part && b < tiles->tiles[i].k_rows.count; b++) {
            int64_t row = ra_tile_key(&tiles->tiles[i], b);
            if (row >= rows) rows = row + 1;
        }
    return rows;
}

static int64_t count_parts(const ra_tile_list *tiles) {
    int64_t count = 0;
    for (int64_t i = 0; i < tiles->tile_count; i++)
        if (tiles->tiles[i].part >= count) count = tiles->tiles[i].part + 1;
    return count;
}

/* [batch, rows, heads_kv, width] of the accumulation type, on the heap. */
static ra_view sums_view(const ra_shape *shape, int64_t rows, int64_t width) {
    int64_t row = shape->heads_kv * width;
    void *data = malloc((size_t)(shape->batch * rows * row) * ra_shape_acc_bytes(shape) + 1);
    if (!data) abort();
    return (ra_view){data, rows * row, row, width, 1};
}

static void run_backward(const job *j);

/* The sums of dq become the output, and what they were in is left as nothing that could be used. */
static void store_queries(const job *j, int64_t rows, ra_view dq, ra_view dq_out) {
    ra_shape shape = j->shape;
    shape.rows_q = rows;
    queued_inner_kernel()->store(&shape, dq_out, dq, rows, shape.heads_q, shape.dim, &j->context);
    for (int64_t b = 0; b < shape.batch; b++)
        for (int64_t row = 0; row < rows; row++)
            for (int64_t h = 0; h < shape.heads_q; h++)
                memset(ra_view_row(dq, ra_shape_acc_bytes(&shape), b, row, h), 0xff,
                       (size_t)shape.dim * ra_shape_acc_bytes(&shape));
}

/* As a call that overwrites sums, which are then stored. */
static void run_finishing_queries(const job *j) {
    const ra_query_rows *queries = j->to_too;
    int count = queries ? last_queries(&j->backward.tiles) + 1 : 0;
    job sums = *j;
    ra_query_rows *kept = malloc((size_t)count * sizeof *kept + 1); /* the job frees what it has */
    if (!kept || !j->backward.overwrite_queries) abort();
    if (count) memcpy(kept, queries, (size_t)count * sizeof *kept);
    sums.backward.finish_queries = 0;
    run_backward(&sums);
    if (!count) store_queries(j, j->shape.rows_q, j->backward.dq, j->backward.dq_out);
    for (int i = 0; i < count; i++) store_queries(j, kept[i].rows, kept[i].dq, kept[i].dq_out);
    free(kept);
}

/* As a call that overwrites sums, which are then stored. */
static void run_finishing(const job *j) {
    const ra_shape *shape = &j->shape;
    const ra_tile_list *tiles = &j->backward.tiles;
    const ra_kv_rows *parts = j->backward.parts ? j->backward.parts : &j->own;
    int64_t count = count_parts(tiles);
    job sums = *j;
    ra_kv_rows *summed = malloc((size_t)count * sizeof *summed);
    if (!summed || !j->backward.overwrite) abort();
    sums.backward.finish = 0;
    sums.backward.parts = summed;
    for (int64_t i = 0; i < count; i++) {
        summed[i] = parts[i];
        summed[i].dk = sums_view(shape, key_rows(tiles, i), shape->dim);
        summed[i].dv = sums_view(shape, key_rows(tiles, i), shape->dim_v);
    }
    run_backward(&sums);
    for (int64_t i = 0; i < count; i++) {
        int64_t rows = key_rows(tiles, i);
        queued_inner_kernel()->store(shape, parts[i].dk, summed[i].dk, rows, shape->heads_kv, shape->dim, &j->context);
        queued_inner_kernel()->store(shape, parts[i].dv, summed[i].dv, rows, shape->heads_kv, shape->dim_v,
                                     &j->context);
        free(summed[i].dk.data);
        free(summed[i].dv.data);
    }
    free(summed);
}

static void run_backward(const job *j) {
    ra_backward_call call = j->backward;
    if (call.finish_queries) {
        run_finishing_queries(j);
        return;
    }
    if (call.finish) {
        run_finishing(j);
        return;
    }
    call.shape = &j->shape;
    if (!call.parts) call.parts = &j->own;
    call.context = j->context;
    if (call.overwrite) queued_clear_keys(&j->shape, &call.tiles, call.parts);
    const ra_query_rows *queries = j->to_too;
    if (call.overwrite_queries) queued_clear_queries(&j->shape, &call.tiles, queries, call.dq);
    call.overwrite = call.overwrite_queries = 0;
    memset(j->to, 0xff, COUNTER_BYTES);
    if (!queries) queued_inner_kernel()->backward(&call);
    for (int i = 0; queries && i <= last_queries(&call.tiles); i++) run_queries(call, j->shape, &queries[i], i);
    free(j->to_too);
}

static void backward(const ra_backward_call *call) {
    job j = queued_job_of(call->shape, &call->context, run_backward);
    if (!call->prepared || call->prepared->planned != call->tiles.tiles) abort();
    take_parts(call->shape, call->prepared, call->parts, &call->context);
    j.backward = *call;
    j.backward.tiles = call->prepared->tiles;
    j.backward.parts = call->prepared->parts;
    j.backward.prepared = NULL;
    j.own = call->parts[0];
    j.to = call->prepared->counters;
    j.to_too = keep_queries(call->prepared, call->queries);
    queued_put(call->context.stream, &j);
}

static int usable(void) {
    return 1;
}

static size_t scratch_bytes(const ra_shape *shape, int threads, int is_backward) {
    (void)threads;
    return queued_inner_kernel()->scratch_bytes(shape, 1, is_backward);
}

const ra_kernel *queued_kernel_at(int index) {
    static const ra_kernel kernel = {.name = "queued",
                                     .usable = usable,
                                     .scratch_bytes = scratch_bytes,
                                     .prepare = prepare,
                                     .list_size = list_size,
                                     .place = place,
                                     .discard = discard,
                                     .overwrites = overwrites,
                                     .finishes = finishes,
                                     .overwrites_queries = overwrites_queries,
                                     .finishes_queries = finishes,
                                     .busy_keys = BUSY_KEYS,
                                     .forward = forward,
                                     .backward = backward,
                                     .begin = queued_rows_begin,
                                     .merge = queued_rows_merge,
                                     .finish = queued_rows_finish,
                                     .delta = queued_rows_delta,
                                     .carry = queued_rows_carry,
                                     .pack = queued_rows_pack,
                                     .add_rows = queued_rows_add_rows,
                                     .add = queued_rows_add,
                                     .store = queued_rows_store,
                                     .fill = queued_rows_fill};
    return index == 0 ? &kernel : NULL;
}
