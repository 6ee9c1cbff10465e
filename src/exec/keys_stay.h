/* A backward pass in which keys and values stay, and queries are used where they are: by ranks that see each other's
 * memory (sharing.h). A rank computes with its own keys and the queries of all ranks in one call. Its dK and dV are
 * whole then, and nothing of them is sent or summed. To dQ of a rank's rows all ranks add, where it is, one after the
 * other:
 *
 *     rank 0   q, dO, lse, delta there, dQ = 0 ─┬─ all queries with its keys ─┐
 *     rank 1   likewise ────────────────────────┤                             └─ all with its keys ─┐
 *     rank 2   likewise ────────────────────────┘                                                   └─ ...
 *                                          all wait for all                                     and at the end again
 *
 * A call has as many blocks of keys as one rank alone would have for them; keys that travel are begun and ended with at
 * every rank. So this is done where many would travel, where a call keeps the device busy by itself
 * (ra_kernel.busy_keys), and where it adds to each row of dK and dV once. */
#ifndef RA_EXEC_KEYS_STAY_H
#define RA_EXEC_KEYS_STAY_H

#include "exec/program.h"
#include "plan/setup.h"

/* Whether that can be done as far as this rank is concerned; it is when all say so. planned: what the backward pass
 * would do else. schedule_out: steps for the rounds in which all wait for all, then one for each rank, in which it
 * computes; in memory from pool. */
int ra_keys_stay(ra_pool *pool, const ra_setup *setup, const ra_schedule *planned, ra_schedule *schedule_out);

/* Keys that a rank is sent where they travel, over their heads. Those of all ranks must be half as many as there are:
 * else there is less to gain than calls that follow one another cost. */
int64_t ra_keys_received(const ra_schedule *planned);

/* Binds the steps of a program with that schedule. */
ra_status ra_keys_stay_bind(ra_pool *pool, ra_program *program);

#endif
