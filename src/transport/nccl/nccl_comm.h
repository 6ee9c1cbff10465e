/* Ranks over NCCL for device memory, beside a host comm for the rest.
 *
 *     caller's stream      pack ── ready ── compute ...        ┌── what comes next
 *     transfer stream               └──► send, receive ── arrived
 *                                         one NCCL group
 *
 * The communicator is non-blocking: the host asks NCCL, and is never inside it when a peer dies. A group is done, for
 * the host, when NCCL has put it on the transfer stream. A peer that dies after that leaves the stream waiting:
 * ra_plan_wait meets its deadline or NCCL's own error and abandons, which aborts the communicator and so lets the
 * stream go on.
 */
#ifndef RA_TRANSPORT_NCCL_NCCL_COMM_H
#define RA_TRANSPORT_NCCL_NCCL_COMM_H

#include "device/device.h"

/* A communicator over the ranks of host, made by all of them. mine: an error of this rank's, described by
 * ra_last_error(), that keeps it from taking part, and with it all others; RA_OK: none. device and comm_out count only
 * then. */
ra_status ra_nccl_create(ra_comm *host, ra_status mine, const ra_device *device, double timeout_seconds,
                         ra_comm **comm_out);

/* One over an ncclComm_t that is there. */
ra_status ra_nccl_wrap(ra_comm *host, void *nccl, const ra_device *device, ra_comm **comm_out);

#endif
