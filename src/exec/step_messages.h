/* The messages of a program's steps, bound to memory and to tags: those that carry rows, and those that are an order
 * alone. */
#ifndef RA_EXEC_STEP_MESSAGES_H
#define RA_EXEC_STEP_MESSAGES_H

#include "exec/program.h"
#include "exec/slot_memory.h"

/* Those of a step's transfers, and what is sent with them. */
ra_status ra_bind_messages(ra_pool *pool, const ra_program *program, const ra_step *step, const ra_slot_memory *at,
                           ra_bound_step *bound);

/* The messages of `from` with the tags of another pass. */
ra_status ra_bind_messages_again(ra_pool *pool, const ra_bound_step *from, ra_pass_tags pass, ra_bound_step *bound);

/* A message without data, an order alone, of that step. */
ra_message ra_order_message(const ra_program *program, int step, int peer, int is_send);

/* The messages of a step in which one rank, the hub, waits for all others, or all others for it. */
ra_status ra_bind_star(ra_pool *pool, const ra_program *program, int step, int hub, int hub_waits,
                       ra_bound_step *bound);

/* The messages of a round of those in which all ranks wait for one another, in that step: of few, each for all others;
 * of many, rank 0 waits for all, then all for rank 0. Rounds in which every rank waits for the one 2^k back take more
 * calls of the device, whose driver does one at a time. rounds_of: how many there are. */
int ra_rounds_of(int ranks);
ra_status ra_bind_round(ra_pool *pool, const ra_program *program, int step, int round, ra_bound_step *bound);

#endif
