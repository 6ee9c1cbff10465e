/* How the backward pass is split into items of work, how threads take them, and in which order they add to the rows
 * that several of them have.
 *
 * An item is a block of keys of a tile, for one batch and key/value head: it owns the block's dK and dV and goes
 * through the queries that see it, head by head and block by block, adding to their dQ. Items of one batch and
 * key/value head form a chain, in the order in which one thread alone would take them:
 *
 *     time ──►   1   2   3   4   5   6
 *     item 0     a   b   c   d                   a, b, c, d: the blocks of queries. Item 1 adds to the dQ of a block
 *     item 1         a   b   c   d               once item 0 has released it, and item 2 once item 1 has.
 *     item 2             a   b   c   d
 *
 * So every row is added to in the same order whatever the number of threads, without atomics. A tile that may have rows
 * in common with earlier ones waits until the chain is done with those. An item waits only for items that were taken
 * before it: nobody waits for ever.
 */
#ifndef RA_KERNEL_BACKWARD_ITEMS_H
#define RA_KERNEL_BACKWARD_ITEMS_H

#include "kernel/kernel.h"

/* One batch's key/value head. */
typedef struct ra_backward_chain {
    int64_t finished;   /* items */
    int64_t *positions; /* [ring]: of item i at i % ring: i << 32 | blocks of queries that it has released */
} ra_backward_chain;

/* Keys [b0, b1) of a tile, for heads [h0, h1) of tile->heads. */
typedef struct ra_backward_item {
    const ra_backward_call *call;
    const ra_tile *tile;
    int64_t state, b, kv_head;
    int64_t h0, h1;
    int64_t b0, b1;
    int thread;
    void *scratch; /* this thread's */
    /* Its place in the order: */
    ra_backward_chain *chain;
    int64_t number; /* in the chain */
    int64_t ring, query_blocks;
    int is_first; /* of its tile in this chain */
} ra_backward_item;

/* How a kernel's work is divided into items. */
typedef struct ra_backward_partition {
    int64_t keys;         /* of a block, at most; counted from the start of a tile, whose blocks are of one size */
    int64_t queries;      /* of a block, counted from the start of a tile */
    size_t scratch_bytes; /* of one thread */
    void (*run)(const ra_backward_item *item);
} ra_backward_partition;

/* The scratch of all threads together, with what the order needs. */
size_t ra_backward_items_bytes(const ra_shape *shape, int threads, size_t scratch_bytes);

void ra_backward_items(const ra_backward_call *call, const ra_backward_partition *partition);

/* Calls visit(user, h, a0, count) for the queries that see a key of the item: for every head h in [h0, h1), in blocks
 * of at most `queries` rows that are counted from the start of the tile. */
void ra_backward_queries(const ra_backward_item *item, int64_t queries,
                         void (*visit)(void *user, int64_t h, int64_t a0, int64_t count), void *user);

/* An item's run calls these around adding to dQ of block `block` (rows [block * queries, ...)) of head h in [h0, h1);
 * it goes through heads and blocks in rising order and may leave some out. */
void ra_backward_await(const ra_backward_item *item, int64_t h, int64_t block);
void ra_backward_release(const ra_backward_item *item, int64_t h, int64_t block);

/* The number of a block of queries of head h in [h0, h1), counted through the heads, whether they are seen or not. */
static inline int64_t ra_query_block_number(const ra_backward_item *item, int64_t h, int64_t block) {
    return (h - item->h0) * item->query_blocks + block;
}

/* What one thread of ra_backward_items does; for tests, which start threads of their own. */
typedef struct ra_backward_work {
    const ra_backward_call *call;
    const ra_backward_partition *partition;
    ra_backward_chain *chains; /* [batch * heads_kv] */
    char *scratch;             /* of the threads */
    int64_t ring;
    int64_t next; /* item to be taken */
} ra_backward_work;
ra_backward_work ra_backward_work_make(const ra_backward_call *call, const ra_backward_partition *partition);
void ra_backward_work_run(void *work, int thread);

#endif
