/* Which queries of one rank meet which keys of another: the pattern (documents, causal, window, dilation) seen through a
 * layout.
 *
 * A contact is a tile before anybody has decided where the keys lie in memory: its keys are rows of their owner's shard.
 * Everything else is derived from contacts: which rows must travel, which tiles are computed, how many pairs there are.
 */
#ifndef RA_CORE_PATTERN_H
#define RA_CORE_PATTERN_H

#include "core/problem.h"
#include "core/shard.h"

typedef struct ra_contact {
    int branch;     /* contacts of one branch share no (query, head) but with those of the same q_rows */
    ra_span q_rows; /* rows of the query shard */
    ra_span k_rows; /* rows of the owner's key shard: each is seen by at least one query */
    ra_span heads;  /* query heads */
    int64_t lo, hi; /* the a-th query sees the b-th key when lo <= b - a <= hi */
} ra_contact;

/* One problem cut across ranks. */
typedef struct ra_cut_problem {
    const ra_problem *problem; /* normalised */
    ra_layout layout;          /* not AUTO */
    int ranks;
} ra_cut_problem;

/* Calls emit for every contact between the queries of q_rank and the keys of k_rank, branch by branch, those with the
 * same q_rows and heads one after another; stops at the first status that is not RA_OK and returns it. */
typedef ra_status (*ra_contact_emit)(const ra_contact *contact, void *user);
ra_status ra_pattern_contacts(const ra_cut_problem *cut, int q_rank, int k_rank, ra_contact_emit emit, void *user);

/* Visible pairs, over batch and heads, of q_rank's queries with k_rank's keys. */
int64_t ra_pattern_pairs(const ra_cut_problem *cut, int q_rank, int k_rank);

#endif
