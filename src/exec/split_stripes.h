/* On stripes the rows of all ranks lie among each other. They are split, so that those of all ranks that stand near
 * each other in the sequence come one after the other: a kernel goes through the queries in that order, and takes the
 * keys in it. Items of keys that are taken at the same time then have almost as many queries, and read and add to the
 * same ones within a short time, in which these stay in the cache. */
#ifndef RA_EXEC_SPLIT_STRIPES_H
#define RA_EXEC_SPLIT_STRIPES_H

#include "base/pool.h"
#include "core/tile.h"

/* Splits the groups of a list, in memory from pool, where they are of stripes; else nothing changes. */
ra_status ra_split_stripes(ra_pool *pool, ra_tile_list *list);

#endif
