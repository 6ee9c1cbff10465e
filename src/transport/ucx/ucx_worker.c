#include "transport/ucx/ucx_transport.h"

#include "base/status.h"

#include <pthread.h>
#include <stdlib.h>

/* Making and ending a context reads and writes what is global in UCX. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

ra_status ra_ucx_check(const ra_ucx *ucx, ucs_status_t status, const char *call) {
    if (status == UCS_OK) return RA_OK;
    return ra_fail(RA_ERR_TRANSPORT, "%s failed: %s", call, ucx->api->ucs_status_string(status));
}

typedef struct setting {
    const char *name, *value;
    const char *unless[2]; /* variables of the environment; where one of them is set, UCX is left to it */
} setting;

/* Shared memory is used by endpoints that must find out about dead peers only when it says that it can, which it does
 * when it is told to (its keepalive looks for the peer's process). Copies straight from a peer's memory (CMA) need
 * "invalidate": that a sender whose message was given up does not use its memory again. It does not: see
 * ra_transport_ops.abandon. Over TCP, UCX's segments of 8 KiB cost a system call each: with larger ones, and sockets
 * that hold several, messages of a ring go two to three times as fast over a loopback. Segments that are received must
 * not be smaller than those that are sent. Names differ between versions (the early ones know no "TCP_" here); those
 * that one does not know are ignored. */
static const setting SETTINGS[] = {
    {"WARN_INVALID_CONFIG", "n", {NULL}},
    {"MM_ERROR_HANDLING", "y", {NULL}},
    {"POSIX_ERROR_HANDLING", "y", {NULL}},
    {"SYSV_ERROR_HANDLING", "y", {NULL}},
    {"MEMORY_INVALIDATE", "y", {NULL}},
    {"CMA_MEMORY_INVALIDATE", "y", {NULL}},
    {"KEEPALIVE_INTERVAL", "1s", {"UCX_KEEPALIVE_INTERVAL"}},
    {"TCP_TX_SEG_SIZE", "256k", {"UCX_TCP_TX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE"}},
    {"TX_SEG_SIZE", "256k", {"UCX_TCP_TX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE"}},
    {"TCP_RX_SEG_SIZE", "256k", {"UCX_TCP_RX_SEG_SIZE"}},
    {"RX_SEG_SIZE", "256k", {"UCX_TCP_RX_SEG_SIZE"}},
    {"TCP_SNDBUF", "4m", {"UCX_TCP_SNDBUF"}},
    {"SNDBUF", "4m", {"UCX_TCP_SNDBUF"}},
    {"TCP_RCVBUF", "4m", {"UCX_TCP_RCVBUF"}},
    {"RCVBUF", "4m", {"UCX_TCP_RCVBUF"}},
};

/* Over a loopback (ucx_bulk.c) UCX could write large messages straight to their place, but takes segments for as fast
 * and would use those. They are then all that TCP has for other machines: there UCX is left to it. */
static const setting IN_PLACE = {"PROTOS", "^rndv/am/zcopy", {"UCX_PROTOS"}};

static int is_left_to_user(const setting *s) {
    return (s->unless[0] && getenv(s->unless[0])) || (s->unless[1] && getenv(s->unless[1]));
}

static void try_setting(const ra_ucx *ucx, ucp_config_t *config, const setting *s) {
    if (!is_left_to_user(s)) ucx->api->ucp_config_modify(config, s->name, s->value);
}

static ra_status modify(const ra_ucx *ucx, ucp_config_t *config, const char *name, const char *value) {
    ucs_status_t status = ucx->api->ucp_config_modify(config, name, value);
    if (status == UCS_OK) return RA_OK;
    return ra_fail(RA_ERR_ARGUMENT, "UCX does not take \"%s\" for UCX_%s: %s", value, name,
                   ucx->api->ucs_status_string(status));
}

int ra_ucx_names_transports(const ra_ucx *ucx) {
    return ucx->transports || getenv("UCX_TLS");
}

/* Ranks that share memory need no network, and then nobody can come from there. */
static ra_status configure(const ra_ucx *ucx, ucp_config_t *config, ra_ucx_sharing shared) {
    for (size_t i = 0; i < sizeof SETTINGS / sizeof *SETTINGS; i++) try_setting(ucx, config, &SETTINGS[i]);
    const char *transports = ucx->transports;
    if (shared.memory && !ra_ucx_names_transports(ucx))
        transports = "^tcp";
    else if (shared.loopback && ra_ucx_bulk_may_use_loopback(ucx))
        try_setting(ucx, config, &IN_PLACE);
    if (transports) RA_TRY(modify(ucx, config, "TLS", transports));
    if (ucx->devices) RA_TRY(modify(ucx, config, "NET_DEVICES", ucx->devices));
    return RA_OK;
}

/* The version asked for is the least that has all that is used, whatever the headers' is. */
static ra_status open_context(ra_ucx *ucx, ra_ucx_sharing shared) {
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                           .features = UCP_FEATURE_TAG,
                           .estimated_num_eps = (size_t)ucx->ranks};
    ucp_config_t *config = NULL;
    RA_TRY(ra_ucx_check(ucx, ucx->api->ucp_config_read(NULL, NULL, &config), "ucp_config_read"));
    ra_status status = configure(ucx, config, shared);
    if (status == RA_OK)
        status = ra_ucx_check(ucx, ucx->api->ucp_init_version(1, 13, &params, config, &ucx->context), "ucp_init");
    ucx->api->ucp_config_release(config);
    return status;
}

ra_status ra_ucx_worker_open(ra_ucx *ucx, ra_ucx_sharing shared) {
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_CLIENT_ID,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED,
                                  .client_id = ra_ucx_client_id(ucx)};
    pthread_mutex_lock(&lock);
    ra_status status = open_context(ucx, shared);
    if (status == RA_OK) {
        ucs_status_t made = ucx->api->ucp_worker_create(ucx->context, &params, &ucx->worker);
        status = ra_ucx_check(ucx, made, "ucp_worker_create");
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void ra_ucx_worker_close(ra_ucx *ucx) {
    pthread_mutex_lock(&lock);
    if (ucx->worker) ucx->api->ucp_worker_destroy(ucx->worker);
    if (ucx->context) ucx->api->ucp_cleanup(ucx->context);
    pthread_mutex_unlock(&lock);
    ucx->worker = NULL;
    ucx->context = NULL;
}

/* One call moves a segment of a message or a few packets: between two tiles there is time for several. */
int ra_ucx_progress(ra_ucx *ucx) {
    int rounds = 0;
    while (rounds < 32 && ucx->api->ucp_worker_progress(ucx->worker)) rounds++;
    return rounds > 0;
}
