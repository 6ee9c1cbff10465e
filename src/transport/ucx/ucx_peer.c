/* Endpoints. A rank has one to every other that finds out when the peer is gone, and all words go over it: greetings,
 * notices, questions. The messages of groups go over it too, but for peers that are reached over TCP:
 *
 *     endpoint   UCP_ERR_HANDLING_MODE_PEER   words; UCX's callback when the peer is gone
 *     bulk       UCP_ERR_HANDLING_MODE_NONE   messages of groups: UCX reads the socket straight into their place
 *
 * For an endpoint that must find dead peers UCX receives over TCP into its segments and copies from there, since a peer
 * that was given up may still write. Here nobody is hurt by that: memory of messages that were given up is never used
 * again (ra_transport_ops.abandon). Both endpoints end in one worker, so receives know nothing of it, and each rank
 * decides for what it sends. Only the messages of one endpoint keep their order; so all messages of groups to a peer go
 * over one, and a rank tells that it leaves only after they have come.
 */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include "transport/ucx/ucx_transport.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* UCX calls this inside ucp_worker_progress, on the thread that polls. */
static void on_failure(void *user, ucp_ep_h endpoint, ucs_status_t status) {
    ra_ucx_peer *peer = user;
    (void)endpoint;
    if (!peer->failed) peer->failed = status;
}

static ucs_status_t create(ra_ucx *ucx, ra_ucx_peer *p, const void *address, ucp_err_handling_mode_t mode,
                           ucp_ep_h *endpoint_out) {
    ucp_ep_params_t params = {
        .field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = mode,
        .err_handler = {.cb = on_failure, .arg = p},
    };
    ucs_status_t status = ucx->api->ucp_ep_create(ucx->worker, &params, endpoint_out);
    if (status != UCS_OK) *endpoint_out = NULL;
    return status;
}

/* Lines of UCX's description of an endpoint: "#   lane[0]:  1:tcp/lo.0 md[0]  -> md[0]/tcp ... am keepalive". */
static int lanes_are_tcp(char *text) {
    char *rest = NULL;
    int lanes = 0;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *lane = strstr(line, " lane[");
        if (!lane) continue;
        if (!strstr(lane, ":tcp/")) return 0;
        lanes++;
    }
    return lanes > 0;
}

/* Whether UCX has nothing but TCP for it. Only later versions than the first that is supported have a query for it. */
static int is_over_tcp(const ra_ucx *ucx, ucp_ep_h endpoint) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream) return 0;
    ucx->api->ucp_ep_print_info(endpoint, stream);
    int over_tcp = fclose(stream) == 0 && lanes_are_tcp(text);
    free(text);
    return over_tcp;
}

ra_status ra_ucx_connect(ra_ucx *ucx, int peer, const void *address) {
    ra_ucx_peer *p = &ucx->peers[peer];
    ucs_status_t status = create(ucx, p, address, UCP_ERR_HANDLING_MODE_PEER, &p->endpoint);
    if (status != UCS_OK)
        return ra_fail(RA_ERR_TRANSPORT,
                       "UCX finds no way from rank %d to rank %d (%s): see which transports and networks UCX_TLS and "
                       "UCX_NET_DEVICES leave it on both",
                       ucx->rank, peer, ucx->api->ucs_status_string(status));
    if (is_over_tcp(ucx, p->endpoint)) create(ucx, p, address, UCP_ERR_HANDLING_MODE_NONE, &p->bulk);
    return RA_OK;
}

/* Whether all are up or down; *open_out: the first peer whose is not. */
static int bulk_is_still(ra_ucx *ucx, int *open_out) {
    *open_out = -1;
    for (int peer = ucx->ranks - 1; peer >= 0; peer--)
        if (ra_ucx_test(ucx, &ucx->peers[peer].bulk_going, NULL, NULL) == UCS_INPROGRESS) *open_out = peer;
    return *open_out < 0;
}

/* UCX connects when it is asked to flush what is to be sent over an endpoint, if not before. */
static void start_connecting(ra_ucx *ucx, ra_ucx_peer *p) {
    ucp_request_param_t params = {.op_attr_mask = 0};
    ucs_status_ptr_t request = ucx->api->ucp_ep_flush_nbx(p->bulk, &params);
    p->bulk_going = UCS_PTR_IS_PTR(request) ? request : NULL;
}

ra_status ra_ucx_settle_bulk(ra_ucx *ucx, double seconds, int *absent_out) {
    ra_ucx_wait wait = ra_ucx_wait_start(seconds);
    int progressed, dead;
    for (int peer = 0; peer < ucx->ranks; peer++)
        if (ucx->peers[peer].bulk) start_connecting(ucx, &ucx->peers[peer]);
    do {
        progressed = ra_ucx_progress(ucx);
        if (bulk_is_still(ucx, absent_out)) return RA_OK;
        RA_TRY(ra_ucx_hear(ucx));
        RA_TRY(ra_ucx_find_dead(ucx, NULL, &dead));
    } while (ra_ucx_wait_pause(&wait, progressed));
    return RA_OK;
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

static void *start_closing(ra_ucx *ucx, ucp_ep_h endpoint, int force) {
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0};
    ucs_status_ptr_t request = ucx->api->ucp_ep_close_nbx(endpoint, &params);
    return UCS_PTR_IS_PTR(request) ? request : NULL;
}

/* One whose peer failed or left can only be taken down at once. One that does not find that out cannot: the end of the
 * worker takes it down. */
static void close_endpoints(ra_ucx *ucx, ra_ucx_peer *p, int force) {
    int at_once = force || p->failed || p->ended || p->left;
    if (p->bulk && !p->bulk_going && !at_once) p->bulk_going = start_closing(ucx, p->bulk, 0);
    if (p->endpoint) p->closing = start_closing(ucx, p->endpoint, at_once);
    p->bulk = p->endpoint = NULL;
}

static int all_closed(ra_ucx *ucx) {
    int open, closed = bulk_is_still(ucx, &open);
    for (int peer = 0; peer < ucx->ranks; peer++)
        if (ra_ucx_test(ucx, &ucx->peers[peer].closing, NULL, NULL) == UCS_INPROGRESS) closed = 0;
    return closed;
}

static int await_closed(ra_ucx *ucx, double seconds) {
    int progressed, closed;
    ra_ucx_wait wait = ra_ucx_wait_start(seconds);
    do {
        progressed = ra_ucx_progress(ucx);
        closed = all_closed(ucx);
    } while (!closed && ra_ucx_wait_pause(&wait, progressed));
    return closed;
}

void ra_ucx_finish_bulk(ra_ucx *ucx, double seconds) {
    for (int peer = 0; peer < ucx->ranks; peer++) {
        ra_ucx_peer *p = &ucx->peers[peer];
        if (!p->bulk || p->failed || p->ended || p->left) continue;
        p->bulk_going = start_closing(ucx, p->bulk, 0);
        p->bulk = NULL;
    }
    await_closed(ucx, seconds);
}

int ra_ucx_disconnect(ra_ucx *ucx, int force, double seconds) {
    for (int peer = 0; peer < ucx->ranks; peer++) {
        ra_ucx_peer *p = &ucx->peers[peer];
        if (p->process >= 0) close(p->process);
        p->process = -1;
        close_endpoints(ucx, p, force);
    }
    return await_closed(ucx, seconds);
}
