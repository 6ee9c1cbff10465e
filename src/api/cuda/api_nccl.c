/* Comms over NCCL: checked arguments around transport/nccl/, or a sentence where it was not compiled in. */
#include "base/status.h"
#include "device/cuda/device_cuda.h"
#include "kernel/backend.h"

#include <math.h>
#include <ringattn/cuda.h>

#ifdef RA_HAVE_NCCL
#include "transport/nccl/nccl_api.h"
#include "transport/nccl/nccl_comm.h"

int ra_cuda_has_nccl(void) {
    const ra_nccl_api *api;
    return ra_nccl_load(&api) == RA_OK;
}

static ra_status find_device(const ra_comm *host, int device, const void *comm_out, const ra_device **device_out) {
    const ra_backend *backend;
    if (!host || !comm_out) return ra_refuse("host or comm_out is NULL");
    RA_TRY(ra_cuda_backend(device, &backend));
    *device_out = backend->device;
    return RA_OK;
}

ra_status ra_comm_create_nccl(ra_comm *host, int device, double timeout_seconds, ra_comm **comm_out) {
    const ra_device *found = NULL;
    int usable = timeout_seconds >= 0 && !isinf(timeout_seconds);
    if (!host) return ra_refuse("host is NULL");
    ra_status status = usable ? find_device(host, device, comm_out, &found)
                              : ra_fail(RA_ERR_ARGUMENT, "timeout_seconds must be finite and not negative");
    double seconds = usable && timeout_seconds > 0 ? timeout_seconds : RA_TIMEOUT_DEFAULT;
    return ra_nccl_create(host, status, found, seconds, comm_out);
}

ra_status ra_comm_wrap_nccl(ra_comm *host, void *nccl, int device, ra_comm **comm_out) {
    const ra_device *found = NULL;
    if (!nccl) return ra_refuse("nccl is NULL");
    RA_TRY(find_device(host, device, comm_out, &found));
    return ra_nccl_wrap(host, nccl, found, comm_out);
}
#else
int ra_cuda_has_nccl(void) {
    return 0;
}

ra_status ra_comm_create_nccl(ra_comm *host, int device, double timeout_seconds, ra_comm **comm_out) {
    (void)host, (void)device, (void)timeout_seconds, (void)comm_out;
    return ra_fail(RA_ERR_UNSUPPORTED, "this libringattn_cuda was built without NCCL");
}

ra_status ra_comm_wrap_nccl(ra_comm *host, void *nccl, int device, ra_comm **comm_out) {
    (void)host, (void)nccl, (void)device, (void)comm_out;
    return ra_fail(RA_ERR_UNSUPPORTED, "this libringattn_cuda was built without NCCL");
}
#endif
