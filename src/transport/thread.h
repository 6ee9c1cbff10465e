/* In-process ranks as a bare transport, for those who wrap it. */
#ifndef RA_TRANSPORT_THREAD_H
#define RA_TRANSPORT_THREAD_H

#include <ringattn/transport.h>

extern const ra_transport_ops ra_thread_ops;

/* selves_out [ranks]: what to give ra_thread_ops as self, one per rank. */
ra_status ra_thread_create(int ranks, void **selves_out);

/* Before destroying: why. Peers that need this rank from then on fail with the reason; what is between others goes on.
 */
void ra_thread_leave(void *self, const char *reason);

#endif
