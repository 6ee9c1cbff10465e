/* Which queries of one rank meet which keys of another: the pattern (documents, causal, window, dilation) seen through
 * a layout.
 *
 * A contact is a tile before anybody has decided where the keys lie in memory: its keys are rows of their owner's
 * shard. Everything that is sent and computed is derived from contacts: which rows must travel, which tiles there are,
 * how many pairs. Two cheaper things serve where layouts are weighed and where rows that cannot be needed are ruled
 * out: sights are the keys that a rank's queries see, whoever has them; hints are rows of one rank among which are all
 * that many other ranks together see.
 */
#ifndef RA_CORE_PATTERN_H
#define RA_CORE_PATTERN_H

#include "core/problem.h"
#include "core/shard.h"
#include "core/tile.h"

typedef struct ra_contact {
    int branch;     /* contacts of one branch share no (query, head) but with those of the same q_rows */
    ra_span q_rows; /* rows of the query shard */
    ra_span k_rows; /* rows of the owner's key shard: each is seen by at least one query */
    ra_span heads;  /* query heads */
    int64_t lo, hi; /* the a-th query sees the b-th key when lo <= b - a <= hi */
    ra_positions positions;
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

/* Query heads [from, to). */
typedef struct ra_head_range {
    int64_t from, to;
} ra_head_range;

/* Only the contacts that have one of those heads; each comes with all its heads. */
ra_status ra_pattern_contacts_of(const ra_cut_problem *cut, int q_rank, int k_rank, ra_head_range heads,
                                 ra_contact_emit emit, void *user);

/* Some keys that some queries see, every one of them. */
typedef struct ra_sight {
    ra_span keys;  /* ra_pattern_sights: positions; ra_pattern_hints: rows of the owner's key shard */
    ra_span heads; /* query heads */
    int64_t pairs; /* ra_pattern_sights: of a head's queries with these keys */
} ra_sight;
typedef ra_status (*ra_sight_emit)(const ra_sight *sight, void *user);

/* Calls emit for all that q_rank's queries see in selections that have one of those heads, whoever has the keys. The
 * cost is that of one contact with every document and segment the rank has queries in, not one with every rank. */
ra_status ra_pattern_sights(const ra_cut_problem *cut, int q_rank, ra_head_range heads, ra_sight_emit emit, void *user);

/* Calls emit with rows of k_rank among which are all that queries of the ranks [from, to) see: those rows and no others
 * where the ranks' positions are runs, more on stripes. The cost is that of a contact of two ranks. */
ra_status ra_pattern_hints(const ra_cut_problem *cut, int from, int to, int k_rank, ra_head_range heads,
                           ra_sight_emit emit, void *user);

/* Visible pairs, over batch and heads, of q_rank's queries with k_rank's keys. */
int64_t ra_pattern_pairs(const ra_cut_problem *cut, int q_rank, int k_rank);

#endif
