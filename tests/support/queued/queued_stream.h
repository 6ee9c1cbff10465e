/* The streams and events of queued.h: in-order queues of jobs, each with a thread. */
#ifndef TESTS_SUPPORT_QUEUED_STREAM_H
#define TESTS_SUPPORT_QUEUED_STREAM_H

#include "kernel/kernel.h"
#include "support/queued/queued.h"

typedef struct queued_stream queued_stream;
typedef struct queued_event queued_event;
typedef struct queued_mark queued_mark;

/* One piece of work with all that it may need; run is given the job itself. */
typedef struct job {
    void (*run)(const struct job *job);
    struct job *next;
    ra_shape shape;
    ra_context context;
    ra_forward_call forward;
    ra_backward_call backward;
    ra_kv_rows own;
    ra_state state, other;
    ra_view a, b;
    void *to, *to_too;
    const void *from;
    ra_span rows, heads;
    int64_t count, more, width;
    double value;
    queued_event *event;
    queued_mark *mark; /* of the event */
} job;

queued_stream *queued_stream_make(queued_habits habits);

/* Works everything off first. */
void queued_stream_end(queued_stream *stream);

/* Copies the job. */
void queued_put(queued_stream *stream, const job *j);

/* Until everything put so far is done. */
void queued_drain(queued_stream *stream);

queued_event *queued_event_make(void);
void queued_event_end(queued_event *event);
void queued_record(queued_event *event, queued_stream *stream);
void queued_wait(queued_stream *stream, queued_event *event);
int queued_is_done(queued_event *event);

#endif
