#include "base/pool.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

struct ra_pool_block {
    struct ra_pool_block *next;
    alignas(max_align_t) unsigned char data[];
};

void *ra_pool_take(ra_pool *pool, int64_t count, size_t size) {
    if (count < 0 || (size && (uint64_t)count > (SIZE_MAX / 2) / size)) return NULL;
    size_t bytes = (size_t)count * size;
    struct ra_pool_block *block = calloc(1, sizeof *block + bytes);
    if (!block) return NULL;
    block->next = pool->blocks;
    pool->blocks = block;
    pool->bytes += bytes;
    return block->data;
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
        int64_t grown = *capacity ? 2 * *capacity : 4;
        unsigned char *moved = ra_pool_take(pool, grown, size);
        if (!moved) return NULL;
        if (*count) memcpy(moved, array, (size_t)*count * size);
        array = moved;
        memcpy(items, &array, sizeof array);
        *capacity = grown;
    }
    return array + (size_t)(*count)++ * size;
}
