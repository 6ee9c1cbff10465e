/* ra_comm_create_ucx of a library that was built without UCX's headers: the same functions, which say so. */
#include "base/status.h"

#include <ringattn/ucx.h>

static ra_status refuse(void) {
    return ra_fail(RA_ERR_UNSUPPORTED, "this libringattn was built without UCX: build it where ucp/api/ucp.h is found "
                                       "(Debian: apt-get install libucx-dev)");
}

ra_status ra_comm_create_ucx(int rank, int ranks, ra_allgather allgather, void *user, const ra_ucx_options *options,
                             ra_comm **comm_out) {
    (void)rank, (void)ranks, (void)allgather, (void)user, (void)options, (void)comm_out;
    return refuse();
}

ra_status ra_ucx_version(const char **version_out) {
    (void)version_out;
    return refuse();
}
