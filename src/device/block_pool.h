/* Blocks of memory that are kept and used again, since allocating and releasing memory of a device, or host memory that
 * it copies from, takes long and may wait for the device.
 *
 * A block has an event: its user signals it behind the last use on the device. A block that was given back is taken
 * again when that has happened, which is asked and never waited for: as long as it has not, another block is taken, or
 * made. Each has some bytes to spare for the next that needs a little more, so plans of about one size have as many
 * blocks as were ever in use at once, by them or by work of the device that is still to come. Blocks that are idle are
 * released with the pool, or earlier when there is no memory for another. */
#ifndef RA_DEVICE_BLOCK_POOL_H
#define RA_DEVICE_BLOCK_POOL_H

#include "device/device.h"

typedef struct ra_block {
    unsigned char *memory;
    size_t bytes;
    void *event; /* its last use; never signalled: nothing to wait for */
    int taken;
    struct ra_block *next;
} ra_block;

typedef struct ra_block_pool {
    const ra_device *device; /* an asynchronous one */
    int on_host;             /* host memory that the device's copies reach; else device memory */
    ra_block *blocks;
} ra_block_pool;

/* A block of at least so many bytes: the smallest free one, or else another. The pool's until it is given back. */
ra_status ra_block_take(ra_block_pool *pool, size_t bytes, ra_block **block_out);
void ra_block_give(ra_block *block);

/* All of them, given back or not; waits for the device. */
void ra_blocks_release(ra_block_pool *pool);

#endif
