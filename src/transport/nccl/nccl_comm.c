#include "transport/nccl/nccl_comm.h"

#include "base/clock.h"
#include "base/status.h"
#include "device/cuda/device_cuda.h"
#include "transport/host.h"
#include "transport/nccl/nccl_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long the communicator may take to come to rest before it is destroyed. */
static const double FINALIZE_SECONDS = 5;

/* How long NCCL is asked before the host is listened to again. */
static const double TURN_SECONDS = 0.01;

typedef struct nccl {
    const ra_nccl_api *api;
    void *comm; /* ncclComm_t; NULL once it was aborted */
    int ours;   /* to destroy */
    ra_comm *host;
    const ra_device *device;
    void *transfers;       /* stream */
    void *ready, *arrived; /* events */
    int on_device;         /* the group in flight, or the last one, is in device memory */
    int starting;          /* NCCL has not yet put it on the stream */
    int listening;         /* the host has an empty group: asked for news of peers */
} nccl;

/* ---- asking NCCL ------------------------------------------------------------------------------------------------- */

static ra_status failed(const nccl *n, int result, const char *call) {
    const char *detail = n->comm ? n->api->ncclGetLastError(n->comm) : "";
    return ra_fail(result == RA_NCCL_REMOTE_ERROR ? RA_ERR_PEER : RA_ERR_TRANSPORT, "%s: %s%s%s", call,
                   n->api->ncclGetErrorString(result), detail && detail[0] ? ": " : "", detail ? detail : "");
}

static ra_status check(const nccl *n, int result, const char *call) {
    return result == RA_NCCL_SUCCESS || result == RA_NCCL_IN_PROGRESS ? RA_OK : failed(n, result, call);
}

/* Asks until NCCL has nothing under way, for at most `seconds`. */
static ra_status settle(nccl *n, double seconds, const char *call, int *done_out) {
    double end = ra_clock() + seconds;
    *done_out = 0;
    if (!n->comm) return ra_fail(RA_ERR_BROKEN, "the NCCL communicator was aborted");
    for (;;) {
        int state = RA_NCCL_IN_PROGRESS;
        RA_TRY(check(n, n->api->ncclCommGetAsyncError(n->comm, &state), "ncclCommGetAsyncError"));
        RA_TRY(check(n, state, call));
        *done_out = state == RA_NCCL_SUCCESS;
        if (*done_out || ra_clock() >= end) return RA_OK;
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static ra_status post(void *self, const ra_message *messages, int count, void *stream) {
    nccl *n = self;
    n->on_device = n->listening = 0;
    (void)stream;
    return ra_host_post(n->host, messages, count);
}

static ra_status attach(void *self, const ra_device *device) {
    nccl *n = self;
    if (device == n->device) return RA_OK;
    return ra_fail(RA_ERR_UNSUPPORTED, "this communicator was made for CUDA device %d, the plan is on another one",
                   ra_device_cuda_ordinal(n->device));
}

/* Messages between two ranks come in the same order at both ends, which is how NCCL tells them apart. */
static ra_status start_group(nccl *n, const ra_message *messages, int count) {
    int result = RA_NCCL_SUCCESS;
    void *stream = n->transfers;
    RA_TRY(check(n, n->api->ncclGroupStart(), "ncclGroupStart"));
    for (int i = 0; i < count && (result == RA_NCCL_SUCCESS || result == RA_NCCL_IN_PROGRESS); i++) {
        const ra_message *m = &messages[i];
        result = m->is_send ? n->api->ncclSend(m->data, m->bytes, RA_NCCL_UINT8, m->peer, n->comm, stream)
                            : n->api->ncclRecv(m->data, m->bytes, RA_NCCL_UINT8, m->peer, n->comm, stream);
    }
    int ended = n->api->ncclGroupEnd();
    RA_TRY(check(n, result, "ncclSend or ncclRecv"));
    return check(n, ended, "ncclGroupEnd");
}

static ra_status post_device(void *self, const ra_message *messages, int count, void *stream) {
    nccl *n = self;
    if (!n->comm) return ra_fail(RA_ERR_BROKEN, "the NCCL communicator was aborted");
    n->on_device = 1;
    RA_TRY(n->device->signal(n->device, n->ready, stream));
    RA_TRY(n->device->wait(n->device, n->transfers, n->ready));
    RA_TRY(start_group(n, messages, count));
    n->starting = 1;
    return RA_OK;
}

/* Whether a peer has given up, which comes over the host. */
static ra_status listen(nccl *n) {
    int done, culprit;
    if (!n->listening) RA_TRY(ra_host_post(n->host, NULL, 0));
    n->listening = 1;
    return ra_host_poll(n->host, 0, &done, &culprit);
}

/* With no group in flight: whether NCCL or a peer has something to say. Waits for one turn at most: whoever waits
 * longer asks again, and hears of a peer's failure in between. */
static ra_status poll(void *self, double seconds, int *done_out, int *culprit_out) {
    nccl *n = self;
    if (!n->on_device) return ra_host_poll(n->host, seconds, done_out, culprit_out);
    *culprit_out = -1;
    RA_TRY(listen(n));
    double turn = seconds < TURN_SECONDS ? seconds : TURN_SECONDS;
    RA_TRY(settle(n, n->starting ? turn : 0, "a group of messages", done_out));
    if (!*done_out || !n->starting) return RA_OK;
    RA_TRY(n->device->signal(n->device, n->arrived, n->transfers));
    n->starting = 0;
    return RA_OK;
}

static ra_status join(void *self, void *stream) {
    nccl *n = self;
    return n->device->wait(n->device, stream, n->arrived);
}

static void inquire(void *self, int peer, ra_sign *sign_out) {
    const nccl *n = self;
    ra_host_inquire(n->host, peer, sign_out);
}

/* The host comm, which is lost with this one, brings the peers the news. Aborting ends the kernels that wait for a
 * peer, so the streams come to their end. */
static int abandon(void *self, const char *reason) {
    nccl *n = self;
    int memory_is_free = ra_host_abandon(n->host, reason);
    if (n->comm) n->api->ncclCommAbort(n->comm);
    n->comm = NULL;
    n->starting = 0;
    return memory_is_free;
}

static void let_go(nccl *n) {
    int done = 0, quiet = n->comm && check(n, n->api->ncclCommFinalize(n->comm), "ncclCommFinalize") == RA_OK &&
                          settle(n, FINALIZE_SECONDS, "ncclCommFinalize", &done) == RA_OK && done;
    if (!n->comm) return;
    if (quiet)
        n->api->ncclCommDestroy(n->comm);
    else
        n->api->ncclCommAbort(n->comm);
    n->comm = NULL;
}

static void destroy(void *self) {
    nccl *n = self;
    const ra_device *device = n->device;
    if (n->ours) let_go(n);
    if (n->transfers) device->stream_destroy(device, n->transfers);
    if (n->ready) device->event_destroy(device, n->ready);
    if (n->arrived) device->event_destroy(device, n->arrived);
    free(n);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static ra_status make(ra_comm *host, const ra_device *device, nccl **nccl_out) {
    nccl *n = calloc(1, sizeof *n);
    if (!n) return ra_fail(RA_ERR_MEMORY, "no memory for an NCCL transport");
    *n = (nccl){.host = host, .device = device};
    ra_status status = ra_nccl_load(&n->api);
    if (status == RA_OK) status = device->stream_create(device, 1, &n->transfers);
    if (status == RA_OK) status = device->event_create(device, &n->ready);
    if (status == RA_OK) status = device->event_create(device, &n->arrived);
    if (status == RA_OK)
        *nccl_out = n;
    else
        destroy(n);
    return status;
}

static ra_status publish(nccl *n, ra_comm **comm_out) {
    static const ra_transport_ops ops = {.struct_size = sizeof ops,
                                         .name = "nccl",
                                         .post = post,
                                         .poll = poll,
                                         .abandon = abandon,
                                         .destroy = destroy,
                                         .attach = attach,
                                         .post_device = post_device,
                                         .join = join,
                                         .ends_on_device = 1,
                                         .inquire = inquire};
    return ra_comm_create_beside(n->host, &ops, n, comm_out);
}

/* What a rank shows the others before and after NCCL is asked to connect them. */
typedef struct greeting {
    ra_nccl_id id; /* rank 0's counts */
    int status;
} greeting;

/* Collective: rank 0's id, or an error on every rank when one has failed. */
static ra_status greet(ra_comm *host, ra_status mine, double timeout_seconds, ra_nccl_id *id) {
    char why[512];
    snprintf(why, sizeof why, "%s", ra_last_error());
    int ranks = ra_comm_ranks(host);
    greeting hello = {.id = *id, .status = mine}, *all = calloc((size_t)ranks, sizeof *all);
    if (!all) {
        ra_host_abandon(host, "no memory to open NCCL");
        return ra_fail(RA_ERR_MEMORY, "no memory for %d ranks", ranks);
    }
    ra_status status = ra_comm_allgather(host, &hello, sizeof hello, all, timeout_seconds);
    if (status == RA_OK) *id = all[0].id;
    for (int r = 0; status == RA_OK && r < ranks; r++)
        if (all[r].status != RA_OK) status = ra_fail((ra_status)all[r].status, "rank %d could not open NCCL", r);
    free(all);
    return mine == RA_OK ? status : ra_fail(mine, "%s", why);
}

static ra_status connect(nccl *n, ra_nccl_id id, double timeout_seconds) {
    ra_nccl_config config = {
        .size = sizeof config, .magic = RA_NCCL_CONFIG_MAGIC, .version = RA_NCCL_CONFIG_VERSION, .blocking = 0};
    int done = 0, rank = ra_comm_rank(n->host), ranks = ra_comm_ranks(n->host);
    RA_TRY(check(n, n->api->ncclCommInitRankConfig(&n->comm, ranks, id, rank, &config), "ncclCommInitRankConfig"));
    n->ours = 1;
    RA_TRY(settle(n, timeout_seconds, "ncclCommInitRankConfig", &done));
    if (!done) return ra_fail(RA_ERR_TIMEOUT, "NCCL did not connect the %d ranks within %g s", ranks, timeout_seconds);
    return RA_OK;
}

/* status: this rank's so far, which all ranks hear of; n may be NULL where it is an error. */
static ra_status open_all(ra_comm *host, nccl *n, ra_status status, double timeout_seconds) {
    ra_nccl_id id;
    memset(&id, 0, sizeof id);
    if (status == RA_OK && ra_comm_rank(host) == 0) status = check(n, n->api->ncclGetUniqueId(&id), "ncclGetUniqueId");
    RA_TRY(greet(host, status, timeout_seconds, &id));
    status = connect(n, id, timeout_seconds);
    return greet(host, status, timeout_seconds, &id);
}

ra_status ra_nccl_create(ra_comm *host, ra_status mine, const ra_device *device, double timeout_seconds,
                         ra_comm **comm_out) {
    nccl *n = NULL;
    int previous, entered = 0;
    ra_status status = mine;
    if (status == RA_OK) status = make(host, device, &n);
    if (status == RA_OK) {
        status = ra_device_enter(device, &previous);
        entered = status == RA_OK;
    }
    status = open_all(host, n, status, timeout_seconds);
    if (entered) ra_device_leave(device, previous);
    if (status == RA_OK) status = publish(n, comm_out);
    if (status == RA_OK || !n) return status;
    if (n->comm) n->api->ncclCommAbort(n->comm);
    n->comm = NULL;
    destroy(n);
    return status;
}

ra_status ra_nccl_wrap(ra_comm *host, void *comm, const ra_device *device, ra_comm **comm_out) {
    const ra_nccl_api *api;
    nccl *n = NULL;
    int ranks = -1, rank = -1, host_rank = ra_comm_rank(host), host_ranks = ra_comm_ranks(host);
    RA_TRY(ra_nccl_load(&api));
    if (api->ncclCommCount(comm, &ranks) != RA_NCCL_SUCCESS || api->ncclCommUserRank(comm, &rank) != RA_NCCL_SUCCESS ||
        ranks != host_ranks || rank != host_rank)
        return ra_refuse("the NCCL communicator is rank %d of %d, host is rank %d of %d", rank, ranks, host_rank,
                         host_ranks);
    RA_TRY(make(host, device, &n));
    n->comm = comm;
    ra_status status = publish(n, comm_out);
    if (status != RA_OK) destroy(n);
    return status;
}
