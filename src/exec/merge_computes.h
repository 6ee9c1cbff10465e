/* Computes of a forward program that become one call of the kernel. */
#ifndef RA_EXEC_MERGE_COMPUTES_H
#define RA_EXEC_MERGE_COMPUTES_H

#include "exec/program.h"

/* Computes of a step that have the rank's own queries become one, where their tiles can be one list: keys that are
 * there at the same time are computed with at once. */
ra_status ra_merge_computes(ra_pool *pool, ra_bound_step *bound);

/* The same for all computes of a pass in which keys and values are used where they are, and stay (schedule.h): nothing
 * is copied that a compute could hide, so all of them wait for the last, in whose step they become one. The order in
 * which tiles are gone through stays that of the steps. Where own keys cannot be among the parts of others, since these
 * have fixed places, the compute with them stays by itself. */
ra_status ra_gather_computes(ra_pool *pool, ra_program *program);

#endif
