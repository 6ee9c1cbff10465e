/* A comm as the host side of another transport's: a transport that moves device memory only (NCCL) has a comm beside
 * it, the host, for messages in host memory, for signs of life, and for the news that a rank has failed.
 *
 * These reach the host's transport directly. So errors are described by that transport and lose neither comm: the comm
 * above, whose transport calls them, says where they happened and abandons.
 */
#ifndef RA_TRANSPORT_HOST_H
#define RA_TRANSPORT_HOST_H

#include "base/internal.h"

#include <ringattn/transport.h>

/* As post and poll of ra_transport_ops, for host memory. */
RA_INTERNAL ra_status ra_host_post(ra_comm *host, const ra_message *messages, int count);
RA_INTERNAL ra_status ra_host_poll(ra_comm *host, double seconds, int *done_out, int *culprit_out);

/* As inquire. To be called only where ra_comm_create_beside has left it in the table. */
RA_INTERNAL void ra_host_inquire(ra_comm *host, int peer, ra_sign *sign_out);

/* The host is lost and its peers are told why; nothing happens when it was lost before. Returns nonzero when the memory
 * of its last group will not be touched any more, as abandon does. */
RA_INTERNAL int ra_host_abandon(ra_comm *host, const char *reason);

/* A comm over a transport that has host beside it: with host's rank and ranks, and as many ranks of the process and the
 * machine. ops->inquire is left out where host's transport knows no signs of life. */
RA_INTERNAL ra_status ra_comm_create_beside(const ra_comm *host, const ra_transport_ops *ops, void *self,
                                            ra_comm **comm_out);

#endif
