#include "transport/comm.h"

#include "base/clock.h"
#include "base/sized.h"
#include "base/status.h"
#include "core/problem.h"
#include "transport/comm_state.h"
#include "transport/staged.h"

#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

ra_status ra_comm_create_custom(const ra_transport_ops *ops, void *self, int rank, int ranks, ra_comm **comm_out) {
    if (!comm_out) return ra_refuse("comm_out is NULL");
    ra_transport_ops known = {0};
    RA_TRY(ra_sized_read("ops", ops, offsetof(ra_transport_ops, attach), sizeof known, &known));
    if (!known.name || !known.post || !known.poll || !known.abandon || !known.destroy)
        return ra_refuse("ops needs a name and all four functions: post, poll, abandon, destroy");
    if (!known.attach != !known.post_device || !known.attach != !known.join)
        return ra_refuse("ops needs all three of attach, post_device, join, or none");
    if (ranks < 1 || ranks > RA_MAX_RANKS)
        return ra_refuse("ranks is %d; it must be between 1 and %d", ranks, RA_MAX_RANKS);
    if (rank < 0 || rank >= ranks) return ra_refuse("rank is %d; it must be between 0 and %d", rank, ranks - 1);
    ra_comm *comm = calloc(1, sizeof *comm);
    if (!comm) return ra_fail(RA_ERR_MEMORY, "no memory for a communicator");
    int machine_ranks = known.machine_ranks > 0 ? known.machine_ranks : 1;
    *comm = (ra_comm){
        .ops = known, .self = self, .rank = rank, .ranks = ranks, .process_ranks = 1, .machine_ranks = machine_ranks};
    *comm_out = comm;
    return RA_OK;
}

void ra_comm_destroy(ra_comm *comm) {
    if (!comm) return;
    ra_staging_destroy(comm->staging);
    comm->ops.destroy(comm->self);
    ra_uploaders_destroy(comm->uploaders); /* waits for the devices: nothing on them waits for a peer by now */
    free(comm);
}

int ra_comm_rank(const ra_comm *comm) {
    return comm ? comm->rank : -1;
}

int ra_comm_ranks(const ra_comm *comm) {
    return comm ? comm->ranks : -1;
}

const char *ra_comm_transport(const ra_comm *comm) {
    return comm ? comm->ops.name : "";
}

ra_status ra_comm_check(const ra_comm *comm) {
    if (!comm) return ra_refuse("comm is NULL");
    if (comm->broken)
        return ra_fail(RA_ERR_BROKEN,
                       "rank %d: the communicator was lost earlier (%s); destroy it and make another one", comm->rank,
                       comm->reason);
    return RA_OK;
}

int ra_comm_is_broken(const ra_comm *comm) {
    return comm->broken;
}

int ra_comm_has_failed(const ra_comm *comm) {
    return comm->failure != RA_OK;
}

int ra_comm_holds_memory(const ra_comm *comm) {
    return comm->memory_held;
}

int ra_comm_ends_on_device(const ra_comm *comm) {
    return comm->ops.ends_on_device;
}

int ra_comm_process_ranks(const ra_comm *comm) {
    return comm->process_ranks;
}

int ra_comm_machine_ranks(const ra_comm *comm) {
    return comm->machine_ranks;
}

int ra_comm_count_plan(ra_comm *comm) {
    return comm->plans++;
}

/* told: what the peers hear. */
static ra_status lose(ra_comm *comm, ra_status status, const char *told) {
    if (comm->broken) return status;
    comm->broken = 1;
    comm->posted = 0;
    snprintf(comm->reason, sizeof comm->reason, "%s", ra_last_error());
    comm->memory_held = !comm->ops.abandon(comm->self, told ? told : comm->reason);
    if (comm->staging) comm->memory_held = ra_staging_abandon(comm->staging, comm->memory_held);
    return ra_fail(status, "%s", comm->reason);
}

ra_status ra_comm_lose(ra_comm *comm, ra_status status) {
    return lose(comm, status, NULL);
}

/* ", step 3 of the forward pass" */
static const char *place_text(ra_place place, char *text, size_t bytes) {
    if (place.step < 0)
        snprintf(text, bytes, "%s", place.what);
    else
        snprintf(text, bytes, "step %d of %s", place.step, place.what);
    return text;
}

/* Says where it happened in front of what the transport said, or what the deadline means. A peer's failure that names
 * its rank is handed on as it was heard: if every rank put its own place in front, the last would read of waiters only,
 * and not of the one that failed. */
static ra_status lose_at(ra_comm *comm, ra_status status, const ra_message *culprit, ra_place place) {
    char where[96], cause[512];
    snprintf(cause, sizeof cause, "%s", ra_last_error());
    place_text(place, where, sizeof where);
    if (culprit)
        ra_fail(status, "rank %d, %s, %s rank %d: %s", comm->rank, where,
                culprit->is_send ? "sending to" : "waiting for", culprit->peer, cause);
    else
        ra_fail(status, "rank %d, %s: %s", comm->rank, where, cause);
    int is_news = status == RA_ERR_PEER && strncmp(cause, "rank ", 5) == 0;
    return lose(comm, status, is_news ? cause : NULL);
}

ra_status ra_comm_lose_at(ra_comm *comm, ra_status status, ra_place place) {
    return lose_at(comm, status, NULL, place);
}

/* ---- calling the transport --------------------------------------------------------------------------------------- */

/* What a function of the transport returned, with a text of the transport's own: said is ra_fail_count() before it. */
static ra_status vet(const ra_comm *comm, ra_status status, unsigned said) {
    if (status == RA_OK) return RA_OK;
    int is_silent = ra_fail_count() == said;
    if ((int)status < RA_OK || (int)status > RA_ERR_DEVICE)
        return ra_fail(RA_ERR_TRANSPORT, "the transport '%s' failed with %d, which is no status%s%s", comm->ops.name,
                       (int)status, is_silent ? "" : ": ", is_silent ? "" : ra_last_error());
    if (!is_silent) return status;
    return ra_fail(status, "the transport '%s' failed without a reason: %s", comm->ops.name, ra_status_text(status));
}

static ra_status reserve(ra_comm *comm, int count) {
    unsigned said = ra_fail_count();
    return comm->ops.reserve ? vet(comm, comm->ops.reserve(comm->self, count), said) : RA_OK;
}

ra_status ra_comm_attach(ra_comm *comm, const ra_device *device, ra_group_size most) {
    if (comm->ranks == 1) return RA_OK;
    if (comm->failure != RA_OK) return ra_fail(comm->failure, "%s", comm->failure_text);
    RA_TRY(reserve(comm, most.messages));
    if (!ra_device_is_asynchronous(device)) return RA_OK;
    if (comm->device && comm->device != device)
        return ra_fail(RA_ERR_UNSUPPORTED,
                       "this communicator already moves the memory of another device than this plan's: "
                       "make one for each device");
    unsigned said = ra_fail_count();
    if (comm->ops.attach)
        RA_TRY(vet(comm, comm->ops.attach(comm->self, device), said));
    else
        RA_TRY(ra_staging_attach(&comm->ops, comm->self, device, most.send_bytes, most.receive_bytes, &comm->staging));
    comm->device = device;
    return RA_OK;
}

ra_status ra_comm_uploader(ra_comm *comm, const ra_device *device, ra_uploader **uploader_out) {
    return ra_uploader_find(&comm->uploaders, device, uploader_out);
}

static ra_status post(ra_comm *comm, const ra_message *messages, int count) {
    void *stream = comm->in_flight.stream;
    if (!comm->in_flight.device) return comm->ops.post(comm->self, messages, count, NULL);
    return comm->staging ? ra_staging_post(comm->staging, messages, count, stream)
                         : comm->ops.post_device(comm->self, messages, count, stream);
}

static ra_status poll_once(ra_comm *comm, double seconds, int *done_out, int *culprit_out) {
    if (comm->in_flight.device && comm->staging) return ra_staging_poll(comm->staging, seconds, done_out, culprit_out);
    return comm->ops.poll(comm->self, seconds, done_out, culprit_out);
}

/* What the transport said in passing, for whoever asks next. */
static void remember(ra_comm *comm, ra_status failure, int message) {
    comm->failure = failure;
    if (failure == RA_OK) return;
    comm->failed_message = message;
    snprintf(comm->failure_text, sizeof comm->failure_text, "%s", ra_last_error());
}

/* After an error the transport is not asked again: the error is. */
static ra_status poll(ra_comm *comm, double seconds, int *done_out, int *culprit_out) {
    *done_out = 0;
    *culprit_out = -1;
    if (comm->failure == RA_OK) {
        unsigned said = ra_fail_count();
        ra_status status = vet(comm, poll_once(comm, seconds, done_out, culprit_out), said);
        remember(comm, status, *culprit_out);
        if (status == RA_OK) return RA_OK;
    }
    *done_out = 0;
    *culprit_out = comm->failed_message;
    return ra_fail(comm->failure, "%s", comm->failure_text);
}

static ra_status join(ra_comm *comm) {
    if (!comm->in_flight.device) return RA_OK;
    unsigned said = ra_fail_count();
    return vet(comm,
               comm->staging ? ra_staging_join(comm->staging, comm->in_flight.stream)
                             : comm->ops.join(comm->self, comm->in_flight.stream),
               said);
}

/* ---- a group ----------------------------------------------------------------------------------------------------- */

ra_status ra_comm_post(ra_comm *comm, const ra_message *messages, int count, const ra_queue *queue, ra_place place) {
    if (count == 0) return RA_OK;
    if (comm->failure != RA_OK) return lose_at(comm, ra_fail(comm->failure, "%s", comm->failure_text), NULL, place);
    comm->in_flight = queue && ra_device_is_asynchronous(queue->device) ? *queue : (ra_queue){0};
    unsigned said = ra_fail_count();
    ra_status status = vet(comm, post(comm, messages, count), said);
    comm->posted = status == RA_OK;
    return status == RA_OK ? RA_OK : lose_at(comm, status, NULL, place);
}

/* Whether the group in flight has not left this rank yet, so that no peer is to blame. */
static int awaits_device(const ra_comm *comm) {
    return comm->in_flight.device && comm->staging && ra_staging_awaits_device(comm->staging);
}

/* Whether a wait that began at start is over: RA_ERR_TIMEOUT. */
static ra_status check_deadline(const ra_comm *comm, double start, double timeout_seconds) {
    double waited = ra_clock() - start;
    if (waited < timeout_seconds) return RA_OK;
    const char *what = awaits_device(comm) ? "this rank's own device had not come to its messages by the deadline"
                                           : "no answer within the deadline";
    return ra_fail(RA_ERR_TIMEOUT, "%s (waited %.1f s in this step)", what, waited);
}

static double time_left(double start, double timeout_seconds) {
    double left = start + timeout_seconds - ra_clock();
    return left < 0 ? 0 : left > RA_LONGEST_WAIT ? RA_LONGEST_WAIT : left;
}

ra_status ra_comm_wait(ra_comm *comm, const ra_message *messages, int count, double timeout_seconds, ra_place place) {
    if (count == 0) return RA_OK;
    double start = ra_clock();
    ra_watch watch = comm->watched ? comm->watch : ra_watch_start(timeout_seconds);
    comm->watched = NULL;
    for (int done = 0; !done;) {
        int culprit = -1, had_left = !awaits_device(comm);
        double seconds = comm->ops.inquire ? ra_watch_slice(&watch) : time_left(start, timeout_seconds);
        ra_status status = poll(comm, seconds, &done, &culprit);
        const ra_message *message = culprit >= 0 && culprit < count ? &messages[culprit] : NULL;
        if (status == RA_OK && done)
            status = join(comm);
        else if (status == RA_OK && (!comm->ops.inquire || awaits_device(comm)))
            status = check_deadline(comm, start, timeout_seconds);
        else if (status == RA_OK && had_left)
            status = ra_watch_check(&watch, comm, message ? message->peer : -1);
        else if (status == RA_OK)
            watch = ra_watch_start(timeout_seconds); /* the device came to it: peers can be asked */
        if (status != RA_OK) return lose_at(comm, status, message, place);
    }
    comm->in_flight = (ra_queue){0};
    comm->posted = 0;
    return RA_OK;
}

/* ---- memory of peers --------------------------------------------------------------------------------------------- */

int ra_comm_shares_memory(const ra_comm *comm) {
    return comm->memory_ops && comm->ranks > 1;
}

ra_status ra_comm_borrow(ra_comm *comm, ra_place place) {
    ra_status status = comm->memory_ops->borrow(comm->self);
    return status == RA_OK ? RA_OK : lose_at(comm, status, NULL, place);
}

ra_status ra_comm_give_back(ra_comm *comm, void *stream, ra_place place) {
    ra_status status = comm->memory_ops->give_back(comm->self, stream);
    return status == RA_OK ? RA_OK : lose_at(comm, status, NULL, place);
}

void ra_comm_settle(ra_comm *comm) {
    comm->memory_ops->settle(comm->self);
}

/* ---- between groups ---------------------------------------------------------------------------------------------- */

void ra_comm_watch(ra_comm *comm, const ra_message *messages, int count, double timeout_seconds) {
    if (count == 0 || !comm->ops.inquire || awaits_device(comm)) return;
    comm->watched = messages;
    comm->watched_count = count;
    comm->watch = ra_watch_start(timeout_seconds);
}

/* Once in a slice: whether the peer that the group still needs is alive. The next wait finds that it is not. */
static void look_after(ra_comm *comm, int culprit) {
    if (ra_clock() - comm->watch.polled < comm->watch.slice) return;
    int peer = culprit >= 0 && culprit < comm->watched_count ? comm->watched[culprit].peer : -1;
    if (peer >= 0) remember(comm, ra_watch_check(&comm->watch, comm, peer), culprit);
    ra_watch_slice(&comm->watch);
}

/* Without a group in flight it is only for peers that ask, who are patient. */
static const double LISTEN_SECONDS = 1e-3;

void ra_comm_progress(ra_comm *comm) {
    int done, culprit;
    if (!comm || comm->broken || comm->failure != RA_OK || comm->ranks == 1) return;
    if (!comm->posted) {
        double now = comm->ops.inquire ? ra_clock() : 0;
        if (!comm->ops.inquire || now - comm->listened < LISTEN_SECONDS) return;
        comm->listened = now;
    }
    ra_status status = poll(comm, 0, &done, &culprit);
    if (status == RA_OK && !done && comm->posted && comm->watched) look_after(comm, culprit);
}

/* An empty group is done at once, unless a peer has given up. Where groups end on the device, the last one counts on.
 */
int ra_comm_lost(ra_comm *comm) {
    int done, culprit;
    if (!comm || comm->broken || comm->failure != RA_OK) return comm != NULL;
    if (!comm->ops.inquire || comm->posted || comm->ranks == 1) return 0;
    unsigned said = ra_fail_count();
    if (!comm->ops.ends_on_device) remember(comm, vet(comm, comm->ops.post(comm->self, NULL, 0, NULL), said), -1);
    return poll(comm, 0, &done, &culprit) != RA_OK;
}

/* Asks at first without a pause, then after longer and longer ones: a pass may take microseconds or minutes. The
 * shortest pause lasts 70 us or so, whatever it is asked for. Other ranks' threads, where there are more than cores,
 * may have work for the device: they go first. */
static void pause_for(double waited) {
    if (waited < 1e-2) {
        sched_yield();
        return;
    }
    nanosleep(&(struct timespec){.tv_nsec = waited < 0.1 ? 20000 : 1000000}, NULL);
}

ra_status ra_comm_wait_event(ra_comm *comm, const ra_device *device, void *event, double timeout_seconds) {
    ra_place place = {"waiting for the device", -1};
    double start = ra_clock();
    for (;;) {
        int done = 0, over, culprit;
        ra_status status = device->query(device, event, &done);
        if (status != RA_OK) return lose_at(comm, status, NULL, place);
        if (done) return RA_OK;
        double waited = ra_clock() - start;
        if (!comm->ops.ends_on_device)
            ra_comm_progress(comm); /* its peers may ask after it */
        else if (!comm->broken) {
            status = poll(comm, 0, &over, &culprit);
            if (status == RA_OK && waited > timeout_seconds)
                status = ra_fail(RA_ERR_TIMEOUT, "the device was still waiting for its peers after %.1f s", waited);
            if (status != RA_OK) return lose_at(comm, status, NULL, place);
        }
        pause_for(waited);
    }
}
