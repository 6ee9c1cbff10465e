#include "device/block_pool.h"

#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>

enum { GRAIN = 1 << 16 };

/* Half as much again, in whole grains. */
static size_t with_spare(size_t bytes) {
    if (bytes > SIZE_MAX / 4) return bytes; /* no device has that much */
    return (bytes + bytes / 2 + GRAIN - 1) / GRAIN * GRAIN;
}

static void *allocate(const ra_block_pool *pool, size_t bytes) {
    const ra_device *device = pool->device;
    return pool->on_host ? device->allocate_host(device, bytes) : device->allocate(device, bytes);
}

static void release(const ra_block_pool *pool, ra_block *block) {
    const ra_device *device = pool->device;
    if (block->memory && pool->on_host) device->release_host(device, block->memory);
    if (block->memory && !pool->on_host) device->release(device, block->memory);
    if (block->event) device->event_destroy(device, block->event);
    free(block);
}

static int is_idle(const ra_block_pool *pool, const ra_block *block) {
    int done = 0;
    return !block->taken && pool->device->query(pool->device, block->event, &done) == RA_OK && done;
}

static void release_idle(ra_block_pool *pool) {
    for (ra_block **at = &pool->blocks; *at;) {
        ra_block *block = *at;
        if (!is_idle(pool, block)) {
            at = &block->next;
            continue;
        }
        *at = block->next;
        release(pool, block);
    }
}

static ra_status make(ra_block_pool *pool, size_t bytes, ra_block **block_out) {
    ra_block *block = calloc(1, sizeof *block);
    if (!block) return ra_no_memory();
    block->bytes = with_spare(bytes);
    block->memory = allocate(pool, block->bytes);
    if (!block->memory) {
        release_idle(pool);
        block->bytes = bytes;
        block->memory = allocate(pool, bytes);
    }
    ra_status status = RA_OK;
    if (!block->memory)
        status = ra_fail(RA_ERR_MEMORY, "no %s memory for a plan's lists of %zu bytes",
                         pool->on_host ? "pinned" : "device", block->bytes);
    if (status == RA_OK) status = pool->device->event_create(pool->device, &block->event);
    if (status != RA_OK) return release(pool, block), status;
    *block_out = block;
    return RA_OK;
}

ra_status ra_block_take(ra_block_pool *pool, size_t bytes, ra_block **block_out) {
    ra_block *best = NULL;
    for (ra_block *block = pool->blocks; block; block = block->next) {
        int done = 0;
        if (block->taken || block->bytes < bytes || (best && best->bytes <= block->bytes)) continue;
        RA_TRY(pool->device->query(pool->device, block->event, &done));
        if (done) best = block;
    }
    if (!best) {
        RA_TRY(make(pool, bytes, &best));
        best->next = pool->blocks;
        pool->blocks = best;
    }
    best->taken = 1;
    *block_out = best;
    return RA_OK;
}

void ra_block_give(ra_block *block) {
    block->taken = 0;
}

void ra_blocks_release(ra_block_pool *pool) {
    while (pool->blocks) {
        ra_block *block = pool->blocks;
        pool->blocks = block->next;
        release(pool, block);
    }
}
