/* The group in flight: every message as a row of chunks, in order and under the message's one tag. MPI never lets
 * messages of one sender, tag and communicator overtake each other, so chunks need no numbers. */
#include "mpi_transport.h"

#include <stdio.h>
#include <stdlib.h>

static ra_status reserve(ra_mpi *mpi, const ra_message *messages, int count) {
    size_t needed = 0;
    for (int i = 0; i < count; i++) needed += (messages[i].bytes - 1) / mpi->limits.chunk_bytes + 1;
    if (needed <= mpi->chunk_capacity) return RA_OK;

    /* Only for messages of many chunks; twice what is needed, so that it happens once or twice in all. */
    ra_mpi_chunk *chunks = realloc(mpi->chunks, 2 * needed * sizeof *chunks);
    if (!chunks) return ra_fail(RA_ERR_MEMORY, "no memory for the %zu requests of a group of messages", needed);
    mpi->chunks = chunks;
    mpi->chunk_capacity = 2 * needed;
    return RA_OK;
}

static ra_status start_chunk(ra_mpi *mpi, int index, char *data, int bytes) {
    const ra_message *message = &mpi->messages[index];
    ra_mpi_chunk *chunk = &mpi->chunks[mpi->chunk_count];
    int error;
    *chunk = (ra_mpi_chunk){.request = MPI_REQUEST_NULL, .message = index, .bytes = bytes};
    if (message->is_send)
        error = MPI_Isend(data, bytes, MPI_BYTE, message->peer, message->tag, mpi->comm, &chunk->request);
    else
        error = MPI_Irecv(data, bytes, MPI_BYTE, message->peer, message->tag, mpi->comm, &chunk->request);
    if (error != MPI_SUCCESS) {
        ra_mpi_check(error, message->is_send ? "MPI_Isend" : "MPI_Irecv");
        return ra_fail(RA_ERR_TRANSPORT, "rank %d cannot be reached: %s", message->peer, ra_last_error());
    }
    mpi->chunk_count++;
    mpi->pending++;
    return RA_OK;
}

static ra_status start_message(ra_mpi *mpi, int index) {
    char *data = mpi->messages[index].data;
    size_t left = mpi->messages[index].bytes;
    while (left > 0) {
        size_t bytes = left < mpi->limits.chunk_bytes ? left : mpi->limits.chunk_bytes;
        RA_TRY(start_chunk(mpi, index, data, (int)bytes));
        data += bytes;
        left -= bytes;
    }
    return RA_OK;
}

ra_status ra_mpi_post(void *self, const ra_message *messages, int count, void *stream) {
    ra_mpi *mpi = self;
    (void)stream;
    RA_TRY(ra_mpi_check_usable());
    RA_TRY(reserve(mpi, messages, count));
    mpi->messages = messages;
    mpi->chunk_count = 0;
    mpi->pending = 0;
    mpi->failure = RA_OK;
    ra_mpi_note(mpi, -1);
    /* Receives first: what then arrives goes straight to its place. */
    for (int is_send = 0; is_send <= 1; is_send++) {
        for (int i = 0; i < count; i++) {
            if (!messages[i].is_send == !is_send) RA_TRY(start_message(mpi, i));
        }
    }
    return RA_OK;
}

static ra_status wrong_size(const ra_mpi *mpi, const ra_mpi_chunk *chunk, int came) {
    const ra_message *message = &mpi->messages[chunk->message];
    return ra_fail(RA_ERR_TRANSPORT,
                   "rank %d sent %d bytes where %d were expected (tag %d): the ranks follow different schedules; give "
                   "all of them the same problem and the same version of ringattn",
                   message->peer, came, chunk->bytes, message->tag);
}

/* Whether the chunk has come to an end, well or not. */
static int test_chunk(ra_mpi *mpi, ra_mpi_chunk *chunk, int *error_out, MPI_Status *status_out) {
    int complete = 0;
    *error_out = MPI_Test(&chunk->request, &complete, status_out);
    if (*error_out == MPI_SUCCESS && !complete) return 0;
    chunk->request = MPI_REQUEST_NULL;
    mpi->pending--;
    return 1;
}

static ra_status judge_chunk(const ra_mpi *mpi, const ra_mpi_chunk *chunk, int error, const MPI_Status *status) {
    int kind = MPI_SUCCESS, came = 0;
    if (error != MPI_SUCCESS) MPI_Error_class(error, &kind);
    if (kind != MPI_SUCCESS && kind != MPI_ERR_TRUNCATE) return ra_mpi_check(error, "MPI_Test");
    if (mpi->messages[chunk->message].is_send) return RA_OK;
    MPI_Get_count(status, MPI_BYTE, &came);
    if (kind == MPI_ERR_TRUNCATE || came != chunk->bytes) return wrong_size(mpi, chunk, came);
    return RA_OK;
}

/* Tests every chunk once; keeps the first failure. */
static void advance(ra_mpi *mpi) {
    for (size_t i = 0; i < mpi->chunk_count && mpi->pending > 0 && mpi->failure == RA_OK; i++) {
        ra_mpi_chunk *chunk = &mpi->chunks[i];
        int error;
        MPI_Status status;
        if (chunk->request == MPI_REQUEST_NULL || !test_chunk(mpi, chunk, &error, &status)) continue;
        mpi->failure = judge_chunk(mpi, chunk, error, &status);
        if (mpi->failure == RA_OK) continue;
        mpi->failed_message = chunk->message;
        snprintf(mpi->failure_text, sizeof mpi->failure_text, "%s", ra_last_error());
    }
}

/* The first message that is not complete; one with `peer` (-1: nobody) before any other. */
static int unfinished(const ra_mpi *mpi, int peer) {
    int first = -1;
    for (size_t i = 0; i < mpi->chunk_count; i++) {
        if (mpi->chunks[i].request == MPI_REQUEST_NULL) continue;
        int message = mpi->chunks[i].message;
        if (mpi->messages[message].peer == peer) return message;
        if (first < 0) first = message;
    }
    return first;
}

/* Whether a message can never be complete, because its peer has left. */
static ra_status check_left(const ra_mpi *mpi, int *culprit_out) {
    for (int rank = 0; mpi->left > 0 && rank < mpi->ranks; rank++) {
        int message = mpi->peers[rank].gone ? unfinished(mpi, rank) : -1;
        if (message < 0 || mpi->messages[message].peer != rank) continue;
        *culprit_out = message;
        return ra_fail(RA_ERR_PEER, "rank %d has left: its communicator was destroyed", rank);
    }
    return RA_OK;
}

/* Tests every chunk, then hears what peers have to say and answers them. What is complete counts before what is heard:
 * a peer that gives up or leaves later does not spoil this group. */
static ra_status look(ra_mpi *mpi, double seconds, int *done_out, int *culprit_out) {
    advance(mpi);
    *done_out = mpi->failure == RA_OK && mpi->pending == 0;
    *culprit_out = *done_out ? -1 : mpi->failure == RA_OK ? unfinished(mpi, mpi->heard_from) : mpi->failed_message;
    if (mpi->failure != RA_OK) return ra_fail(mpi->failure, "%s", mpi->failure_text);
    RA_TRY(check_left(mpi, culprit_out));
    ra_mpi_note(mpi, seconds > 0 && *culprit_out >= 0 ? mpi->messages[*culprit_out].peer : -1);
    ra_status heard = ra_mpi_hear(mpi);
    if (*done_out && mpi->chunk_count) return RA_OK; /* an empty group: somebody wants to hear */
    if (heard != RA_OK) *culprit_out = unfinished(mpi, mpi->heard_from);
    return heard;
}

ra_status ra_mpi_poll(void *self, double seconds, int *done_out, int *culprit_out) {
    ra_mpi *mpi = self;
    ra_mpi_wait wait = ra_mpi_wait_start(seconds);
    size_t before;
    do {
        before = mpi->pending;
        ra_status status = look(mpi, seconds, done_out, culprit_out);
        if (status != RA_OK || *done_out) return status;
    } while (ra_mpi_wait_pause(&wait, mpi->pending != before));
    return RA_OK;
}

void ra_mpi_drain(ra_mpi *mpi) {
    for (size_t i = 0; i < mpi->chunk_count; i++) {
        int error;
        MPI_Status status;
        if (mpi->chunks[i].request != MPI_REQUEST_NULL) test_chunk(mpi, &mpi->chunks[i], &error, &status);
    }
}

void ra_mpi_cancel_receives(ra_mpi *mpi) {
    for (size_t i = 0; i < mpi->chunk_count; i++) {
        ra_mpi_chunk *chunk = &mpi->chunks[i];
        if (chunk->request != MPI_REQUEST_NULL && !mpi->messages[chunk->message].is_send) MPI_Cancel(&chunk->request);
    }
    ra_mpi_drain(mpi);
}
