/* What "auto" means. Pure functions of the problem, so that every rank chooses alike.
 *
 * A candidate costs the time of its slowest rank, by a model that knows two things, arithmetic and bytes:
 *
 *     time of a rank = pairs * 2 (dim + dim_v) + RA_FLOPS_PER_BYTE * bytes of keys and values it is sent
 *
 * in units of a multiplication or addition, in the forward pass. (The backward pass has two and a half times the
 * arithmetic and two to three times the bytes, so it would choose alike.) The two are added, as if nothing were sent
 * while something is computed: the truth lies between their sum and the larger of them, and a sum never takes more
 * bytes for nothing.
 */
#ifndef RA_PLAN_CHOOSE_H
#define RA_PLAN_CHOOSE_H

#include "core/load.h"

/* How much a rank computes in the time in which it is sent a byte. Between ranks of one process it is about 10, between
 * CPUs on a good network or GPUs beside each other 200 to 1,500, between GPUs on a network 10,000. */
#define RA_FLOPS_PER_BYTE 256

/* A later layout is taken only where it saves more than this fraction of an earlier one's time. */
#define RA_LAYOUT_MARGIN 0.04

/* The time of a rank with that load. */
double ra_cost_of(const ra_problem *normal, const ra_load *load);

/* The time of the slowest rank when each is sent what it needs once, which is what pairwise does; no other strategy
 * sends less. Stops at the first rank that takes `limit` or more and gives its time. Where the rows of several dilated
 * branches are strewn, finding a load takes long, and once the sets of rows have taken RA_WEIGHING_BYTES, the ranks
 * looked at, which are spread over all, stand for the rest. */
#define RA_WEIGHING_BYTES (16 << 20)
ra_status ra_cost_of_layout(const ra_cut_problem *cut, double limit, double *cost_out);

/* The first of contiguous, zigzag, documents (where there are several) and striped that none of the others beats by
 * RA_LAYOUT_MARGIN. Fails only for want of memory. */
ra_status ra_choose_layout(const ra_problem *normal, int ranks, ra_layout *layout_out);

/* passq where queries are so few that sending all of them to all ranks, and their states home, is less than sending the
 * keys that are needed. Else the ring where it sends no more than pairwise, since it uses neighbours only; else
 * pairwise: a row that only distant ranks need would travel through all those between. In a dilated problem
 * RA_OWNERS_COMPARED ranks' rows stand for all. On stripes every rank meets every other in many documents and segments:
 * where these are more than RA_STRIPES_COMPARED, counted for each two ranks, comparing would take longer than it is
 * worth, and it is pairwise. one_device: ranks see each other's memory, and what the ring would send is used where it
 * is and not copied (schedule.h): then the ring instead of pairwise, but for dilated problems. Fails only for want of
 * memory. */
#define RA_OWNERS_COMPARED 8
#define RA_STRIPES_COMPARED (1 << 20)
ra_status ra_choose_strategy(const ra_cut_problem *cut, int one_device, ra_strategy *strategy_out);

#endif
