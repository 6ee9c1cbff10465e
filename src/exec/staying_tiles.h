/* The tiles of all ranks' keys with all ranks' queries, as one list for one call of a kernel (keys_stay.h). */
#ifndef RA_EXEC_STAYING_TILES_H
#define RA_EXEC_STAYING_TILES_H

#include "base/pool.h"
#include "schedule/schedule.h"

/* How many tiles the computes have with a rank's keys. */
int64_t ra_tiles_met(const ra_schedule *visits);

/* The list of each pass: the tiles in one round, in the order of the queries in the sequence; tile.part is the owner of
 * the keys, and tile.queries that of the queries. Each pair is in it once; tiles may have more keys than their queries
 * see. */
typedef struct ra_staying_lists {
    ra_tile_list of[2]; /* by pass; the backward one is split, where it is of stripes (split_stripes.h) */
    int64_t pairs;      /* of each that has tiles */
} ra_staying_lists;

/* Of a problem in which nothing is dilated, so that the computes of a rank have one round each. No tiles: they are more
 * than `most`, or cannot be one list, as some ranks' keys meet rows of queries that others' meet a piece of, or,
 * backward, some queries a piece of the keys that others meet. backward: whether that pass's are wanted too. */
ra_status ra_staying_tiles(ra_pool *pool, const ra_cut_problem *cut, int64_t most, int backward,
                           ra_staying_lists *lists_out);

#endif
