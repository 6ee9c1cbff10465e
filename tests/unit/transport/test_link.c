/* Groups in device memory between in-process ranks, of more messages each time, on a device of queues: with room that
 * was made at plan time and without, every byte arrives, and what was made is given back. */
#include "support/cmocka.h"
#include "support/queued/queued.h"

#include "base/status.h"
#include "transport/comm.h"

#include <stdlib.h>

enum { RANKS = 2, MOST = 40 };

typedef struct link_case {
    const ra_device *devices[RANKS];
    int reserves;
} link_case;

/* Every rank sends `count` numbers, one a message, to the other, and sees the other's. The numbers are written by the
 * stream that the group is posted behind: a copy that does not wait for the sender brings zeros. */
static ra_status exchange(ra_comm *comm, const ra_device *device, void *stream, int count) {
    int me = ra_comm_rank(comm), *sent = device->allocate(device, sizeof(int[MOST]));
    int *received = device->allocate(device, sizeof(int[MOST])), numbers[MOST], wrong = 0;
    ra_message messages[2 * MOST];
    for (int i = 0; i < count; i++) {
        numbers[i] = 1000 * me + i;
        sent[i] = 0;
        messages[2 * i] = (ra_message){.peer = !me, .is_send = 1, .tag = i, .data = &sent[i], .bytes = sizeof *sent};
        messages[2 * i + 1] = (ra_message){.peer = !me, .tag = i, .data = &received[i], .bytes = sizeof *received};
    }
    ra_place place = {"an exchange", count};
    ra_queue queue = {device, stream};
    void *event = NULL;
    RA_TRY(device->event_create(device, &event));
    RA_TRY(device->copy(device, sent, numbers, sizeof numbers[0] * (size_t)count, stream));
    RA_TRY(ra_comm_post(comm, messages, 2 * count, &queue, place));
    RA_TRY(ra_comm_wait(comm, messages, 2 * count, 10, place));
    RA_TRY(device->signal(device, event, stream));
    RA_TRY(ra_comm_wait_event(comm, device, event, 10));
    for (int i = 0; i < count; i++) wrong += received[i] != 1000 * !me + i;
    device->event_destroy(device, event);
    device->release(device, sent);
    device->release(device, received);
    return wrong ? ra_fail(RA_ERR_INTERNAL, "%d of %d numbers are wrong", wrong, count) : RA_OK;
}

static ra_status body(ra_comm *comm, void *user) {
    const link_case *c = user;
    const ra_device *device = c->devices[ra_comm_rank(comm)];
    void *stream = NULL;
    RA_TRY(device->stream_create(device, 0, &stream));
    RA_TRY(ra_comm_attach(comm, device, (ra_group_size){0}));
    for (int count = 1; count <= MOST; count += 13) {
        if (c->reserves) RA_TRY(ra_comm_attach(comm, device, (ra_group_size){.messages = 2 * count}));
        RA_TRY(exchange(comm, device, stream, count));
        RA_TRY(exchange(comm, device, stream, 1));
    }
    device->stream_destroy(device, stream);
    return RA_OK;
}

static void exchange_all(int reserves) {
    queued_device *queued[RANKS];
    link_case c = {.reserves = reserves};
    for (int r = 0; r < RANKS; r++) {
        queued[r] = queued_create((queued_habits){.seed = 7 + (uint64_t)r, .delay_one_in = 2, .delay_most_us = 500});
        assert_non_null(queued[r]);
        c.devices[r] = queued_backend(queued[r])->device;
    }
    ra_status status = ra_run_threads(RANKS, body, &c);
    if (status != RA_OK) fail_msg("%s", ra_last_error());
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(queued_streams(queued[r]), 0);
        queued_destroy(queued[r]);
    }
}

static void test_groups_that_were_announced(void **state) {
    (void)state;
    exchange_all(1);
}

static void test_groups_that_were_not(void **state) {
    (void)state;
    exchange_all(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_that_were_announced),
        cmocka_unit_test(test_groups_that_were_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
