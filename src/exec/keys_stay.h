/* A pass in which keys and values stay, and so do queries: of ranks that see each other's memory (sharing.h). All
 * ranks' keys are computed with all ranks' queries, where they are, in one call of one rank, the leader:
 *
 *     leader   q, k, v there, backward dO, lse, delta ─┬─ all queries with all keys ─┬─ O, lse, or dQ, dK, dV there
 *     rank 1   likewise ───────────────────────────────┤                             ├─ likewise
 *     rank 2   likewise ───────────────────────────────┘                             └─ ...
 *                                           it waits for all                all wait for it
 *
 * It is the call that one rank alone would make: forward it takes the blocks of all ranks' queries one after the other,
 * those with most work first; backward it has the same blocks of keys, which are begun and ended with once, in the same
 * order. Nothing is zeroed, sent or summed beside it. The others give the leader the places of their rows and results
 * (ra_lent_rows), and wait. */
#ifndef RA_EXEC_KEYS_STAY_H
#define RA_EXEC_KEYS_STAY_H

#include "exec/program.h"

enum {
    RA_LEADER = 0,
    RA_RANKS_IN_A_CALL = 24 /* at most: kernels are told of each one's rows, in parameters of limited size */
};

/* What a rank can do where keys stay, by pass. */
typedef struct ra_staying {
    int can[2];            /* as far as this rank knows; it is done when all say so */
    ra_schedule passes[2]; /* where it can: one step, in which the leader computes */
} ra_staying;

/* Instead of what has been planned; in memory from pool. */
void ra_keys_stay(ra_pool *pool, const ra_prediction *planned, ra_staying *staying_out);

/* The rest of binding a program with such a schedule (program.h): its step, and the closing one, in which all wait for
 * the leader. */
ra_status ra_keys_stay_bind(ra_pool *pool, const ra_sharing *sharing, ra_program *program);

#endif
