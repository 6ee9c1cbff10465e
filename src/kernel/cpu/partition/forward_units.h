/* How the forward pass is split into units of work, and how threads take them. A unit is a block of query rows of one
 * batch for some heads of one GQA group: their keys are loaded once for all of them. Each unit owns what it writes. */
#ifndef RA_KERNEL_FORWARD_UNITS_H
#define RA_KERNEL_FORWARD_UNITS_H

#include "kernel/kernel.h"

/* Queries [a0, a1) of a group's rows, for heads [h0, h1) of tiles->heads, which are of one GQA group. */
typedef struct ra_forward_unit {
    const ra_forward_call *call;
    const ra_tile *tiles; /* [tile_count], of the group */
    int64_t tile_count;
    int64_t state, b, kv_head;
    int64_t h0, h1;
    int64_t a0, a1;
    int thread;
    void *scratch; /* this thread's */
} ra_forward_unit;

/* Where a unit is among the keys of its group, whether it sees them or not, in blocks. */
typedef struct ra_key_place {
    int64_t tile, blocks; /* the tile at hand; blocks of those before it */
} ra_key_place;

/* How a kernel's work is divided into units. Blocks of rows are counted from the start of a tile in strips, so that
 * what a row computes does not depend on how many strips make a unit. */
typedef struct ra_forward_partition {
    int64_t strip;        /* rows of one head that are computed together */
    int64_t strips_max;   /* of all heads of a unit */
    size_t scratch_bytes; /* of one thread */
    void (*run)(const ra_forward_unit *unit);
} ra_forward_partition;

/* A strip of a unit: queries [a0, a0 + queries) of head h, whose places in the kernel's buffers start at `at`; or,
 * where a kernel takes a strip apart, those from `column` on. */
typedef struct ra_strip {
    int64_t h, a0, queries, at, column;
} ra_strip;

/* How many strips of that many rows a unit has, head by head; and one of them. */
int64_t ra_strip_count(const ra_forward_unit *unit, int64_t rows);
ra_strip ra_strip_at(const ra_forward_unit *unit, int64_t rows, int64_t index);

/* Calls visit(user, tile, b0, b1) for the keys that the unit sees, tile by tile, in blocks of at most `keys` that are
 * counted from the start of the tile. */
void ra_forward_blocks(const ra_forward_unit *unit, int64_t keys,
                       void (*visit)(void *user, const ra_tile *tile, int64_t b0, int64_t b1), void *user);

/* The number of the block of keys from b0 on of a tile, counted through all tiles of the group: the same for every
 * unit, and so what may depend on it without the split showing. place starts as zeros; tiles come in order. */
int64_t ra_block_number(const ra_forward_unit *unit, int64_t keys, const ra_tile *tile, int64_t b0,
                        ra_key_place *place);

/* Runs all rounds of a call. Units have as many strips as leave every thread a few of them. */
void ra_forward_units(const ra_forward_call *call, const ra_forward_partition *partition);

#endif
