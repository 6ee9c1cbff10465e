/* A backward pass in which keys and values stay, and so do queries: of ranks that see each other's memory (sharing.h).
 * All ranks' keys are computed with all ranks' queries, where they are, in one call of one rank, the leader:
 *
 *     leader   q, k, v, dO, lse, delta there ─┬─ all queries with all keys ─┬─ dQ, dK, dV there
 *     rank 1   likewise ──────────────────────┤                             ├─ likewise
 *     rank 2   likewise ──────────────────────┘                             └─ ...
 *                                  it waits for all                all wait for it
 *
 * It is the call that one rank alone would make: it has the same blocks of keys, which are begun and ended with once,
 * in the same order, and nothing is zeroed, sent or summed beside it. The others give the leader the places of their
 * rows and gradients (ra_lent_rows), and wait. */
#ifndef RA_EXEC_KEYS_STAY_H
#define RA_EXEC_KEYS_STAY_H

#include "exec/program.h"
#include "plan/setup.h"

enum {
    RA_LEADER = 0,
    RA_RANKS_IN_A_CALL = 24 /* at most: kernels are told of each one's rows, in parameters of limited size */
};

/* Whether that can be done as far as this rank knows; it is when all say so. planned: what the backward pass would do
 * else. schedule_out: one step, in which the leader computes; in memory from pool. */
int ra_keys_stay(ra_pool *pool, const ra_setup *setup, const ra_schedule *planned, ra_schedule *schedule_out);

/* The rest of binding a program with that schedule (program.h): its step, and the closing one, in which all wait for
 * the leader. */
ra_status ra_keys_stay_bind(ra_pool *pool, const ra_sharing *sharing, ra_program *program);

#endif
