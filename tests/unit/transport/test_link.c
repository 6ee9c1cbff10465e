/* Groups in device memory between in-process ranks, of more messages each time, on a device of queues: with room that
 * was made at plan time and without, every byte arrives, and what was made is given back. */
#include "support/cmocka.h"
#include "support/queued/queued.h"
#include "support/ranks.h"

#include "base/status.h"
#include "transport/comm.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

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

/* A message without data: the other rank's number is read where it is, in stream order. */
static ra_status read_there(ra_comm *comm, const ra_device *device, void *stream, int **numbers, int round) {
    int me = ra_comm_rank(comm), value = 100 * me + round, seen = -1;
    ra_message messages[] = {{.peer = !me, .is_send = 1, .tag = 3, .bytes = sizeof value},
                             {.peer = !me, .tag = 3, .bytes = sizeof value}};
    ra_place place = {"a look", round};
    ra_queue queue = {device, stream};
    void *event = NULL;
    RA_TRY(device->event_create(device, &event));
    RA_TRY(device->copy(device, numbers[me], &value, sizeof value, stream));
    for (int i = 0; i < 2; i++) { /* the second time: both have read before either writes again */
        RA_TRY(ra_comm_post(comm, messages, 2, &queue, place));
        RA_TRY(ra_comm_wait(comm, messages, 2, 10, place));
        if (i) break;
        RA_TRY(ra_comm_borrow(comm, place));
        RA_TRY(device->copy(device, &seen, numbers[!me], sizeof seen, stream));
        RA_TRY(ra_comm_give_back(comm, stream, place));
    }
    ra_comm_settle(comm);
    RA_TRY(device->signal(device, event, stream));
    RA_TRY(ra_comm_wait_event(comm, device, event, 10));
    device->event_destroy(device, event);
    return seen == 100 * !me + round ? RA_OK : ra_fail(RA_ERR_INTERNAL, "%d was seen in round %d", seen, round);
}

typedef struct look_case {
    const ra_device *device;
    int *numbers[RANKS];
} look_case;

static ra_status look_body(ra_comm *comm, void *user) {
    look_case *c = user;
    void *stream = NULL;
    RA_TRY(c->device->stream_create(c->device, 0, &stream));
    RA_TRY(ra_comm_attach(comm, c->device, (ra_group_size){.messages = 2}));
    for (int round = 0; round < 40; round++) RA_TRY(read_there(comm, c->device, stream, c->numbers, round));
    c->device->stream_destroy(c->device, stream);
    return RA_OK;
}

static void test_messages_without_data_are_an_order(void **state) {
    (void)state;
    queued_device *queued = queued_create((queued_habits){.seed = 3, .delay_one_in = 2, .delay_most_us = 300});
    assert_non_null(queued);
    look_case c = {.device = queued_backend(queued)->device};
    for (int r = 0; r < RANKS; r++) c.numbers[r] = c.device->allocate(c.device, sizeof(int));
    int64_t before = queued_copies(queued);
    if (ra_run_threads(RANKS, look_body, &c) != RA_OK) fail_msg("%s", ra_last_error());
    assert_int_equal(queued_copies(queued) - before, 2 * 40 * RANKS); /* those of read_there alone */
    for (int r = 0; r < RANKS; r++) c.device->release(c.device, c.numbers[r]);
    queued_destroy(queued);
}

/* ---- streams that change ----------------------------------------------------------------------------------------- */

/* Rank 0's number is written on one stream, behind which it posts an order; before rank 1 has joined it, rank 0 posts
 * the next pass's first group behind another stream, which waits for nothing. */
typedef struct change_case {
    const ra_device *device;
    int *number;
    _Atomic int posted;
} change_case;

enum { NUMBERS = 50 };

static ra_status write_twice(ra_comm *comm, change_case *c, void *const *streams, const ra_message *orders) {
    static const int numbers[2] = {1, 7};
    ra_place place = {"an order", -1};
    for (int i = 0; i < NUMBERS; i++)
        RA_TRY(c->device->copy(c->device, c->number, &numbers[i + 1 == NUMBERS], sizeof *numbers, streams[0]));
    RA_TRY(ra_comm_post(comm, &orders[0], 1, &(ra_queue){c->device, streams[0]}, place));
    RA_TRY(ra_comm_wait(comm, &orders[0], 1, 10, place));
    ra_comm_settle(comm);
    RA_TRY(ra_comm_post(comm, &orders[1], 1, &(ra_queue){c->device, streams[1]}, place));
    c->posted = 1;
    return ra_comm_wait(comm, &orders[1], 1, 10, place);
}

static ra_status read_late(ra_comm *comm, change_case *c, void *const *streams, const ra_message *orders,
                           int *seen_out) {
    ra_place place = {"an order", -1};
    RA_TRY(ra_comm_post(comm, &orders[0], 1, &(ra_queue){c->device, streams[0]}, place));
    while (!c->posted) sched_yield();
    RA_TRY(ra_comm_wait(comm, &orders[0], 1, 10, place));
    RA_TRY(c->device->copy(c->device, seen_out, c->number, sizeof *seen_out, streams[0]));
    RA_TRY(ra_comm_post(comm, &orders[1], 1, &(ra_queue){c->device, streams[1]}, place));
    return ra_comm_wait(comm, &orders[1], 1, 10, place);
}

static ra_status change_body(ra_comm *comm, void *user) {
    change_case *c = user;
    const ra_device *device = c->device;
    int me = ra_comm_rank(comm), seen = 7;
    ra_message orders[2];
    void *streams[2];
    for (int i = 0; i < 2; i++) {
        orders[i] = (ra_message){.peer = !me, .is_send = !me, .tag = i, .bytes = 1};
        RA_TRY(device->stream_create(device, 0, &streams[i]));
    }
    RA_TRY(ra_comm_attach(comm, device, (ra_group_size){.messages = 1}));
    RA_TRY(me ? read_late(comm, c, streams, orders, &seen) : write_twice(comm, c, streams, orders));
    for (int i = 0; i < 2; i++) device->stream_destroy(device, streams[i]); /* when it is done */
    return seen == 7 ? RA_OK : ra_fail(RA_ERR_INTERNAL, "%d was seen", seen);
}

static void test_an_order_is_of_its_own_stream(void **state) {
    (void)state;
    queued_device *queued = queued_create((queued_habits){.seed = 5, .delay_one_in = 2, .delay_most_us = 500});
    assert_non_null(queued);
    change_case c = {.device = queued_backend(queued)->device};
    c.number = c.device->allocate(c.device, sizeof(int));
    if (ra_run_threads(RANKS, change_body, &c) != RA_OK) fail_msg("%s", ra_last_error());
    c.device->release(c.device, c.number);
    queued_destroy(queued);
}

/* ---- a rank that gives up ---------------------------------------------------------------------------------------- */

/* Rank 1 is putting work in rank 0's memory on its stream, which is slow, when rank 0 gives up: that waits, and rank
 * 0's stream as well, though rank 0 has posted and nothing more. So it does when rank 1 is a pass ahead, on another
 * stream. Afterwards nobody borrows. */
typedef struct recall_case {
    const ra_device *device;
    int *number;
    int ahead;
    _Atomic int borrowed, given_back;
    int was_given_back, status_later;
} recall_case;

static ra_status recall_body(ra_comm *comm, void *user) {
    recall_case *c = user;
    const ra_device *device = c->device;
    int me = ra_comm_rank(comm), seven = 7, zero = 0;
    ra_message message = {.peer = !me, .is_send = !me, .tag = 1, .bytes = 1};
    ra_place place = {"a recall", -1};
    void *stream = NULL, *next = NULL, *event = NULL;
    RA_TRY(device->stream_create(device, 0, &stream));
    RA_TRY(device->stream_create(device, 0, &next));
    RA_TRY(device->event_create(device, &event));
    RA_TRY(ra_comm_attach(comm, device, (ra_group_size){.messages = 1}));
    RA_TRY(ra_comm_post(comm, &message, 1, &(ra_queue){device, stream}, place));
    RA_TRY(ra_comm_wait(comm, &message, 1, 10, place));
    if (me == 1) {
        RA_TRY(ra_comm_borrow(comm, place));
        c->borrowed = !c->ahead;
        nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
        for (int i = 0; i < 200; i++) RA_TRY(device->copy(device, c->number, &seven, sizeof seven, stream));
        c->given_back = 1;
        RA_TRY(ra_comm_give_back(comm, stream, place));
        if (c->ahead) ra_comm_settle(comm);
        while (ra_comm_borrow(comm, place) == RA_OK) {
            RA_TRY(ra_comm_give_back(comm, next, place));
            c->borrowed = 1;
        }
        c->status_later = (int)RA_ERR_PEER;
    } else {
        while (!c->borrowed) sched_yield();
        ra_comm_lose(comm, ra_fail(RA_ERR_MEMORY, "a rank gives up on purpose"));
        c->was_given_back = c->given_back;
        RA_TRY(device->copy(device, c->number, &zero, sizeof zero, stream)); /* the memory is its own again */
    }
    RA_TRY(device->signal(device, event, stream));
    for (int done = 0; !done;) RA_TRY(device->query(device, event, &done));
    device->event_destroy(device, event);
    device->stream_destroy(device, stream);
    device->stream_destroy(device, next);
    return RA_OK;
}

static void test_who_gives_up_gets_its_memory_back(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        queued_device *queued = queued_create((queued_habits){.seed = seed, .delay_one_in = 8, .delay_most_us = 300});
        assert_non_null(queued);
        recall_case c = {.device = queued_backend(queued)->device, .ahead = seed > 5};
        c.number = c.device->allocate(c.device, sizeof(int));
        ra_comm *comms[RANKS];
        rank_outcome outcomes[RANKS];
        assert_int_equal(ra_comm_create_threads(RANKS, comms), RA_OK);
        ranks_run(comms, RANKS, recall_body, &c, outcomes);
        for (int r = 0; r < RANKS; r++)
            if (outcomes[r].status != RA_OK) fail_msg("%s", outcomes[r].error);
        ranks_destroy(comms, RANKS);
        assert_int_equal(c.was_given_back, 1);
        assert_int_equal(c.status_later, (int)RA_ERR_PEER);
        assert_int_equal(*c.number, 0);
        c.device->release(c.device, c.number);
        queued_destroy(queued);
    }
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
        cmocka_unit_test(test_groups_that_were_announced),         cmocka_unit_test(test_groups_that_were_not),
        cmocka_unit_test(test_messages_without_data_are_an_order), cmocka_unit_test(test_an_order_is_of_its_own_stream),
        cmocka_unit_test(test_who_gives_up_gets_its_memory_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
