/* The tiles of a rank's keys with the queries of all ranks, as one list for one call of a backward kernel
 * (keys_stay.h).
 */
#ifndef RA_EXEC_STAYING_TILES_H
#define RA_EXEC_STAYING_TILES_H

#include "base/pool.h"
#include "schedule/schedule.h"

/* visits: computes with the rank's own keys, one for each owner of queries, of a problem in which nothing is dilated,
 * so that they have one round each. list_out: their tiles in one round, in the order of the sequence; tile.queries is
 * the owner. Each pair is in it once, as in visits; tiles may have more keys than there, which nobody sees. */
ra_status ra_staying_tiles(ra_pool *pool, const ra_schedule *visits, ra_tile_list *list_out);

#endif
