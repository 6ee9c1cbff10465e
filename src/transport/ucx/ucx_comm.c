/* The life of the transport: meeting the others, giving up, and leaving together. */
#include "transport/ucx/ucx_transport.h"

#include "base/sized.h"
#include "base/status.h"
#include "core/problem.h"
#include "transport/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a rank that gives up sees to it that its notices leave. */
static const double TELL_SECONDS = 0.1;

/* How long endpoints may take to go once nobody needs them. */
static const double CLOSE_SECONDS = 1;

static void free_memory(ra_ucx *ucx) {
    free(ucx->transfers);
    free(ucx->accepted);
    free(ucx->peers);
    free(ucx);
}

static ra_status allocate(int rank, int ranks, ra_ucx **ucx_out) {
    ra_ucx *ucx = calloc(1, sizeof *ucx);
    if (!ucx) return ra_fail(RA_ERR_MEMORY, "no memory for a UCX transport");
    ucx->peers = calloc((size_t)ranks, sizeof *ucx->peers);
    ucx->transfer_capacity = 4 * ranks + 8; /* more than any strategy posts at once, two for each message */
    ucx->transfers = calloc((size_t)ucx->transfer_capacity, sizeof *ucx->transfers);
    ucx->accepted = calloc((size_t)ranks, sizeof *ucx->accepted);
    if (!ucx->peers || !ucx->transfers || !ucx->accepted) {
        free_memory(ucx);
        return ra_fail(RA_ERR_MEMORY, "no memory for a UCX transport of %d ranks", ranks);
    }
    for (int r = 0; r < ranks; r++) ucx->peers[r] = (ra_ucx_peer){.process = -1, .since = -1, .waits_for = -1};
    ucx->rank = rank;
    ucx->ranks = ranks;
    ucx->heard_from = ucx->waits_for = -1;
    *ucx_out = ucx;
    return RA_OK;
}

/* For the whole time, even when every notice counts as sent: UCX may have copied it and not sent it yet. */
static void see_off(ra_ucx *ucx) {
    ra_ucx_wait wait = ra_ucx_wait_start(TELL_SECONDS);
    int progressed;
    do {
        progressed = ra_ucx_progress(ucx);
        ra_ucx_all_told(ucx);
        ra_ucx_drain(ucx);
    } while (ra_ucx_wait_pause(&wait, progressed));
    ra_ucx_cancel_receives(ucx);
}

int ra_ucx_abandon(void *self, const char *reason) {
    ra_ucx *ucx = self;
    ucx->lost = 1;
    ucx->held_back = 0;
    ra_ucx_tell(ucx, reason);
    see_off(ucx);
    return ucx->pending == 0;
}

/* Whether every rank came here, so that no message of anyone's is under way. */
static int everyone_left(ra_ucx *ucx) {
    int absent;
    if (ucx->pending > 0 || ra_ucx_hear(ucx) != RA_OK || ucx->left > 0) return 0;
    return ra_ucx_assemble(ucx, RA_UCX_FAREWELL, ucx->destroy_seconds, &absent) == RA_OK && absent < 0;
}

/* Those who still work need not wait for this rank, and fail only when they need it. Endpoints that are taken down by
 * force end the requests on them; a rank that leaves lets what it has sent get through. What UCX may still use after
 * that is leaked. */
void ra_ucx_destroy(void *self) {
    ra_ucx *ucx = self;
    int clean = !ucx->lost && everyone_left(ucx);
    if (!clean && !ucx->lost) {
        ra_ucx_bulk_flush(ucx, CLOSE_SECONDS);
        ra_ucx_take_leave(ucx);
        see_off(ucx);
    }
    ra_ucx_detach(ucx);
    int hushed = ra_ucx_hush(ucx);
    int closed = ra_ucx_disconnect(ucx, ucx->lost || ucx->pending > 0, CLOSE_SECONDS);
    ra_ucx_drain(ucx);
    int told = ra_ucx_all_told(ucx), dismissed = ra_ucx_dismiss(ucx);
    if (!hushed || !closed || !told || !dismissed || ucx->pending > 0) return;
    ra_ucx_worker_close(ucx);
    free_memory(ucx);
}

const ra_transport_ops ra_ucx_ops = {RA_UCX_HOST_OPS};

static ra_status check_options(const ra_ucx_options *given, ra_ucx_options *options_out) {
    *options_out = (ra_ucx_options)RA_UCX_OPTIONS_INIT;
    if (given) RA_TRY(ra_sized_read("options", given, sizeof given->struct_size, sizeof *options_out, options_out));
    double *create = &options_out->create_seconds, *destroy_ = &options_out->destroy_seconds;
    if (!(*create >= 0) || !(*destroy_ >= 0) || *create > RA_LONGEST_WAIT || *destroy_ > RA_LONGEST_WAIT)
        return ra_refuse("create_seconds and destroy_seconds must be between 0 (the default) and %g", RA_LONGEST_WAIT);
    if (*create == 0) *create = RA_TIMEOUT_DEFAULT;
    if (*destroy_ == 0) *destroy_ = 5;
    return RA_OK;
}

/* From here on an error of this rank's is brought to the others. */
static ra_status prepare(const ra_ucx_options *given, ra_ucx *ucx) {
    ra_ucx_options options;
    RA_TRY(check_options(given, &options));
    ucx->create_seconds = options.create_seconds;
    ucx->destroy_seconds = options.destroy_seconds;
    ucx->transports = options.transports;
    ucx->devices = options.devices;
    return ra_ucx_load(&ucx->api);
}

/* A rank that fails after others have connected to it tells them why. */
static void give_back(ra_ucx *ucx) {
    char why[512];
    snprintf(why, sizeof why, "%s", ra_last_error());
    if (ucx->worker) {
        ra_ucx_abandon(ucx, why);
        ra_ucx_destroy(ucx);
    } else {
        if (ucx->context) ra_ucx_worker_close(ucx);
        free_memory(ucx);
    }
    ra_fail(RA_OK, "%s", why);
}

/* A rank without memory for its transport has enough to say so. */
ra_status ra_ucx_open(int rank, int ranks, ra_allgather allgather, void *user, const ra_ucx_options *options,
                      ra_ucx **ucx_out, int *machine_ranks_out) {
    ra_ucx *ucx = NULL, nobody = {.rank = rank, .ranks = ranks};
    ra_status status = allocate(rank, ranks, &ucx);
    if (status != RA_OK) return ra_ucx_meet(&nobody, status, allgather, user, machine_ranks_out);
    status = prepare(options, ucx);
    status = ra_ucx_meet(ucx, status, allgather, user, machine_ranks_out);
    ucx->transports = ucx->devices = NULL;
    if (status == RA_OK)
        *ucx_out = ucx;
    else
        give_back(ucx);
    return status;
}

ra_status ra_comm_create_ucx(int rank, int ranks, ra_allgather allgather, void *user, const ra_ucx_options *options,
                             ra_comm **comm_out) {
    ra_ucx *ucx = NULL;
    int machine_ranks = 0;
    if (!comm_out) return ra_refuse("comm_out is NULL: it is where the comm is put");
    if (!allgather) return ra_refuse("allgather is NULL: it is what brings the addresses of the ranks round");
    if (ranks < 1 || ranks > RA_MAX_RANKS)
        return ra_refuse("ranks is %d; it must be between 1 and %d", ranks, RA_MAX_RANKS);
    if (rank < 0 || rank >= ranks) return ra_refuse("rank is %d; it must be between 0 and %d", rank, ranks - 1);
    RA_TRY(ra_ucx_open(rank, ranks, allgather, user, options, &ucx, &machine_ranks));
    ra_transport_ops ops = ra_ucx_moves_devices(ucx) ? ra_ucx_device_ops : ra_ucx_ops;
    ops.machine_ranks = machine_ranks;
    ra_status status = ra_comm_create_custom(&ops, ucx, rank, ranks, comm_out);
    if (status != RA_OK) give_back(ucx);
    return status;
}

ra_status ra_ucx_version(const char **version_out) {
    const ra_ucx_api *api;
    if (!version_out) return ra_refuse("version_out is NULL");
    RA_TRY(ra_ucx_load(&api));
    *version_out = api->ucp_get_version_string();
    return RA_OK;
}
