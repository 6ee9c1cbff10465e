/* The group in flight: every message is one request, or two, asked after between two rounds of progress.
 *
 * Before UCX sends a large message it asks the receiver for it (a rendezvous), and until the answer comes both ranks of
 * a ring are idle. So where a rank is reached over a network the first chunk of a large message goes by itself, and the
 * second one's question is answered while the first is under way:
 *
 *     one      question ─► answer ─►           ████████████████████████
 *     chunks   █████ question ─► answer ─► ███████████████████
 *               the peer's █████
 *
 * Chunks have their message's tag, and UCX keeps the order of messages with one tag.
 */
#include "transport/ucx/ucx_transport.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

static ra_status reserve(ra_ucx *ucx, int count) {
    if (count <= ucx->transfer_capacity) return RA_OK;
    ra_ucx_transfer *transfers = realloc(ucx->transfers, 2 * (size_t)count * sizeof *transfers);
    if (!transfers) return ra_fail(RA_ERR_MEMORY, "no memory for %d messages at once", count);
    ucx->transfers = transfers;
    ucx->transfer_capacity = 2 * count;
    return RA_OK;
}

static ra_status start_chunk(ra_ucx *ucx, int index, size_t offset, size_t bytes) {
    const ra_message *m = &ucx->messages[index];
    char *data = (char *)m->data + offset;
    ra_ucx_transfer *transfer = &ucx->transfers[ucx->transfer_count];
    *transfer = (ra_ucx_transfer){.message = index, .offset = offset, .bytes = bytes};
    if (m->is_send)
        RA_TRY(ra_ucx_send_from(ucx, m->peer, m->tag, data, bytes, ucx->memory, &transfer->request));
    else
        RA_TRY(ra_ucx_receive_to(ucx, m->peer, m->tag, data, bytes, ucx->memory, &transfer->request));
    ucx->transfer_count++;
    if (transfer->request) ucx->pending++;
    return RA_OK;
}

/* Over TCP, UCX asks no question for so much: it fits a segment. */
static const size_t MOST_UNASKED = 250 << 10;

/* The bytes of a message that go first, by themselves. Both ends must decide alike, so whose memory it is plays no
 * part: one may have it on a device, the other not. */
static size_t first_chunk(const ra_ucx *ucx, const ra_message *m) {
    if (!ucx->peers[m->peer].in_chunks || m->bytes <= MOST_UNASKED) return m->bytes;
    return m->bytes / 2 < MOST_UNASKED ? m->bytes / 2 : MOST_UNASKED;
}

static ra_status start_message(ra_ucx *ucx, int index) {
    size_t bytes = ucx->messages[index].bytes, first = first_chunk(ucx, &ucx->messages[index]);
    RA_TRY(start_chunk(ucx, index, 0, first));
    return first < bytes ? start_chunk(ucx, index, first, bytes - first) : RA_OK;
}

/* An endpoint that fails is found by poll, where a notice may say more: a message to it is left for poll to name. */
static ra_status start_or_leave(ra_ucx *ucx, int index) {
    ra_status status = start_message(ucx, index);
    if (status != RA_ERR_PEER || ucx->failure != RA_OK) return status == RA_ERR_PEER ? RA_OK : status;
    ucx->failure = status;
    ucx->failed_message = index;
    snprintf(ucx->failure_text, sizeof ucx->failure_text, "%s", ra_last_error());
    return RA_OK;
}

ra_status ra_ucx_take_group(ra_ucx *ucx, const ra_message *messages, int count, ucs_memory_type_t memory) {
    RA_TRY(reserve(ucx, 2 * count));
    ucx->messages = messages;
    ucx->memory = memory;
    ucx->transfer_count = 0;
    ucx->pending = 0;
    ucx->held_back = 0;
    ucx->failure = RA_OK;
    ra_ucx_note(ucx, -1);
    return RA_OK;
}

/* Receives first: what then arrives goes straight to its place. */
ra_status ra_ucx_start_group(ra_ucx *ucx, int count) {
    for (int is_send = 0; is_send <= 1; is_send++)
        for (int i = 0; i < count; i++)
            if (!ucx->messages[i].is_send == !is_send) RA_TRY(start_or_leave(ucx, i));
    return RA_OK;
}

ra_status ra_ucx_post(void *self, const ra_message *messages, int count, void *stream) {
    ra_ucx *ucx = self;
    (void)stream;
    RA_TRY(ra_ucx_take_group(ucx, messages, count, UCS_MEMORY_TYPE_HOST));
    return ra_ucx_start_group(ucx, count);
}

static ra_status wrong_size(const ra_message *message, size_t came) {
    return ra_fail(
        RA_ERR_TRANSPORT,
        "rank %d sent %zu bytes where %zu were expected (tag %d): the ranks follow different schedules; give "
        "all of them the same problem and the same version of ringattn",
        message->peer, came, message->bytes, message->tag);
}

static ra_status judge(const ra_ucx *ucx, const ra_ucx_transfer *transfer, ucs_status_t status, size_t came) {
    const ra_message *m = &ucx->messages[transfer->message];
    if (!m->is_send && (status == UCS_ERR_MESSAGE_TRUNCATED || (status == UCS_OK && came != transfer->bytes)))
        return wrong_size(m, transfer->offset + came);
    if (status == UCS_OK) return RA_OK;
    return ra_fail(RA_ERR_PEER, "rank %d is gone (UCX: %s)", m->peer, ucx->api->ucs_status_string(status));
}

/* Asks after every transfer once; keeps the first failure. */
static void advance(ra_ucx *ucx) {
    for (int i = 0; i < ucx->transfer_count && ucx->pending > 0 && ucx->failure == RA_OK; i++) {
        ra_ucx_transfer *transfer = &ucx->transfers[i];
        const ra_message *m = &ucx->messages[transfer->message];
        size_t came = 0;
        if (!transfer->request) continue;
        ucs_status_t status = ra_ucx_test(ucx, &transfer->request, m->is_send ? NULL : &came, NULL);
        if (status == UCS_INPROGRESS) continue;
        ucx->pending--;
        ucx->failure = judge(ucx, transfer, status, came);
        if (ucx->failure == RA_OK) continue;
        ucx->failed_message = transfer->message;
        snprintf(ucx->failure_text, sizeof ucx->failure_text, "%s", ra_last_error());
    }
}

/* The first message that is not complete; one with `peer` (-1: nobody) before any other. */
static int unfinished(const ra_ucx *ucx, int peer) {
    int first = -1;
    for (int i = 0; i < ucx->transfer_count; i++) {
        if (!ucx->transfers[i].request) continue;
        int message = ucx->transfers[i].message;
        if (ucx->messages[message].peer == peer) return message;
        if (first < 0) first = message;
    }
    return first;
}

/* A peer's last word may overtake the end of what it has sent over its second endpoint (ucx_bulk.c), which is in this
 * machine's sockets by then, and read within this time of looking for it. A rank may be away between two looks, so the
 * time between them counts up to a limit. */
static const double LEFT_SECONDS = 0.1, LONGEST_LOOK = 0.001;

/* How long this rank has looked for what the peers that left have sent. */
static void count_looks(ra_ucx *ucx) {
    double now = ra_clock(), between = now - ucx->looked;
    ucx->looked = now;
    for (int rank = 0; rank < ucx->ranks; rank++)
        if (ucx->peers[rank].left) ucx->peers[rank].sought += between < LONGEST_LOOK ? between : LONGEST_LOOK;
}

/* Whether a message can never be complete, because its peer has left: what has not come a while after its last word. */
static ra_status check_left(ra_ucx *ucx, int *culprit_out) {
    if (ucx->left > 0) count_looks(ucx);
    for (int rank = 0; ucx->left > 0 && rank < ucx->ranks; rank++) {
        const ra_ucx_peer *peer = &ucx->peers[rank];
        int message = peer->left && peer->sought > LEFT_SECONDS ? unfinished(ucx, rank) : -1;
        if (message < 0 || ucx->messages[message].peer != rank) continue;
        *culprit_out = message;
        return ra_fail(RA_ERR_PEER, "rank %d has left: its communicator was destroyed", rank);
    }
    return RA_OK;
}

/* Asks after every transfer, hears what peers have to say, answers them and finds those that are gone. What is complete
 * counts before what is heard: a peer that gives up or leaves later does not spoil this group. A message that failed
 * because its peer is gone says less than the reason that somebody gave. */
static ra_status look(ra_ucx *ucx, double seconds, int *done_out, int *culprit_out) {
    int dead = -1;
    advance(ucx);
    *done_out = ucx->failure == RA_OK && ucx->pending == 0 && ucx->held_back == 0;
    *culprit_out = *done_out ? -1 : ucx->failure == RA_OK ? unfinished(ucx, ucx->heard_from) : ucx->failed_message;
    ra_ucx_note(ucx, seconds > 0 && *culprit_out >= 0 ? ucx->messages[*culprit_out].peer : -1);
    ra_status heard = ra_ucx_hear(ucx);
    if (ucx->failure != RA_OK && (heard == RA_OK || ucx->failure != RA_ERR_PEER))
        return ra_fail(ucx->failure, "%s", ucx->failure_text);
    if (*done_out && ucx->transfer_count) return RA_OK; /* an empty group: somebody wants to hear */
    if (heard == RA_OK) RA_TRY(check_left(ucx, culprit_out));
    if (heard == RA_OK) heard = ra_ucx_find_dead(ucx, NULL, &dead);
    if (heard == RA_OK) return RA_OK;
    int open = unfinished(ucx, ucx->heard_from >= 0 ? ucx->heard_from : dead);
    *culprit_out = open < 0 && ucx->failure != RA_OK ? ucx->failed_message : open;
    return heard;
}

ra_status ra_ucx_poll(void *self, double seconds, int *done_out, int *culprit_out) {
    ra_ucx *ucx = self;
    ra_ucx_wait wait = ra_ucx_wait_start(seconds);
    int progressed;
    do {
        progressed = ra_ucx_progress(ucx);
        if (ucx->held_back) RA_TRY(ra_ucx_release_group(ucx));
        ra_status status = look(ucx, seconds, done_out, culprit_out);
        if (status != RA_OK || *done_out) return status;
    } while (ra_ucx_wait_pause(&wait, progressed));
    return RA_OK;
}

void ra_ucx_drain(ra_ucx *ucx) {
    for (int i = 0; i < ucx->transfer_count; i++) {
        ra_ucx_transfer *transfer = &ucx->transfers[i];
        if (transfer->request && ra_ucx_test(ucx, &transfer->request, NULL, NULL) != UCS_INPROGRESS) ucx->pending--;
    }
}

void ra_ucx_cancel_receives(ra_ucx *ucx) {
    for (int i = 0; i < ucx->transfer_count; i++) {
        ra_ucx_transfer *transfer = &ucx->transfers[i];
        if (transfer->request && !ucx->messages[transfer->message].is_send)
            ucx->api->ucp_request_cancel(ucx->worker, transfer->request);
    }
    ra_ucx_progress(ucx);
    ra_ucx_drain(ucx);
}
