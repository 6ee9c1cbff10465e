/* Memory that is freed all at once: what a plan is made of (steps, pieces, tiles) lives as long as the plan and is
 * never freed piece by piece. */
#ifndef RA_BASE_POOL_H
#define RA_BASE_POOL_H

#include "base/internal.h"

#include <stddef.h>
#include <stdint.h>

typedef struct ra_pool {
    struct ra_pool_block *blocks;
    size_t bytes; /* taken so far */
} ra_pool;

/* Zeroed memory for count items of `size` bytes; NULL when there is none. count 0 gives a valid pointer. */
void *ra_pool_take(ra_pool *pool, int64_t count, size_t size);

RA_INTERNAL void ra_pool_free(ra_pool *pool);

/* Memory for one more item behind *count of them, where items is the address of the array's pointer, which moves when
 * the capacity is reached. Returns the item, zeroed, or NULL when there is no memory. The old array stays in the pool:
 * the waste is at most the size of the final one. */
void *ra_pool_append(ra_pool *pool, void *items, int64_t *count, int64_t *capacity, size_t size);

#endif
