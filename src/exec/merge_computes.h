/* Computes of one step that have the same queries are one call of the kernel: it reads and writes their state once. */
#ifndef RA_EXEC_MERGE_COMPUTES_H
#define RA_EXEC_MERGE_COMPUTES_H

#include "exec/program.h"

/* Merges each run of computes with the rank's own queries and received keys: all of a run, or none where their tiles
 * cannot be one list. For the forward pass, before the kernel has prepared any of them. What is merged is in the pool.
 */
ra_status ra_merge_computes(ra_pool *pool, ra_bound_step *bound);

#endif
