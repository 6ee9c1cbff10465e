/* Rounds of a tile list that become one.
 *
 * Rounds follow one another since they share query rows: those of a dilated problem's branches do. A device then starts
 * a launch for each, whose end leaves some of it idle, and the state of rows goes to memory and back in between. Where
 * every query of the tiles sees every key of them, rows may be dealt to groups in any way, so the rows that are in the
 * same groups of all rounds (core/cells.h) become a group with the tiles of all of them, and there is one round:
 *
 *     2 rounds   rows 0 1 2 3 4 5 6 7: keys A      then  rows 0 4: keys B
 *     1 round    rows 0 4: keys A, B     rows 1 5: keys A     rows 2 6: keys A     rows 3 7: keys A
 *
 * Under a causal mask that does not pay: a group's rows would stand far apart, and see nothing of most blocks of keys.
 */
#ifndef RA_CORE_JOIN_ROUNDS_H
#define RA_CORE_JOIN_ROUNDS_H

#include "base/internal.h"
#include "base/pool.h"
#include "core/tile.h"

/* What a kernel's work costs, in keys that a block of queries goes through. */
typedef struct ra_work_costs {
    int64_t rows; /* of queries in a block; a group's last one may be less full, and costs the same */
    double block; /* for a block's beginning and end */
    double round; /* for a round's */
} ra_work_costs;

/* The list with as few rounds as pay; the same list where none are joined. Only rounds of one state are, and a row's
 * keys of rounds that are joined stay in the order of these. Tiles that are joined have no one stride for queries and
 * keys: their positions say where the first of each is, and nothing about the others, so such a list is not for kernels
 * whose scores depend on positions. */
RA_INTERNAL ra_status ra_join_rounds(ra_pool *pool, const ra_tile_list *list, const ra_work_costs *costs,
                                     ra_tile_list *list_out);

#endif
