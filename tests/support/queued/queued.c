#include "support/queued/queued.h"

#include "base/status.h"
#include "support/queued/queued_kernel.h"
#include "support/queued/queued_stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STREAMS = 256 };

struct queued_device {
    ra_device device; /* first: the table is the object */
    ra_backend backend;
    queued_habits habits;
    pthread_mutex_t lock; /* of the fields that follow, none of which jobs touch */
    queued_stream *streams[MOST_STREAMS];
    int stream_count, streams_alive;
    int64_t bytes, memory_calls, copies, waits, checks;
    queued_event **ended; /* freed at last: streams may still wait for them */
    int64_t ended_count;
};

static queued_device *of(const ra_device *device) {
    return (queued_device *)device;
}

static void drain_all(queued_device *q) {
    for (int i = 0; i < q->stream_count; i++)
        if (q->streams[i]) queued_drain(q->streams[i]);
}

enum { ALIGNMENT = 256 };

/* The size stands before the memory. */
static void *allocate(const ra_device *device, size_t bytes) {
    queued_device *q = of(device);
    unsigned char *block = NULL;
    if (posix_memalign((void **)&block, ALIGNMENT, bytes + ALIGNMENT) != 0) return NULL;
    memset(block, 0xff, bytes + ALIGNMENT); /* NaN: what is not written shows */
    memcpy(block, &bytes, sizeof bytes);
    pthread_mutex_lock(&q->lock);
    q->bytes += (int64_t)bytes;
    q->memory_calls++;
    pthread_mutex_unlock(&q->lock);
    return block + ALIGNMENT;
}

static void release(const ra_device *device, void *memory) {
    queued_device *q = of(device);
    size_t bytes;
    pthread_mutex_lock(&q->lock);
    drain_all(q);
    memcpy(&bytes, (unsigned char *)memory - ALIGNMENT, sizeof bytes);
    q->bytes -= (int64_t)bytes;
    q->memory_calls++;
    pthread_mutex_unlock(&q->lock);
    free((unsigned char *)memory - ALIGNMENT);
}

static ra_status enter(const ra_device *device, int *previous_out) {
    (void)device;
    *previous_out = 7;
    return RA_OK;
}

static void leave(const ra_device *device, int previous) {
    (void)device;
    if (previous != 7) abort();
}

static ra_status stream_create(const ra_device *device, int urgent, void **stream_out) {
    (void)urgent;
    queued_device *q = of(device);
    pthread_mutex_lock(&q->lock);
    int i = 0;
    while (i < MOST_STREAMS && q->streams[i]) i++;
    if (i == MOST_STREAMS) abort();
    queued_habits habits = q->habits;
    habits.seed += (uint64_t)i * 7919;
    q->streams[i] = *stream_out = queued_stream_make(habits);
    if (i >= q->stream_count) q->stream_count = i + 1;
    q->streams_alive++;
    pthread_mutex_unlock(&q->lock);
    return RA_OK;
}

static void stream_destroy(const ra_device *device, void *stream) {
    queued_device *q = of(device);
    pthread_mutex_lock(&q->lock);
    for (int i = 0; i < q->stream_count; i++)
        if (q->streams[i] == stream) q->streams[i] = NULL;
    q->streams_alive--;
    pthread_mutex_unlock(&q->lock);
    queued_stream_end(stream);
}

static ra_status event_create(const ra_device *device, void **event_out) {
    (void)device;
    *event_out = queued_event_make();
    return RA_OK;
}

static void event_destroy(const ra_device *device, void *event) {
    queued_device *q = of(device);
    pthread_mutex_lock(&q->lock);
    q->ended = realloc(q->ended, (size_t)(q->ended_count + 1) * sizeof(queued_event *));
    if (!q->ended) abort();
    q->ended[q->ended_count++] = event;
    pthread_mutex_unlock(&q->lock);
}

static ra_status signal_event(const ra_device *device, void *event, void *stream) {
    (void)device;
    queued_record(event, stream);
    return RA_OK;
}

static ra_status wait(const ra_device *device, void *stream, void *event) {
    queued_device *q = of(device);
    pthread_mutex_lock(&q->lock);
    int ignored = q->habits.ignore_wait && ++q->waits % q->habits.ignore_wait == 0;
    pthread_mutex_unlock(&q->lock);
    if (!ignored) queued_wait(stream, event);
    return RA_OK;
}

static ra_status query(const ra_device *device, void *event, int *done_out) {
    (void)device;
    *done_out = queued_is_done(event);
    return RA_OK;
}

static void run_copy(const job *j) {
    memcpy(j->to, j->from, (size_t)j->count);
}

static ra_status copy(const ra_device *device, void *to, const void *from, size_t bytes, void *stream) {
    queued_device *q = of(device);
    pthread_mutex_lock(&q->lock);
    q->copies++;
    pthread_mutex_unlock(&q->lock);
    queued_put(stream, &(job){.run = run_copy, .to = to, .from = from, .count = (int64_t)bytes});
    return RA_OK;
}

static void run_zero(const job *j) {
    memset(j->to, 0, (size_t)j->count);
}

static void zero(const ra_device *device, void *memory, size_t bytes, void *stream) {
    (void)device;
    queued_put(stream, &(job){.run = run_zero, .to = memory, .count = (int64_t)bytes});
}

static ra_status check(const ra_device *device) {
    queued_device *q = of(device);
    pthread_mutex_lock(&q->lock);
    int refused = q->habits.refuse_check && ++q->checks == q->habits.refuse_check;
    pthread_mutex_unlock(&q->lock);
    return refused ? ra_fail(RA_ERR_MEMORY, "a launch was refused") : RA_OK;
}

queued_device *queued_create(queued_habits habits) {
    queued_device *q = calloc(1, sizeof *q);
    if (!q) return NULL;
    q->habits = habits;
    q->device = (ra_device){.name = "queued",
                            .allocate = allocate,
                            .release = release,
                            .zero = zero,
                            .enter = enter,
                            .leave = leave,
                            .allocate_host = allocate,
                            .release_host = release,
                            .stream_create = stream_create,
                            .stream_destroy = stream_destroy,
                            .event_create = event_create,
                            .event_destroy = event_destroy,
                            .signal = signal_event,
                            .wait = wait,
                            .query = query,
                            .copy = copy,
                            .check = check};
    q->backend = (ra_backend){RA_INTERNAL_VERSION, &q->device, queued_kernel_at};
    pthread_mutex_init(&q->lock, NULL);
    return q;
}

const ra_backend *queued_backend(queued_device *queued) {
    return &queued->backend;
}

int queued_streams(queued_device *q) {
    return q->streams_alive;
}

int64_t queued_bytes(queued_device *q) {
    return q->bytes;
}

int64_t queued_memory_calls(queued_device *q) {
    return q->memory_calls;
}

int64_t queued_copies(queued_device *q) {
    return q->copies;
}

void queued_destroy(queued_device *q) {
    for (int64_t i = 0; i < q->ended_count; i++) queued_event_end(q->ended[i]);
    free(q->ended);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
