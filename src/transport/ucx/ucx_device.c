/* Groups in the memory of a device that UCX reads and writes by itself, over CUDA IPC, GPUDirect or copies of its own:
 *
 *     caller's stream     pack ── event ── compute ...                 what comes next
 *     host                        poll: the device has come to it ──►  the group leaves ──► done: all is there
 *
 * UCX knows nothing of streams, so the host starts the group when the event says that the device has come to it, and
 * the bytes are there when the group is done: nothing is left to join.
 */
#include "transport/ucx/ucx_transport.h"

#include "base/status.h"

#include <string.h>

int ra_ucx_moves_devices(const ra_ucx *ucx) {
    ucp_context_attr_t attributes = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    return ucx->api->ucp_context_query(ucx->context, &attributes) == UCS_OK &&
           (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA));
}

/* Any device that is not a GPU has memory that the processor sees. */
static ra_status attach(void *self, const ra_device *device) {
    ra_ucx *ucx = self;
    if (ucx->device) return RA_OK;
    RA_TRY(device->event_create(device, &ucx->ready));
    ucx->device = device;
    ucx->its_memory = strncmp(device->name, "cuda", 4) == 0 ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
    return RA_OK;
}

void ra_ucx_detach(ra_ucx *ucx) {
    if (ucx->ready) ucx->device->event_destroy(ucx->device, ucx->ready);
    ucx->ready = NULL;
}

static ra_status post_device(void *self, const ra_message *messages, int count, void *stream) {
    ra_ucx *ucx = self;
    RA_TRY(ra_ucx_take_group(ucx, messages, count, ucx->its_memory));
    RA_TRY(ucx->device->signal(ucx->device, ucx->ready, stream));
    ucx->held_back = count;
    return RA_OK;
}

ra_status ra_ucx_release_group(ra_ucx *ucx) {
    int come = 0, count = ucx->held_back;
    RA_TRY(ucx->device->query(ucx->device, ucx->ready, &come));
    if (!come) return RA_OK;
    ucx->held_back = 0;
    return ra_ucx_start_group(ucx, count);
}

static ra_status join(void *self, void *stream) {
    (void)self, (void)stream;
    return RA_OK;
}

const ra_transport_ops ra_ucx_device_ops = {
    RA_UCX_HOST_OPS,
    .attach = attach,
    .post_device = post_device,
    .join = join,
};
