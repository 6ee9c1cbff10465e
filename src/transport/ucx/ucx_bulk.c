/* A second endpoint to every peer that is reached over TCP's loopback, for the messages of groups.
 *
 *     endpoint   made from the worker's address       words: greetings, notices, questions
 *     bulk       made from a port, as by connect(2)   messages of groups; UCX reads the socket straight into a large
 *                                                     one's place
 *
 * Over an endpoint that finds dead peers and was made from an address UCX receives TCP's messages into its segments and
 * copies from there: a peer that was given up might still write over another connection. One that was made from a port
 * has connections of its own, which end with it; that is why UCX uses it so. Each rank connects with each other and
 * sends over its own; receives know nothing of it, since both endpoints end in one worker.
 *
 * Only the messages of one endpoint keep their order. So all messages of groups to a peer go over one, and a rank tells
 * that it leaves only after UCX has sent them: large ones have come then, small ones are at least in the peer's socket,
 * which reads on for a while (check_left in ucx_group.c). What is said of the peer's end counts on `endpoint` alone:
 * there it comes after the peer's last word.
 */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include "transport/ucx/ucx_transport.h"

#include "base/status.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t ra_ucx_client_id(const ra_ucx *ucx) {
    uint64_t id;
    memcpy(&id, ucx->key + RA_UCX_KEY_BYTES - sizeof id, sizeof id);
    return id;
}

int ra_ucx_bulk_may_use_loopback(const ra_ucx *ucx) {
    const char *devices = ucx->devices ? ucx->devices : getenv("UCX_NET_DEVICES");
    if (!devices || !*devices || *devices == '^' || strcmp(devices, "all") == 0) return 1;
    for (const char *name = devices; *name; name += strspn(name, ",")) {
        size_t length = strcspn(name, ",");
        if (length == 2 && memcmp(name, "lo", 2) == 0) return 1;
        name += length;
    }
    return 0;
}

/* A broken connection of a peer's: its `endpoint` tells what to make of it. */
static void on_accepted_failure(void *user, ucp_ep_h endpoint, ucs_status_t status) {
    (void)user, (void)endpoint, (void)status;
}

static int is_of_job(const ra_ucx *ucx, ucp_conn_request_h request) {
    ucp_conn_request_attr_t attributes = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID};
    return ucx->api->ucp_conn_request_query(request, &attributes) == UCS_OK &&
           attributes.client_id == ra_ucx_client_id(ucx);
}

/* UCX calls this inside ucp_worker_progress. */
static void on_connection(ucp_conn_request_h request, void *user) {
    ra_ucx *ucx = user;
    ucp_ep_params_t params = {
        .field_mask =
            UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .conn_request = request,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_accepted_failure},
    };
    if (ucx->accepted_count >= ucx->ranks || !is_of_job(ucx, request)) {
        ucx->api->ucp_listener_reject(ucx->listener, request);
        return;
    }
    ucp_ep_h *endpoint = &ucx->accepted[ucx->accepted_count];
    if (ucx->api->ucp_ep_create(ucx->worker, &params, endpoint) == UCS_OK) ucx->accepted_count++;
}

static ucs_sock_addr_t loopback(struct sockaddr_in *address, uint16_t port) {
    *address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return (ucs_sock_addr_t){.addr = (struct sockaddr *)address, .addrlen = sizeof *address};
}

void ra_ucx_bulk_listen(ra_ucx *ucx, uint16_t *port_out) {
    struct sockaddr_in any;
    ucp_listener_params_t params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = loopback(&any, 0),
        .conn_handler = {.cb = on_connection, .arg = ucx},
    };
    ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    *port_out = 0;
    if (!ra_ucx_bulk_may_use_loopback(ucx)) return;
    if (ucx->api->ucp_listener_create(ucx->worker, &params, &ucx->listener) != UCS_OK) ucx->listener = NULL;
    if (ucx->listener && ucx->api->ucp_listener_query(ucx->listener, &attributes) == UCS_OK)
        *port_out = ntohs(((const struct sockaddr_in *)&attributes.sockaddr)->sin_port);
}

void ra_ucx_bulk_close_port(ra_ucx *ucx) {
    if (ucx->listener) ucx->api->ucp_listener_destroy(ucx->listener);
    ucx->listener = NULL;
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

/* UCX calls this inside ucp_worker_progress. */
static void on_failure(void *user, ucp_ep_h endpoint, ucs_status_t status) {
    ra_ucx_peer *peer = user;
    (void)endpoint;
    if (!peer->bulk_failed) peer->bulk_failed = status;
}

void ra_ucx_bulk_connect(ra_ucx *ucx, int peer) {
    ra_ucx_peer *p = &ucx->peers[peer];
    struct sockaddr_in address;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID,
        .sockaddr = loopback(&address, p->port),
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = p},
    };
    if (!p->port || !is_over_tcp(ucx, p->endpoint)) return;
    if (ucx->api->ucp_ep_create(ucx->worker, &params, &p->bulk) != UCS_OK) p->bulk = NULL;
}

static void start_flush(ra_ucx *ucx) {
    ucp_request_param_t params = {.op_attr_mask = 0};
    for (int peer = 0; peer < ucx->ranks; peer++) {
        ra_ucx_peer *p = &ucx->peers[peer];
        if (!p->bulk || p->bulk_failed || p->flushing) continue;
        ucs_status_ptr_t request = ucx->api->ucp_ep_flush_nbx(p->bulk, &params);
        if (UCS_PTR_IS_PTR(request)) p->flushing = request;
        if (UCS_PTR_IS_ERR(request)) p->bulk_failed = UCS_PTR_RAW_STATUS(request);
    }
}

int ra_ucx_bulk_flushing(ra_ucx *ucx) {
    int first = -1;
    for (int peer = ucx->ranks - 1; peer >= 0; peer--) {
        ra_ucx_peer *p = &ucx->peers[peer];
        ucs_status_t status = ra_ucx_test(ucx, &p->flushing, NULL, NULL);
        if (status == UCS_INPROGRESS) first = peer;
        if (status < 0 && !p->bulk_failed) p->bulk_failed = status;
    }
    return first;
}

void ra_ucx_bulk_flush(ra_ucx *ucx, double seconds) {
    ra_ucx_wait wait = ra_ucx_wait_start(seconds);
    int progressed;
    start_flush(ucx);
    do progressed = ra_ucx_progress(ucx);
    while (ra_ucx_bulk_flushing(ucx) >= 0 && ra_ucx_wait_pause(&wait, progressed));
}

static void drop_failed(ra_ucx *ucx) {
    for (int peer = 0; peer < ucx->ranks; peer++) {
        ra_ucx_peer *p = &ucx->peers[peer];
        if (!p->bulk || !p->bulk_failed) continue;
        p->closing[1] = ra_ucx_start_closing(ucx, p->bulk, 1);
        p->bulk = NULL;
    }
}

/* A flush is over when UCX has connected. */
ra_status ra_ucx_bulk_settle(ra_ucx *ucx, double seconds, int *absent_out) {
    ra_ucx_wait wait = ra_ucx_wait_start(seconds);
    int progressed, dead;
    start_flush(ucx);
    do {
        progressed = ra_ucx_progress(ucx);
        *absent_out = ra_ucx_bulk_flushing(ucx);
        drop_failed(ucx);
        if (*absent_out < 0) return RA_OK;
        RA_TRY(ra_ucx_hear(ucx));
        RA_TRY(ra_ucx_find_dead(ucx, NULL, &dead));
    } while (ra_ucx_wait_pause(&wait, progressed));
    return RA_OK;
}

/* Their peers have sent all they will, or are given up. */
void ra_ucx_bulk_drop_accepted(ra_ucx *ucx) {
    ra_ucx_bulk_close_port(ucx);
    while (ucx->accepted_count > 0) {
        void *request = ra_ucx_start_closing(ucx, ucx->accepted[--ucx->accepted_count], 1);
        if (request) ucx->api->ucp_request_free(request);
    }
}
