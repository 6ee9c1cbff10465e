/* Small exchanges of all ranks, through rank 0: what another rank sends and receives is constant, but for what
 * ra_comm_allgather brings it. Every wait ends, and a failure loses the comm. timeout_seconds 0: RA_TIMEOUT_DEFAULT. */
#ifndef RA_TRANSPORT_COLLECTIVE_H
#define RA_TRANSPORT_COLLECTIVE_H

#include "transport/comm.h"

/* all: everyone's bytes, in rank order. */
typedef void (*ra_judge)(const void *all, int ranks, void *answer_out);

/* Collective: everyone's `bytes` bytes go to rank 0, which lets judge make one answer of them; answer_out
 * [answer_bytes] is the same on every rank. judge is called on rank 0 only. */
ra_status ra_comm_judge(ra_comm *comm, const void *mine, size_t bytes, ra_judge judge, void *answer_out,
                        size_t answer_bytes, double timeout_seconds);

/* Collective, with the same `other` on every rank: both_out [2 * bytes] has the bytes of rank 0, then those of rank
 * `other`, which may be 0 as well. */
ra_status ra_comm_show(ra_comm *comm, int other, const void *mine, size_t bytes, void *both_out,
                       double timeout_seconds);

#endif
