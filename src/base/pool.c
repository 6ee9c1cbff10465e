#include "base/pool.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/* Items are handed out of blocks that grow with the pool. Under AddressSanitizer each has a block of its own, so that
 * reaching beyond it is noticed. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RA_POOL_BLOCKS 0
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define RA_POOL_BLOCKS 0
#elif !defined(RA_POOL_BLOCKS)
#define RA_POOL_BLOCKS 1
#endif
enum { BLOCK_LEAST = RA_POOL_BLOCKS * 1024, BLOCK_MOST = RA_POOL_BLOCKS * (4 << 20) };

struct ra_pool_block {
    struct ra_pool_block *next;
    size_t used, bytes;
    alignas(max_align_t) unsigned char data[];
};

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

/* A block for an item of so many bytes and, unless it is large, others to come. Items are taken from the first block of
 * the list: one that is full with this item goes behind it. */
static struct ra_pool_block *add_block(ra_pool *pool, size_t bytes) {
    size_t usual = max_size(BLOCK_LEAST, pool->bytes < BLOCK_MOST ? pool->bytes : BLOCK_MOST);
    size_t size = max_size(usual, bytes);
    struct ra_pool_block *block = calloc(1, sizeof *block + size);
    if (!block) return NULL;
    block->bytes = size;
    struct ra_pool_block **place = pool->blocks && bytes > usual / 2 ? &pool->blocks->next : &pool->blocks;
    block->next = *place;
    *place = block;
    return block;
}

void *ra_pool_take(ra_pool *pool, int64_t count, size_t size) {
    if (count < 0 || (size && (uint64_t)count > (SIZE_MAX / 2) / size)) return NULL;
    size_t bytes = (size_t)count * size, align = alignof(max_align_t), rounded = (bytes + align - 1) / align * align;
    struct ra_pool_block *block = pool->blocks;
    if (!block || block->bytes - block->used < max_size(rounded, 1)) block = add_block(pool, rounded);
    if (!block) return NULL;
    unsigned char *item = block->data + block->used;
    block->used += rounded;
    pool->bytes += bytes;
    return item;
}

void ra_pool_free(ra_pool *pool) {
    while (pool->blocks) {
        struct ra_pool_block *next = pool->blocks->next;
        free(pool->blocks);
        pool->blocks = next;
    }
    pool->bytes = 0;
}

void *ra_pool_append(ra_pool *pool, void *items, int64_t *count, int64_t *capacity, size_t size) {
    unsigned char *array; /* items points to a pointer of any type, so it is copied rather than dereferenced */
    memcpy(&array, items, sizeof array);
    if (*count == *capacity) {
        int64_t grown = *capacity ? 2 * *capacity : 1; /* most lists of a step have one item */
        unsigned char *moved = ra_pool_take(pool, grown, size);
        if (!moved) return NULL;
        if (*count) memcpy(moved, array, (size_t)*count * size);
        array = moved;
        memcpy(items, &array, sizeof array);
        *capacity = grown;
    }
    return array + (size_t)(*count)++ * size;
}
