#include "transport/ucx/ucx_transport.h"

#include "base/status.h"

#include <unistd.h>

/* UCX calls this inside ucp_worker_progress, on the thread that polls. */
static void on_failure(void *user, ucp_ep_h endpoint, ucs_status_t status) {
    ra_ucx_peer *peer = user;
    (void)endpoint;
    if (!peer->failed) peer->failed = status;
}

ra_status ra_ucx_connect(ra_ucx *ucx, int peer, const void *address) {
    ra_ucx_peer *p = &ucx->peers[peer];
    ucp_ep_params_t params = {
        .field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = p},
    };
    ucs_status_t status = ucx->api->ucp_ep_create(ucx->worker, &params, &p->endpoint);
    if (status == UCS_OK) return RA_OK;
    p->endpoint = NULL;
    return ra_fail(RA_ERR_TRANSPORT,
                   "UCX finds no way from rank %d to rank %d (%s): see which transports and networks UCX_TLS and "
                   "UCX_NET_DEVICES leave it on both",
                   ucx->rank, peer, ucx->api->ucs_status_string(status));
}

static int is_missed(const ra_ucx_peer *p, int awaited) {
    return awaited ? p->failed || p->ended || p->left : (p->failed || p->ended) && !p->left;
}

/* A rank that gives up, or leaves, tells everybody and then ends. What it told is there before its end is: so it is
 * heard first. */
ra_status ra_ucx_find_dead(ra_ucx *ucx, void *const *awaited, int *peer_out) {
    ra_ucx_look(ucx);
    for (int peer = 0; peer < ucx->ranks; peer++) {
        const ra_ucx_peer *p = &ucx->peers[peer];
        if ((awaited && !awaited[peer]) || !is_missed(p, awaited != NULL)) continue;
        ra_ucx_progress(ucx);
        RA_TRY(ra_ucx_hear(ucx));
        if (!is_missed(p, awaited != NULL)) continue;
        *peer_out = peer;
        if (p->left) return ra_fail(RA_ERR_PEER, "rank %d has left: its communicator was destroyed", peer);
        if (p->ended) return ra_fail(RA_ERR_PEER, "rank %d is gone: its process has ended", peer);
        return ra_fail(RA_ERR_PEER, "rank %d is gone (UCX: %s)", peer, ucx->api->ucs_status_string(p->failed));
    }
    return RA_OK;
}

void *ra_ucx_start_closing(ra_ucx *ucx, ucp_ep_h endpoint, int force) {
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0};
    ucs_status_ptr_t request = ucx->api->ucp_ep_close_nbx(endpoint, &params);
    return UCS_PTR_IS_PTR(request) ? request : NULL;
}

/* One whose peer failed or left can only be taken down at once; what went over `bulk` has come, or is given up. */
static void close_endpoints(ra_ucx *ucx, ra_ucx_peer *p, int force) {
    if (p->endpoint) p->closing[0] = ra_ucx_start_closing(ucx, p->endpoint, force || p->failed || p->ended || p->left);
    if (p->bulk) p->closing[1] = ra_ucx_start_closing(ucx, p->bulk, 1);
    p->endpoint = p->bulk = NULL;
}

static int all_closed(ra_ucx *ucx) {
    int closed = ra_ucx_bulk_flushing(ucx) < 0;
    for (int peer = 0; peer < ucx->ranks; peer++)
        for (int i = 0; i < 2; i++)
            if (ra_ucx_test(ucx, &ucx->peers[peer].closing[i], NULL, NULL) == UCS_INPROGRESS) closed = 0;
    return closed;
}

int ra_ucx_disconnect(ra_ucx *ucx, int force, double seconds) {
    int progressed, closed;
    for (int peer = 0; peer < ucx->ranks; peer++) {
        ra_ucx_peer *p = &ucx->peers[peer];
        if (p->process >= 0) close(p->process);
        p->process = -1;
        close_endpoints(ucx, p, force);
    }
    ra_ucx_bulk_drop_accepted(ucx);
    ra_ucx_wait wait = ra_ucx_wait_start(seconds);
    do {
        progressed = ra_ucx_progress(ucx);
        closed = all_closed(ucx);
    } while (!closed && ra_ucx_wait_pause(&wait, progressed));
    return closed;
}
