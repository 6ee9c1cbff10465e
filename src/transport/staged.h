/* Groups of device memory over a transport that moves host memory only, through pinned buffers:
 *
 *     caller's stream     pack ─┐          compute ...                                ┌─ what comes next
 *     staging's stream          └─► device → buffer ─┐             ┌─► buffer → device ─┘
 *     host                                           └─ post, poll ─┘
 *
 * Works over any transport. The host waits for the copy to the buffer before it can post, within the step's deadline.
 */
#ifndef RA_TRANSPORT_STAGED_H
#define RA_TRANSPORT_STAGED_H

#include "device/device.h"

typedef struct ra_staging ra_staging;

/* Makes *staging, or makes it larger. ops and self are the transport, and stay. */
ra_status ra_staging_attach(const ra_transport_ops *ops, void *self, const ra_device *device, size_t send_bytes,
                            size_t receive_bytes, ra_staging **staging);

/* As a transport's post_device, poll and join. A poll that has failed fails again, and does nothing. */
ra_status ra_staging_post(ra_staging *staging, const ra_message *messages, int count, void *stream);
ra_status ra_staging_poll(ra_staging *staging, double seconds, int *done_out, int *culprit_out);
ra_status ra_staging_join(ra_staging *staging, void *stream);

/* Whether the group in flight still waits for the device to copy its sends to the buffer. */
int ra_staging_awaits_device(const ra_staging *staging);

/* The transport was abandoned. buffers_held: whether it may still use the buffers, which then are never freed. Returns
 * nonzero when the messages' own memory may still be used. */
int ra_staging_abandon(ra_staging *staging, int buffers_held);

/* Before the transport is destroyed. NULL is allowed. */
void ra_staging_destroy(ra_staging *staging);

#endif
