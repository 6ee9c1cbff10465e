#include "transport/staged.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum phase { IDLE, LEAVING, MOVING, DONE } phase; /* device → buffer; between the hosts; all there */

/* One of the two buffers. Those that were too small for a later plan are kept, since copies may be under way. */
typedef struct buffer {
    unsigned char *memory;
    size_t bytes;
    struct buffer *smaller;
} buffer;

struct ra_staging {
    const ra_transport_ops *ops;
    void *self;
    const ra_device *device;
    void *stream;
    void *ready, *left, *arrived; /* events: the caller's stream at post; the sends are in their buffer; all is over */
    buffer *send, *receive;
    const ra_message *messages; /* of the group in flight, in device memory */
    ra_message *staged;         /* the same in the buffers */
    int count, capacity;
    phase phase;
    int held; /* the transport may still use the buffers */
    /* Of a poll that failed, which may have been one whose result nobody looked at. */
    ra_status failure;
    int culprit;
    char why[512];
};

/* ---- making ------------------------------------------------------------------------------------------------------ */

static ra_status grow(const ra_device *device, buffer **top, size_t bytes) {
    if (*top && (*top)->bytes >= bytes) return RA_OK;
    buffer *larger = calloc(1, sizeof *larger);
    if (larger) larger->memory = device->allocate_host(device, bytes);
    if (!larger || !larger->memory) {
        free(larger);
        return ra_fail(RA_ERR_MEMORY, "no pinned memory for messages of %zu bytes", bytes);
    }
    larger->bytes = bytes;
    larger->smaller = *top;
    *top = larger;
    return RA_OK;
}

static ra_status make(const ra_device *device, ra_staging *s) {
    RA_TRY(device->stream_create(device, 1, &s->stream));
    RA_TRY(device->event_create(device, &s->ready));
    RA_TRY(device->event_create(device, &s->left));
    return device->event_create(device, &s->arrived);
}

ra_status ra_staging_attach(const ra_transport_ops *ops, void *self, const ra_device *device, size_t send_bytes,
                            size_t receive_bytes, ra_staging **staging) {
    ra_staging *s = *staging;
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s) return ra_fail(RA_ERR_MEMORY, "no memory for staging");
        *s = (ra_staging){.ops = ops, .self = self, .device = device};
        ra_status status = make(device, s);
        if (status != RA_OK) return ra_staging_destroy(s), status;
        *staging = s;
    }
    RA_TRY(grow(device, &s->send, send_bytes));
    return grow(device, &s->receive, receive_bytes);
}

static void free_buffers(const ra_device *device, buffer *b) {
    while (b) {
        buffer *next = b->smaller;
        device->release_host(device, b->memory);
        free(b);
        b = next;
    }
}

void ra_staging_destroy(ra_staging *s) {
    if (!s || s->held) return;
    const ra_device *device = s->device;
    if (s->stream) device->stream_destroy(device, s->stream);
    if (s->ready) device->event_destroy(device, s->ready);
    if (s->left) device->event_destroy(device, s->left);
    if (s->arrived) device->event_destroy(device, s->arrived);
    free_buffers(device, s->send);
    free_buffers(device, s->receive);
    free(s->staged);
    free(s);
}

/* ---- a group ----------------------------------------------------------------------------------------------------- */

static int reserve(ra_staging *s, int count) {
    if (count <= s->capacity) return 1;
    ra_message *staged = realloc(s->staged, (size_t)count * sizeof *staged);
    if (!staged) return 0;
    s->staged = staged;
    s->capacity = count;
    return 1;
}

/* Lays the messages out in the buffers, one behind the other. */
static ra_status lay_out(ra_staging *s, const ra_message *messages, int count) {
    size_t sent = 0, received = 0;
    if (!reserve(s, count)) return ra_fail(RA_ERR_MEMORY, "no memory for a group of %d messages", count);
    for (int i = 0; i < count; i++) {
        buffer *b = messages[i].is_send ? s->send : s->receive;
        size_t *at = messages[i].is_send ? &sent : &received;
        if (messages[i].bytes > b->bytes - *at)
            return ra_fail(RA_ERR_INTERNAL, "a group is larger than the buffers its plan asked for");
        s->staged[i] = messages[i];
        s->staged[i].data = b->memory + *at;
        *at += messages[i].bytes;
    }
    s->messages = messages;
    s->count = count;
    return RA_OK;
}

/* The received bytes' buffer is free: what left it is on the same stream, before what the host waits for in `left`. */
ra_status ra_staging_post(ra_staging *s, const ra_message *messages, int count, void *stream) {
    const ra_device *device = s->device;
    RA_TRY(lay_out(s, messages, count));
    RA_TRY(device->signal(device, s->ready, stream));
    RA_TRY(device->wait(device, s->stream, s->ready));
    for (int i = 0; i < count; i++)
        if (messages[i].is_send)
            RA_TRY(device->copy(device, s->staged[i].data, messages[i].data, messages[i].bytes, s->stream));
    RA_TRY(device->signal(device, s->left, s->stream));
    s->phase = LEAVING;
    return RA_OK;
}

/* Peers may ask after this rank while its device computes. An error that is met on the way ends the group: a transport
 * need not say it twice, and is not asked for anything after it. */
static ra_status show_life(ra_staging *s) {
    int done, culprit;
    return s->ops->inquire ? s->ops->poll(s->self, 0, &done, &culprit) : RA_OK;
}

/* Waits for the event for at most until `end`. */
static ra_status await_event(ra_staging *s, double end, int *done_out) {
    for (;;) {
        RA_TRY(s->device->query(s->device, s->left, done_out));
        if (*done_out || ra_clock() >= end) return RA_OK;
        RA_TRY(show_life(s));
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

static ra_status arrive(ra_staging *s) {
    for (int i = 0; i < s->count; i++)
        if (!s->messages[i].is_send)
            RA_TRY(s->device->copy(s->device, s->messages[i].data, s->staged[i].data, s->messages[i].bytes, s->stream));
    RA_TRY(s->device->signal(s->device, s->arrived, s->stream));
    s->phase = DONE;
    return RA_OK;
}

static ra_status advance(ra_staging *s, double seconds, int *done_out, int *culprit_out) {
    double end = ra_clock() + seconds;
    int done = 0;
    *done_out = 0;
    *culprit_out = -1;
    if (s->phase == LEAVING) {
        RA_TRY(await_event(s, end, &done));
        if (!done) return RA_OK;
        RA_TRY(s->ops->post(s->self, s->staged, s->count, NULL));
        s->phase = MOVING;
    }
    if (s->phase == MOVING) {
        double left = end - ra_clock();
        RA_TRY(s->ops->poll(s->self, left > 0 ? left : 0, &done, culprit_out));
        if (!done) return RA_OK;
        RA_TRY(arrive(s));
    }
    *done_out = 1;
    return RA_OK;
}

ra_status ra_staging_poll(ra_staging *s, double seconds, int *done_out, int *culprit_out) {
    if (s->failure == RA_OK) {
        s->failure = advance(s, seconds, done_out, &s->culprit);
        *culprit_out = s->culprit;
        if (s->failure != RA_OK) snprintf(s->why, sizeof s->why, "%s", ra_last_error());
        return s->failure;
    }
    *done_out = 0;
    *culprit_out = s->culprit;
    return ra_fail(s->failure, "%s", s->why);
}

int ra_staging_awaits_device(const ra_staging *s) {
    return s->phase == LEAVING;
}

ra_status ra_staging_join(ra_staging *s, void *stream) {
    s->phase = IDLE;
    return s->device->wait(s->device, stream, s->arrived);
}

/* What is still to come of a group are copies of this rank's own, which end by themselves: release waits for them. */
int ra_staging_abandon(ra_staging *s, int buffers_held) {
    s->held = buffers_held;
    return 0;
}
