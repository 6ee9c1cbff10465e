/* A set of rows of one shard, as spans in increasing order that do not reach into each other, and the algebra that the
 * schedules need. Dense sets are a few runs; the union of two dilations with odd rates may be many short spans. */
#ifndef RA_CORE_ROWSET_H
#define RA_CORE_ROWSET_H

#include "base/pool.h"
#include "core/pattern.h"

typedef struct ra_rowset {
    ra_span *spans;
    int64_t count, capacity;
} ra_rowset;

/* Key/value heads whose query heads all keep the same tokens need the same rows: a problem has one set of rows for all
 * of them, or, when dilated, one for each. */
int64_t ra_head_sets(const ra_problem *normal);

/* The key/value heads of set i. */
ra_span ra_head_set(const ra_problem *normal, int64_t i);

/* The query heads that read them. */
ra_head_range ra_head_set_queries(const ra_problem *normal, int64_t i);

/* All of the following take memory from pool and fail only for want of it. */

/* The rows of k_rank that q_rank's queries see in head set i. */
ra_status ra_rowset_needed(ra_pool *pool, const ra_cut_problem *cut, int q_rank, int k_rank, int64_t i,
                           ra_rowset *set_out);

/* Rows of k_rank among which are all that the ranks [from, to) see: ra_pattern_hints. */
ra_status ra_rowset_hinted(ra_pool *pool, const ra_cut_problem *cut, int from, int to, int k_rank, int64_t i,
                           ra_rowset *set_out);

/* The positions of the keys that q_rank's queries see, whoever has them, and the pairs, over the query heads of the
 * set. */
ra_status ra_rowset_seen(ra_pool *pool, const ra_cut_problem *cut, int q_rank, int64_t i, ra_rowset *set_out,
                         int64_t *pairs_out);

ra_status ra_rowset_union(ra_pool *pool, const ra_rowset *a, const ra_rowset *b, ra_rowset *set_out);
ra_status ra_rowset_minus(ra_pool *pool, const ra_rowset *a, const ra_rowset *b, ra_rowset *set_out);

/* Whether every row of a is in b. */
int ra_rowset_within(const ra_rowset *a, const ra_rowset *b);

int64_t ra_rowset_rows(const ra_rowset *set);

#endif
