/* A set of rows of one shard, as disjoint runs in increasing order, and the algebra that the schedules need. */
#ifndef RA_CORE_ROWSET_H
#define RA_CORE_ROWSET_H

#include "base/pool.h"
#include "core/pattern.h"

typedef struct ra_run {
    int64_t from, to; /* rows [from, to), from < to */
} ra_run;

typedef struct ra_rowset {
    ra_run *runs;
    int64_t count, capacity;
} ra_rowset;

/* All of them take memory from pool and fail only for want of it. */

/* The rows of k_rank that q_rank's queries see. */
ra_status ra_rowset_needed(ra_pool *pool, const ra_cut_problem *cut, int q_rank, int k_rank, ra_rowset *set_out);

ra_status ra_rowset_union(ra_pool *pool, const ra_rowset *a, const ra_rowset *b, ra_rowset *set_out);
ra_status ra_rowset_minus(ra_pool *pool, const ra_rowset *a, const ra_rowset *b, ra_rowset *set_out);

int64_t ra_rowset_rows(const ra_rowset *set);

#endif
