/* In-process ranks as a bare transport, for those who wrap it. */
#ifndef RA_TRANSPORT_THREAD_H
#define RA_TRANSPORT_THREAD_H

#include <ringattn/transport.h>

/* Messages whose data is NULL at both ends are an order alone: what the receiver does when it has come is behind what
 * the sender did before it posted. */
extern const ra_transport_ops ra_thread_ops;

/* Its ranks see each other's memory (comm.h). */
struct ra_memory_ops;
extern const struct ra_memory_ops ra_thread_memory_ops;

/* selves_out [ranks]: what to give ra_thread_ops as self, one per rank. */
ra_status ra_thread_create(int ranks, void **selves_out);

/* Before destroying: why. Peers that need this rank from then on fail with the reason; what is between others goes on.
 */
void ra_thread_leave(void *self, const char *reason);

#endif
