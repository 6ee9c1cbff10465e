/* Groups of device memory through host buffers, over a transport that only sees those: bytes come through in the order
 * of the messages, buffers grow with later plans, and nothing is posted before the device has come to it, nor after an
 * error. */
#include "support/cmocka.h"
#include "support/queued/queued.h"
#include "support/queued/queued_stream.h"
#include "support/rng.h"

#include "base/status.h"
#include "transport/staged.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MESSAGES = 6, MOST_BYTES = 3000 };

/* A transport that gives every receive the bytes of the send at the same place, plus one. */
typedef struct echo {
    int posts;
    int polls_that_fail; /* the first so many, and none after them */
    int64_t wrong;       /* receives without a send of their size */
} echo;

static ra_status echo_post(void *self, const ra_message *messages, int count, void *stream) {
    echo *e = self;
    e->posts++;
    e->wrong += stream != NULL || count % 2 != 0;
    for (int i = 0; i + 1 < count; i += 2) {
        const unsigned char *from = messages[i].data;
        unsigned char *to = messages[i + 1].data;
        e->wrong += messages[i].bytes != messages[i + 1].bytes || !messages[i].is_send || messages[i + 1].is_send;
        for (size_t b = 0; b < messages[i].bytes; b++) to[b] = (unsigned char)(from[b] + 1);
    }
    return RA_OK;
}

static ra_status echo_poll(void *self, double seconds, int *done_out, int *culprit_out) {
    echo *e = self;
    (void)seconds;
    *done_out = 1;
    *culprit_out = -1;
    return e->polls_that_fail-- > 0 ? ra_fail(RA_ERR_TRANSPORT, "no cable") : RA_OK;
}

static void echo_inquire(void *self, int peer, ra_sign *sign_out) {
    (void)self, (void)peer;
    *sign_out = (ra_sign){.waits_for = -1};
}

static const ra_transport_ops OPS = {
    .struct_size = sizeof OPS, .name = "echo", .post = echo_post, .poll = echo_poll, .inquire = echo_inquire};

typedef struct stage {
    queued_device *queued;
    const ra_device *device;
    void *stream, *event;
    ra_staging *staging;
    echo echo;
} stage;

static void open_stage(stage *s, uint64_t seed) {
    *s = (stage){.queued = queued_create((queued_habits){.seed = seed, .delay_one_in = 3, .delay_most_us = 300})};
    s->device = queued_backend(s->queued)->device;
    assert_int_equal(s->device->stream_create(s->device, 0, &s->stream), RA_OK);
    assert_int_equal(s->device->event_create(s->device, &s->event), RA_OK);
}

static void close_stage(stage *s) {
    ra_staging_destroy(s->staging);
    s->device->event_destroy(s->device, s->event);
    s->device->stream_destroy(s->device, s->stream);
    assert_int_equal(queued_streams(s->queued), 0);
    assert_int_equal(queued_bytes(s->queued), 0);
    queued_destroy(s->queued);
}

static void finish_group(stage *s) {
    int done = 0, culprit = 0;
    while (!done) {
        assert_int_equal(ra_staging_poll(s->staging, 0.01, &done, &culprit), RA_OK);
        assert_int_equal(culprit, -1);
    }
    assert_int_equal(ra_staging_join(s->staging, s->stream), RA_OK);
    assert_int_equal(s->device->signal(s->device, s->event, s->stream), RA_OK);
    for (done = 0; !done;) assert_int_equal(s->device->query(s->device, s->event, &done), RA_OK);
}

/* One group of random sizes: memory [messages, MOST_BYTES], a send before each receive. */
static void exchange(stage *s, rng *r, int sends) {
    ra_message messages[2 * MOST_MESSAGES];
    unsigned char *memory = s->device->allocate(s->device, (size_t)(2 * sends) * MOST_BYTES);
    size_t bytes = 0;
    for (int i = 0; i < sends; i++) {
        size_t size = (size_t)rng_between(r, 1, MOST_BYTES);
        for (int j = 0; j < 2; j++)
            messages[2 * i + j] = (ra_message){
                .peer = 1, .is_send = j == 0, .tag = i, .data = memory + (2 * i + j) * MOST_BYTES, .bytes = size};
        for (size_t b = 0; b < size; b++) memory[2 * i * MOST_BYTES + (int)b] = (unsigned char)rng_next(r);
        bytes += size;
    }
    assert_int_equal(ra_staging_attach(&OPS, &s->echo, s->device, bytes, bytes, &s->staging), RA_OK);
    assert_int_equal(ra_staging_post(s->staging, messages, 2 * sends, s->stream), RA_OK);
    finish_group(s);
    for (int i = 0; i < sends; i++) {
        const unsigned char *from = messages[2 * i].data, *to = messages[2 * i + 1].data;
        for (size_t b = 0; b < messages[2 * i].bytes; b++) assert_int_equal(to[b], (unsigned char)(from[b] + 1));
    }
    s->device->release(s->device, memory);
}

static void test_bytes_come_through_and_buffers_grow(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        stage s;
        rng r = {seed};
        open_stage(&s, seed);
        for (int i = 0; i < 6; i++) exchange(&s, &r, (int)rng_between(&r, 1, MOST_MESSAGES));
        assert_int_equal(s.echo.posts, 6);
        assert_int_equal(s.echo.wrong, 0);
        close_stage(&s);
    }
}

/* A post by itself sends nothing: the first poll that finds the copy to the buffer done does. */
static void test_nothing_leaves_before_the_device_has_come_to_it(void **state) {
    (void)state;
    stage s;
    unsigned char *memory;
    open_stage(&s, 3);
    memory = s.device->allocate(s.device, 128);
    memset(memory, 1, 128);
    ra_message messages[] = {{.peer = 1, .is_send = 1, .data = memory, .bytes = 64},
                             {.peer = 1, .data = memory + 64, .bytes = 64}};
    assert_int_equal(ra_staging_attach(&OPS, &s.echo, s.device, 64, 64, &s.staging), RA_OK);
    assert_int_equal(ra_staging_post(s.staging, messages, 2, s.stream), RA_OK);
    assert_true(ra_staging_awaits_device(s.staging));
    assert_int_equal(s.echo.posts, 0);
    finish_group(&s);
    assert_false(ra_staging_awaits_device(s.staging));
    assert_int_equal(s.echo.posts, 1);
    assert_int_equal(memory[64], 2);
    s.device->release(s.device, memory);
    close_stage(&s);
}

/* A stream that comes here goes on when nobody holds the gate. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void pass_gate(const job *j) {
    (void)j;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

/* A transport that is polled while the device computes may say once that it has failed. */
static void test_an_error_before_the_device_has_come_to_it(void **state) {
    (void)state;
    stage s;
    int done = 0, culprit = 0;
    open_stage(&s, 3);
    unsigned char *memory = s.device->allocate(s.device, 64);
    ra_message message = {.peer = 1, .is_send = 1, .data = memory, .bytes = 64};
    s.echo.polls_that_fail = 1;
    assert_int_equal(ra_staging_attach(&OPS, &s.echo, s.device, 64, 64, &s.staging), RA_OK);
    pthread_mutex_lock(&gate);
    queued_put(s.stream, &(job){.run = pass_gate});
    assert_int_equal(ra_staging_post(s.staging, &message, 1, s.stream), RA_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ra_staging_poll(s.staging, 5, &done, &culprit), RA_ERR_TRANSPORT);
        assert_string_equal(ra_last_error(), "no cable");
        assert_false(done);
    }
    assert_int_equal(s.echo.posts, 0);
    pthread_mutex_unlock(&gate);
    s.device->release(s.device, memory);
    close_stage(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_come_through_and_buffers_grow),
        cmocka_unit_test(test_nothing_leaves_before_the_device_has_come_to_it),
        cmocka_unit_test(test_an_error_before_the_device_has_come_to_it),
    };
    return cmocka_run_group_tests_name("staged", tests, NULL, NULL);
}
