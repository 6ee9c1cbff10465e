/* How far along the ring a rank's rows are needed: the last hop with a rank whose queries see them. For problems
 * without dilation, by arithmetic: ranks that see a key are those that have a query between two positions, and of these
 * the farthest is known from the layout. So the cost is that of the documents a rank has keys in, however many ranks
 * there are.
 */
#ifndef RA_CORE_REACH_H
#define RA_CORE_REACH_H

#include "core/pattern.h"

typedef struct ra_reach {
    ra_span rows; /* of the owner's key shard: a run */
    int hop;      /* from 1 on: the rank that far along sees them, and none farther */
} ra_reach;

/* Calls emit in rising order of rows for all of owner's that other ranks see; stops at the first status that is not
 * RA_OK and returns it. The problem has no branches. */
typedef ra_status (*ra_reach_emit)(const ra_reach *reach, void *user);
ra_status ra_reach_of(const ra_cut_problem *cut, int owner, ra_reach_emit emit, void *user);

#endif
