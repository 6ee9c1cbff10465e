/* Whether schedules compute what they should: every visible pair of the problem once, at its own positions. */
#ifndef RA_TESTS_COVERAGE_H
#define RA_TESTS_COVERAGE_H

#include "schedule/schedule.h"

/* The schedules of all ranks; the caller frees the pool. */
void schedules_make(ra_pool *pool, const ra_cut_problem *cut, ra_strategy strategy, ra_pass pass, ra_schedule *out);

/* test_pattern shows that contacts are right; the tiles of all ranks together must cover them exactly once. */
void coverage_check_pairs(const ra_cut_problem *cut, const ra_schedule *schedules);

/* Groups partition the tiles, rounds the groups; inside a round no two groups share a query row of a head. */
void coverage_check_groups(const ra_tile_list *list);

#endif
