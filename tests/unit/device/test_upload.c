/* Uploads: on the device of queues, where what is not ordered happens in any order, bytes are there for the stream that
 * joins, and no block is written to while it is still read. On a stream that captures, nothing of the upload becomes
 * part of what is captured. */
#include "support/cmocka.h"
#include "support/queued/queued.h"
#include "support/queued/queued_stream.h"
#include "support/rng.h"

#include "device/upload.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { BYTES = 3000, UPLOADS = 30 };

static const queued_habits slow = {.seed = 3, .delay_one_in = 2, .delay_most_us = 500};

/* One upload and what a stream has read of it. */
typedef struct task {
    ra_upload upload;
    unsigned char want[BYTES], got[BYTES];
} task;

static void upload(ra_uploader *uploader, task *t, int seed) {
    memset(t->want, seed, sizeof t->want);
    assert_int_equal(ra_upload_begin(uploader, BYTES, 2 * BYTES, &t->upload), RA_OK);
    memcpy(t->upload.pinned->memory, t->want, sizeof t->want);
    assert_int_equal(ra_upload_send(&t->upload, BYTES), RA_OK);
}

/* Work of a pass: reads the memory, and writes behind what was uploaded. */
static void run_pass(const ra_device *device, task *t, void *stream) {
    assert_int_equal(ra_upload_join(&t->upload, stream), RA_OK);
    assert_int_equal(device->copy(device, t->got, t->upload.memory->memory, BYTES, stream), RA_OK);
    device->zero(device, t->upload.memory->memory + BYTES, BYTES, stream);
    assert_int_equal(ra_upload_mark(&t->upload, stream), RA_OK);
}

/* Plans that come and go without a wait, their passes on two streams. */
static void test_bytes_are_there_for_who_joins(void **state) {
    (void)state;
    queued_device *queued = queued_create(slow);
    const ra_device *device = queued_backend(queued)->device;
    ra_uploader *list = NULL, *uploader = NULL, *again = NULL;
    void *streams[2];
    static task tasks[UPLOADS];
    assert_int_equal(ra_uploader_find(&list, device, &uploader), RA_OK);
    assert_int_equal(ra_uploader_find(&list, device, &again), RA_OK);
    assert_ptr_equal(uploader, again);
    for (int i = 0; i < 2; i++) assert_int_equal(device->stream_create(device, 0, &streams[i]), RA_OK);
    for (int i = 0; i < UPLOADS; i++) {
        upload(uploader, &tasks[i], i + 1);
        if (i % 5 != 4) run_pass(device, &tasks[i], streams[i % 2]); /* else it ends before its upload is over */
        ra_upload_end(&tasks[i].upload);
    }
    for (int i = 0; i < 2; i++) device->stream_destroy(device, streams[i]); /* works everything off */
    for (int i = 0; i < UPLOADS; i++)
        if (i % 5 != 4) assert_memory_equal(tasks[i].got, tasks[i].want, BYTES);
    ra_uploaders_destroy(list);
    assert_int_equal(queued_bytes(queued), 0);
    assert_int_equal(queued_streams(queued), 0);
    queued_destroy(queued);
}

static atomic_int gate_open;

static void stand_at_gate(const job *j) {
    (void)j;
    while (!gate_open) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* The memory of a plan that has ended is used again when its passes are over, and not before. */
static void test_memory_in_use_is_not_taken(void **state) {
    (void)state;
    queued_device *queued = queued_create((queued_habits){.seed = 1});
    const ra_device *device = queued_backend(queued)->device;
    ra_uploader *list = NULL, *uploader = NULL;
    void *stream;
    static task first, second, third;
    assert_int_equal(ra_uploader_find(&list, device, &uploader), RA_OK);
    assert_int_equal(device->stream_create(device, 0, &stream), RA_OK);
    gate_open = 0;
    queued_put(stream, &(job){.run = stand_at_gate});
    upload(uploader, &first, 1);
    ra_block *block = first.upload.memory;
    run_pass(device, &first, stream);
    ra_upload_end(&first.upload);
    upload(uploader, &second, 2);
    assert_ptr_not_equal(second.upload.memory, block);
    gate_open = 1;
    queued_drain(stream);
    assert_memory_equal(first.got, first.want, BYTES);
    int64_t calls = queued_memory_calls(queued);
    queued_drain(uploader->stream);
    upload(uploader, &third, 3);
    assert_ptr_equal(third.upload.memory, block);
    assert_int_equal(queued_memory_calls(queued), calls);
    run_pass(device, &third, stream);
    run_pass(device, &second, stream);
    queued_drain(stream);
    assert_memory_equal(second.got, second.want, BYTES);
    assert_memory_equal(third.got, third.want, BYTES);
    ra_upload_end(&second.upload);
    ra_upload_end(&third.upload);
    device->stream_destroy(device, stream);
    ra_uploaders_destroy(list);
    queued_destroy(queued);
}

/* ---- streams that capture ---------------------------------------------------------------------------------------- */

/* What an upload asked a device for; memory is of the device of queues. */
typedef struct spy {
    ra_device table; /* first */
    const ra_device *inner;
    int capturing, waits, signals, queries;
} spy;

static spy *spy_of(const ra_device *device) {
    return (spy *)device;
}

static ra_status spy_wait(const ra_device *device, void *stream, void *event) {
    spy_of(device)->waits++;
    return spy_of(device)->inner->wait(spy_of(device)->inner, stream, event);
}

static ra_status spy_signal(const ra_device *device, void *event, void *stream) {
    spy_of(device)->signals++;
    return spy_of(device)->inner->signal(spy_of(device)->inner, event, stream);
}

static ra_status spy_query(const ra_device *device, void *event, int *done_out) {
    spy_of(device)->queries++;
    return spy_of(device)->inner->query(spy_of(device)->inner, event, done_out);
}

static ra_status spy_captures(const ra_device *device, void *stream, int *captures_out) {
    (void)stream;
    *captures_out = spy_of(device)->capturing;
    return RA_OK;
}

static void *spy_allocate(const ra_device *device, size_t bytes) {
    return spy_of(device)->inner->allocate(spy_of(device)->inner, bytes);
}

static void spy_release(const ra_device *device, void *memory) {
    spy_of(device)->inner->release(spy_of(device)->inner, memory);
}

static ra_status spy_stream_create(const ra_device *device, int urgent, void **stream_out) {
    return spy_of(device)->inner->stream_create(spy_of(device)->inner, urgent, stream_out);
}

static void spy_stream_destroy(const ra_device *device, void *stream) {
    spy_of(device)->inner->stream_destroy(spy_of(device)->inner, stream);
}

static ra_status spy_event_create(const ra_device *device, void **event_out) {
    return spy_of(device)->inner->event_create(spy_of(device)->inner, event_out);
}

static void spy_event_destroy(const ra_device *device, void *event) {
    spy_of(device)->inner->event_destroy(spy_of(device)->inner, event);
}

static ra_status spy_copy(const ra_device *device, void *to, const void *from, size_t bytes, void *stream) {
    return spy_of(device)->inner->copy(spy_of(device)->inner, to, from, bytes, stream);
}

static spy make_spy(const ra_device *inner) {
    return (spy){.table = {.name = "spy",
                           .allocate = spy_allocate,
                           .release = spy_release,
                           .allocate_host = spy_allocate,
                           .release_host = spy_release,
                           .stream_create = spy_stream_create,
                           .stream_destroy = spy_stream_destroy,
                           .event_create = spy_event_create,
                           .event_destroy = spy_event_destroy,
                           .signal = spy_signal,
                           .wait = spy_wait,
                           .query = spy_query,
                           .captures = spy_captures,
                           .copy = spy_copy},
                 .inner = inner};
}

static void test_a_stream_that_captures(void **state) {
    (void)state;
    queued_device *queued = queued_create((queued_habits){.seed = 9, .delay_one_in = 1, .delay_most_us = 3000});
    spy device = make_spy(queued_backend(queued)->device);
    ra_uploader *list = NULL, *uploader = NULL;
    void *stream;
    static task t;
    assert_int_equal(ra_uploader_find(&list, &device.table, &uploader), RA_OK);
    assert_int_equal(device.inner->stream_create(device.inner, 0, &stream), RA_OK);
    upload(uploader, &t, 7);
    device.capturing = 1;
    device.signals = 0;
    assert_int_equal(ra_upload_join(&t.upload, stream), RA_OK);
    assert_memory_equal(t.upload.memory->memory, t.want, BYTES); /* there, whenever the graph is launched */
    assert_int_equal(ra_upload_mark(&t.upload, stream), RA_OK);
    assert_int_equal(device.waits, 0);
    assert_int_equal(device.signals, 0);
    device.queries = 0;
    device.capturing = 0;
    assert_int_equal(ra_upload_join(&t.upload, stream), RA_OK);
    assert_int_equal(device.waits + device.queries, 0); /* what is there once is not asked for again */
    assert_int_equal(ra_upload_mark(&t.upload, stream), RA_OK);
    assert_int_equal(device.signals, 1);
    ra_upload_end(&t.upload);
    device.inner->stream_destroy(device.inner, stream);
    ra_uploaders_destroy(list);
    assert_int_equal(queued_bytes(queued), 0);
    queued_destroy(queued);
}

static void test_no_upload(void **state) {
    (void)state;
    ra_upload none = {0};
    assert_int_equal(ra_upload_join(&none, NULL), RA_OK);
    assert_int_equal(ra_upload_mark(&none, NULL), RA_OK);
    ra_upload_end(&none);
    ra_uploaders_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_there_for_who_joins),
        cmocka_unit_test(test_memory_in_use_is_not_taken),
        cmocka_unit_test(test_a_stream_that_captures),
        cmocka_unit_test(test_no_upload),
    };
    return cmocka_run_group_tests_name("upload", tests, NULL, NULL);
}
