/* The tiles of all ranks' keys with all ranks' queries, as one list for one call of a backward kernel (keys_stay.h). */
#ifndef RA_EXEC_STAYING_TILES_H
#define RA_EXEC_STAYING_TILES_H

#include "base/pool.h"
#include "schedule/schedule.h"

/* How many tiles the computes have with a rank's keys. */
int64_t ra_tiles_met(const ra_schedule *visits);

/* visits [ranks]: computes with a rank's keys, one for each owner of queries, of a problem in which nothing is dilated,
 * so that they have one round each. list_out: their tiles in one round, in the order of the queries in the sequence;
 * tile.part is the owner of the keys, and tile.queries that of the queries. Each pair is in it once, as in visits;
 * tiles may have more keys than there, which nobody sees. No tiles: they cannot be one list, as some ranks' keys meet
 * rows of queries that others' meet a piece of. */
ra_status ra_staying_tiles(ra_pool *pool, const ra_schedule *visits, int ranks, ra_tile_list *list_out);

#endif
