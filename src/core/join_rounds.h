/* Rounds of a tile list that become one.
 *
 * Rounds follow one another since they share query rows: those of a dilated problem's branches do. A device then starts
 * a launch for each, whose end leaves some of it idle, and the state of rows, or their gradient, goes to memory and
 * back in between. Where every query of the tiles sees every key of them, rows may be dealt to groups in any way, so
 * the rows that are in the same groups of all rounds (core/cells.h) become a group with the tiles of all of them, and
 * there is one round:
 *
 *     2 rounds   rows 0 1 2 3 4 5 6 7: keys A      then  rows 0 4: keys B
 *     1 round    rows 0 4: keys A, B     rows 1 5: keys A     rows 2 6: keys A     rows 3 7: keys A
 *
 * Keys that such a group meets in several rounds are a tile of their own, whose pairs count as many times (extra,
 * core/tile.h), so that they are multiplied once; in the forward pass only where that costs less. Lists that would
 * become too long, or take too much work, are joined in part or not at all (core/joinable.h).
 *
 * Under a causal mask joining does not pay: a group's rows would stand far apart, and see nothing of most blocks of
 * keys.
 */
#ifndef RA_CORE_JOIN_ROUNDS_H
#define RA_CORE_JOIN_ROUNDS_H

#include "base/internal.h"
#include "base/pool.h"
#include "core/tile.h"

/* What a kernel's work costs, in rows that a block of others goes through: forward blocks are of queries and go through
 * keys, backward the other way round. */
typedef struct ra_work_costs {
    int64_t rows; /* in a block; a cell's last one may be less full, and costs the same */
    int64_t step; /* of those that it goes through, in a step; likewise, of a tile */
    double tile;  /* for a tile's beginning */
    double block; /* for a block's beginning and end */
    double round; /* for a round's */
} ra_work_costs;

/* The list with as few rounds as pay; the same list where none are joined. Only rounds of one state are. */
RA_INTERNAL ra_status ra_join_rounds(ra_pool *pool, const ra_tile_list *list, const ra_work_costs *costs,
                                     ra_tile_list *list_out);

/* The same for the backward pass, where keys are dealt as well: any two tiles of a head that are joined have the same
 * keys or none in common, and the same queries or none, but not both the same. Each head must have keys of its own. */
RA_INTERNAL ra_status ra_join_rounds_by_keys(ra_pool *pool, const ra_tile_list *list, const ra_work_costs *costs,
                                             ra_tile_list *list_out);

#endif
