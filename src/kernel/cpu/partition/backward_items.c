#include "kernel/cpu/partition/backward_items.h"

#include "kernel/cpu/partition/underflow.h"
#include "kernel/parallel.h"

#include <sched.h>
#include <string.h>

/* ---- scratch --------------------------------------------------------------------------------------------- */

/* [chains | positions | thread 0: the kernel's, items, fences | thread 1 | ...], each a multiple of 64 bytes. */

static size_t round_up_64(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static size_t counts_bytes(const ra_shape *shape) {
    return round_up_64(2 * (size_t)shape->heads_kv * sizeof(int64_t));
}

static size_t chain_count(const ra_shape *shape) {
    return (size_t)(shape->batch * shape->heads_kv);
}

/* Enough for every thread to have an item of one chain, and one more that is being read. */
static int64_t ring_of(int threads) {
    return (int64_t)threads + 1;
}

static size_t chains_bytes(const ra_shape *shape) {
    return round_up_64(chain_count(shape) * sizeof(ra_backward_chain));
}

static size_t positions_bytes(const ra_shape *shape, int threads) {
    return round_up_64(chain_count(shape) * (size_t)ring_of(threads) * sizeof(int64_t));
}

size_t ra_backward_items_bytes(const ra_shape *shape, int threads, size_t scratch_bytes) {
    return chains_bytes(shape) + positions_bytes(shape, threads) +
           (size_t)threads * (scratch_bytes + counts_bytes(shape));
}

ra_backward_work ra_backward_work_make(const ra_backward_call *call, const ra_backward_partition *partition) {
    const ra_shape *shape = call->shape;
    int threads = call->context.threads;
    char *scratch = call->context.scratch;
    ra_backward_work work = {
        .call = call, .partition = partition, .chains = (ra_backward_chain *)scratch, .ring = ring_of(threads)};
    int64_t *positions = (int64_t *)(scratch + chains_bytes(shape));
    work.scratch = scratch + chains_bytes(shape) + positions_bytes(shape, threads);
    memset(positions, 0, positions_bytes(shape, threads));
    for (size_t i = 0; i < chain_count(shape); i++)
        work.chains[i] = (ra_backward_chain){0, positions + (int64_t)i * work.ring};
    return work;
}

/* ---- inside an item -------------------------------------------------------------------------------------- */

void ra_backward_queries(const ra_backward_item *item, int64_t queries,
                         void (*visit)(void *user, int64_t h, int64_t a0, int64_t count), void *user) {
    const ra_tile *tile = item->tile;
    int64_t from = item->b0 - tile->hi, to = item->b1 - tile->lo, end; /* lo <= b - a <= hi for some b in [b0, b1) */
    from = from < 0 ? 0 : from;
    to = to > tile->q_rows.count ? tile->q_rows.count : to;
    for (int64_t h = item->h0; h < item->h1; h++) {
        for (int64_t a0 = from; a0 < to; a0 = end) {
            end = (a0 / queries + 1) * queries;
            end = end < to ? end : to;
            visit(user, h, a0, end - a0);
        }
    }
}

/* ---- waiting --------------------------------------------------------------------------------------------- */

enum { SPINS = 200 };
static const int64_t FINISHED = ((int64_t)1 << 32) - 1; /* more blocks than any item has */

/* Waits until *value is at least `least`. The cores may be fewer than the threads: after a while it lets others run. */
static void wait_for(const ra_backward_item *item, const int64_t *value, int64_t least) {
    for (int spins = 0; __atomic_load_n(value, __ATOMIC_ACQUIRE) < least; spins++) {
        if (spins < SPINS) continue;
        ra_context_progress(&item->call->context, item->thread);
        sched_yield();
    }
}

static int64_t *position_of(const ra_backward_item *item, int64_t number) {
    return &item->chain->positions[number % item->ring];
}

static int64_t step_of(const ra_backward_item *item, int64_t h, int64_t block) {
    return (h - item->h0) * item->query_blocks + block + 1;
}

void ra_backward_await(const ra_backward_item *item, int64_t h, int64_t block) {
    if (!item->is_first)
        wait_for(item, position_of(item, item->number - 1), (item->number - 1) << 32 | step_of(item, h, block));
}

void ra_backward_release(const ra_backward_item *item, int64_t h, int64_t block) {
    __atomic_store_n(position_of(item, item->number), item->number << 32 | step_of(item, h, block), __ATOMIC_RELEASE);
}

/* Item i takes the place of item i - ring in the ring, once that item and the one after it, which reads it, are done.
 */
static void begin_item(const ra_backward_item *item, int64_t must_be_finished) {
    int64_t old = item->number - item->ring;
    if (old >= 0) wait_for(item, position_of(item, old), old << 32 | FINISHED);
    if (old >= 0) wait_for(item, position_of(item, old + 1), (old + 1) << 32 | FINISHED);
    wait_for(item, &item->chain->finished, must_be_finished);
    __atomic_store_n(position_of(item, item->number), item->number << 32, __ATOMIC_RELEASE);
}

static void end_item(const ra_backward_item *item) {
    __atomic_store_n(position_of(item, item->number), item->number << 32 | FINISHED, __ATOMIC_RELEASE);
    __atomic_fetch_add(&item->chain->finished, 1, __ATOMIC_ACQ_REL);
}

/* ---- which tiles may run side by side -------------------------------------------------------------------- */

/* The rows that tiles since the last fence touch. A tile outside of them needs no fence. */
typedef struct hull {
    int64_t q_from, q_to, k_from, k_to;
    int part, is_empty;
} hull;

static int is_apart(int64_t a_from, int64_t a_to, int64_t b_from, int64_t b_to) {
    return a_to <= b_from || b_to <= a_from;
}

/* Adds a tile to the hull; returns whether it needs a fence, in which case the hull is the tile's alone. */
static int add_to_hull(hull *h, const ra_tile *tile) {
    hull own = {tile->q_rows.first, ra_span_last(tile->q_rows) + 1,
                tile->k_rows.first, ra_span_last(tile->k_rows) + 1,
                tile->part,         0};
    int may_join = !h->is_empty && !tile->k_index && h->part == tile->part &&
                   is_apart(h->q_from, h->q_to, own.q_from, own.q_to) &&
                   is_apart(h->k_from, h->k_to, own.k_from, own.k_to);
    if (!may_join) {
        *h = own;
        h->is_empty = tile->k_index != NULL; /* nothing joins rows that are listed */
        return 1;
    }
    h->q_from = own.q_from < h->q_from ? own.q_from : h->q_from;
    h->q_to = own.q_to > h->q_to ? own.q_to : h->q_to;
    h->k_from = own.k_from < h->k_from ? own.k_from : h->k_from;
    h->k_to = own.k_to > h->k_to ? own.k_to : h->k_to;
    return 0;
}

/* ---- taking items ---------------------------------------------------------------------------------------- */

/* One thread's way through the tiles. Chains of one key/value head are alike in all batches. */
typedef struct item_loop {
    ra_backward_work *work;
    ra_backward_item item;
    hull hull;
    int64_t *items;  /* [heads_kv]: of a chain, in the tiles before this one */
    int64_t *fences; /* [heads_kv]: how many of these must be finished before one of this tile starts */
    int64_t first;   /* number of the tile's first item, over all chains */
    int64_t taken;   /* number of the item that this thread has taken */
} item_loop;

typedef struct tile_split {
    int64_t from, to;     /* visible keys */
    int64_t keys, blocks; /* of a block, and the blocks that they lie in, counted from the tile's start */
    int64_t kv_first, kv_last;
} tile_split;

static tile_split split_tile(const ra_backward_work *work, const ra_tile *tile) {
    const ra_shape *shape = work->call->shape;
    enum { EVEN = 32 }; /* what vectors and panels of all kernels divide */
    int64_t gqa_ratio = shape->heads_q / shape->heads_kv, keys = work->partition->keys;
    int64_t blocks = (tile->k_rows.count + keys - 1) / keys;
    tile_split split = {.kv_first = tile->heads.first / gqa_ratio, .kv_last = ra_span_last(tile->heads) / gqa_ratio};
    split.keys = ((tile->k_rows.count + blocks - 1) / blocks + EVEN - 1) / EVEN * EVEN;
    split.keys = split.keys < keys ? split.keys : keys;
    ra_tile_visible(tile, 0, tile->q_rows.count, &split.from, &split.to);
    if (split.from < split.to) split.blocks = (split.to + split.keys - 1) / split.keys - split.from / split.keys;
    return split;
}

/* Block `block` of the tile for one chain. Heads may be so far apart that some key/value head has none. */
static void run_item(item_loop *w, const tile_split *split, int64_t block, int64_t b, int64_t kv_head) {
    ra_backward_item *item = &w->item;
    const ra_shape *shape = item->call->shape;
    int64_t gqa_ratio = shape->heads_q / shape->heads_kv, keys = split->keys;
    ra_span_indices(item->tile->heads, kv_head * gqa_ratio, (kv_head + 1) * gqa_ratio, &item->h0, &item->h1);
    if (item->h0 == item->h1) return;
    int64_t start = (split->from / keys + block) * keys;
    item->b = b;
    item->kv_head = kv_head;
    item->b0 = start < split->from ? split->from : start;
    item->b1 = start + keys < split->to ? start + keys : split->to;
    item->chain = &w->work->chains[b * shape->heads_kv + kv_head];
    item->number = w->items[kv_head] + block;
    item->is_first = block == 0;
    begin_item(item, w->fences[kv_head]);
    w->work->partition->run(item);
    end_item(item);
}

static int has_heads(const item_loop *w, int64_t kv_head) {
    const ra_shape *shape = w->item.call->shape;
    int64_t gqa_ratio = shape->heads_q / shape->heads_kv, first, last;
    ra_span_indices(w->item.tile->heads, kv_head * gqa_ratio, (kv_head + 1) * gqa_ratio, &first, &last);
    return first < last;
}

static void run_tile(item_loop *w) {
    tile_split split = split_tile(w->work, w->item.tile);
    int64_t batch = w->item.call->shape->batch, kv_heads = split.kv_last - split.kv_first + 1;
    int64_t end = w->first + split.blocks * batch * kv_heads;
    if (split.blocks == 0) return;
    if (add_to_hull(&w->hull, w->item.tile))
        for (int64_t g = 0; g < w->item.call->shape->heads_kv; g++) w->fences[g] = w->items[g];
    w->item.query_blocks = (w->item.tile->q_rows.count + w->work->partition->queries - 1) / w->work->partition->queries;
    for (; w->taken < end; w->taken = ra_context_take(&w->work->call->context, &w->work->next)) {
        int64_t index = w->taken - w->first, chain = index % (batch * kv_heads);
        run_item(w, &split, index / (batch * kv_heads), chain / kv_heads, split.kv_first + chain % kv_heads);
    }
    for (int64_t g = split.kv_first; g <= split.kv_last; g++)
        if (has_heads(w, g)) w->items[g] += split.blocks;
    w->first = end;
}

/* Items are numbered through the tiles, and in a tile block by block, each with all of its chains: so neighbours in a
 * chain are taken a while apart. The numbers that a thread takes only grow. */
void ra_backward_work_run(void *user, int thread) {
    ra_backward_work *work = user;
    const ra_tile_list *list = &work->call->tiles;
    int64_t heads_kv = work->call->shape->heads_kv;
    char *scratch = work->scratch + (size_t)thread * (work->partition->scratch_bytes + counts_bytes(work->call->shape));
    int64_t *counts = (int64_t *)(scratch + work->partition->scratch_bytes);
    item_loop w = {.work = work,
                   .item = {.call = work->call, .thread = thread, .scratch = scratch, .ring = work->ring},
                   .hull = {.is_empty = 1},
                   .items = counts,
                   .fences = counts + heads_kv};
    unsigned underflow = ra_underflow_to_zero(work->call->shape);
    for (int64_t g = 0; g < heads_kv; g++) w.items[g] = w.fences[g] = 0;
    w.taken = ra_context_take(&work->call->context, &work->next);
    for (int64_t p = 0; p < list->round_count; p++) {
        w.item.state = list->rounds[p].state;
        for (int64_t g = 0; g < list->rounds[p].count; g++) {
            const ra_tile_group *group = &list->groups[list->rounds[p].first + g];
            for (int64_t t = 0; t < group->count; t++) {
                w.item.tile = &list->tiles[group->first + t];
                run_tile(&w);
            }
        }
    }
    ra_underflow_restore(underflow);
}

/* Items over all tiles, up to `enough`. */
static int64_t count_items(const ra_backward_work *work, int64_t enough) {
    const ra_tile_list *list = &work->call->tiles;
    int64_t items = 0;
    for (int64_t t = 0; t < list->tile_count && items < enough; t++) {
        tile_split split = split_tile(work, &list->tiles[t]);
        items += split.blocks * work->call->shape->batch * (split.kv_last - split.kv_first + 1);
    }
    return items;
}

void ra_backward_items(const ra_backward_call *call, const ra_backward_partition *partition) {
    ra_backward_work work = ra_backward_work_make(call, partition);
    int threads = call->context.threads;
    int64_t items = count_items(&work, threads);
    ra_parallel(items < threads ? (int)items : threads, ra_backward_work_run, &work);
}
