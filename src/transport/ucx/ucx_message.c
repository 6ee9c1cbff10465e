#include "transport/ucx/ucx_transport.h"

#include "base/status.h"

#include <string.h>

static const uint64_t SENDER = (uint64_t)0xffff << 16;

static ucp_tag_t make_tag(const ra_ucx *ucx, int sender, int tag) {
    uint32_t key;
    memcpy(&key, ucx->key, sizeof key);
    return (uint64_t)key << 32 | (uint64_t)sender << 16 | (uint64_t)tag;
}

/* UCX would look up whose memory it is, and need not. */
static ucp_request_param_t params_for(ucs_memory_type_t memory) {
    return (ucp_request_param_t){.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE, .memory_type = memory};
}

static ra_status send_over(ra_ucx *ucx, ucp_ep_h endpoint, int peer, int tag, const void *data, size_t bytes,
                           ucs_memory_type_t memory, void **request_out) {
    ucp_request_param_t params = params_for(memory);
    *request_out = NULL;
    ucs_status_ptr_t request = UCS_STATUS_PTR(UCS_ERR_NOT_CONNECTED);
    if (endpoint) request = ucx->api->ucp_tag_send_nbx(endpoint, data, bytes, make_tag(ucx, ucx->rank, tag), &params);
    if (UCS_PTR_IS_ERR(request)) {
        return ra_fail(RA_ERR_PEER, "rank %d cannot be reached (UCX: %s)", peer,
                       ucx->api->ucs_status_string(UCS_PTR_RAW_STATUS(request)));
    }
    *request_out = request;
    return RA_OK;
}

ra_status ra_ucx_send_from(ra_ucx *ucx, int peer, int tag, const void *data, size_t bytes, ucs_memory_type_t memory,
                           void **request_out) {
    const ra_ucx_peer *to = &ucx->peers[peer];
    return send_over(ucx, to->bulk ? to->bulk : to->endpoint, peer, tag, data, bytes, memory, request_out);
}

/* peer -1: from anyone. A message that is there already still makes a request, since only that tells its size. */
ra_status ra_ucx_receive_to(ra_ucx *ucx, int peer, int tag, void *data, size_t bytes, ucs_memory_type_t memory,
                            void **request_out) {
    ucp_request_param_t params = params_for(memory);
    params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    ucp_tag_t want = make_tag(ucx, peer < 0 ? 0 : peer, tag);
    ucp_tag_t mask = peer < 0 ? ~SENDER : ~(ucp_tag_t)0;
    ucs_status_ptr_t request = ucx->api->ucp_tag_recv_nbx(ucx->worker, data, bytes, want, mask, &params);
    *request_out = NULL;
    if (UCS_PTR_IS_ERR(request)) return ra_ucx_check(ucx, UCS_PTR_RAW_STATUS(request), "ucp_tag_recv_nbx");
    *request_out = request;
    return RA_OK;
}

ra_status ra_ucx_send(ra_ucx *ucx, int peer, int tag, const void *data, size_t bytes, void **request_out) {
    return send_over(ucx, ucx->peers[peer].endpoint, peer, tag, data, bytes, UCS_MEMORY_TYPE_HOST, request_out);
}

ra_status ra_ucx_receive(ra_ucx *ucx, int peer, int tag, void *data, size_t bytes, void **request_out) {
    return ra_ucx_receive_to(ucx, peer, tag, data, bytes, UCS_MEMORY_TYPE_HOST, request_out);
}

ucs_status_t ra_ucx_test(ra_ucx *ucx, void **request, size_t *came_out, int *from_out) {
    ucp_tag_recv_info_t info = {0};
    if (!*request) return UCS_OK;
    ucs_status_t status =
        came_out ? ucx->api->ucp_tag_recv_request_test(*request, &info) : ucx->api->ucp_request_check_status(*request);
    if (status == UCS_INPROGRESS) return status;
    if (came_out) *came_out = info.length;
    if (from_out) *from_out = (int)((info.sender_tag & SENDER) >> 16);
    ucx->api->ucp_request_free(*request);
    *request = NULL;
    return status;
}
