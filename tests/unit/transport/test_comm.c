/* What a comm makes of a transport that is careless: statuses that are none, errors without a text, errors said once;
 * and what it tells peers of a failure that it has heard of itself. */
#include "support/cmocka.h"

#include "base/status.h"
#include "transport/comm.h"

#include <stdio.h>
#include <string.h>

typedef struct careless {
    ra_status post, poll; /* what they return */
    int posts, reserves;
    const char *why;     /* what poll says; NULL: nothing */
    int polls_that_fail; /* then it says that all is done */
    int polls;
    char told[512];
} careless;

static ra_status post(void *self, const ra_message *messages, int count, void *stream) {
    (void)messages, (void)count, (void)stream;
    ((careless *)self)->posts++;
    return ((careless *)self)->post;
}

static ra_status poll(void *self, double seconds, int *done_out, int *culprit_out) {
    (void)seconds;
    careless *c = self;
    *done_out = c->polls++ >= c->polls_that_fail;
    *culprit_out = *done_out ? -1 : 0;
    if (*done_out) return RA_OK;
    return c->why ? ra_fail(c->poll, "%s", c->why) : c->poll;
}

static int abandon(void *self, const char *reason) {
    snprintf(((careless *)self)->told, sizeof((careless *)self)->told, "%s", reason);
    return 1;
}

static void destroy(void *self) {
    (void)self;
}

static ra_status reserve(void *self, int count) {
    (void)count;
    ((careless *)self)->reserves++;
    return RA_OK;
}

static void inquire(void *self, int peer, ra_sign *sign_out) {
    (void)self, (void)peer;
    *sign_out = (ra_sign){.waits_for = -1};
}

static const ra_transport_ops OPS = {
    .struct_size = sizeof OPS, .name = "careless", .post = post, .poll = poll, .abandon = abandon, .destroy = destroy};

static ra_comm *create(careless *c) {
    ra_comm *comm = NULL;
    assert_int_equal(ra_comm_create_custom(&OPS, c, 0, 2, &comm), RA_OK);
    return comm;
}

/* Posts, polls so often in passing, and waits. */
static ra_status run(careless *c, int in_passing) {
    ra_comm *comm = create(c);
    char byte;
    ra_message message = {.peer = 1, .data = &byte, .bytes = 1};
    ra_place place = {"a test", 3};
    ra_fail(RA_OK, "an old error");
    ra_status status = ra_comm_post(comm, &message, 1, NULL, place);
    for (int i = 0; i < in_passing && status == RA_OK; i++) ra_comm_progress(comm);
    if (status == RA_OK) status = ra_comm_wait(comm, &message, 1, 5, place);
    assert_int_equal(ra_comm_lost(comm), status != RA_OK);
    ra_comm_destroy(comm);
    return status;
}

static void expect(careless c, int in_passing, ra_status status, const char *words) {
    assert_int_equal(run(&c, in_passing), status);
    if (!strstr(ra_last_error(), words)) fail_msg("'%s' does not say '%s'", ra_last_error(), words);
    assert_null(strstr(ra_last_error(), "an old error"));
    assert_non_null(strstr(ra_last_error(), "rank 0, step 3 of a test"));
}

static void test_statuses_that_are_none(void **state) {
    (void)state;
    expect((careless){.post = (ra_status)12345}, 0, RA_ERR_TRANSPORT,
           "'careless' failed with 12345, which is no status");
    expect((careless){.poll = (ra_status)-1, .polls_that_fail = 9}, 0, RA_ERR_TRANSPORT, "'careless' failed with -1");
    expect((careless){.poll = (ra_status)(RA_ERR_DEVICE + 1), .polls_that_fail = 9, .why = "no cable"}, 0,
           RA_ERR_TRANSPORT, "which is no status: no cable");
}

static void test_errors_without_a_text(void **state) {
    (void)state;
    expect((careless){.post = RA_ERR_MEMORY}, 0, RA_ERR_MEMORY, "'careless' failed without a reason: out of memory");
    expect((careless){.poll = RA_ERR_PEER, .polls_that_fail = 9}, 0, RA_ERR_PEER,
           "waiting for rank 1: the transport 'careless' failed without a reason");
}

/* Found while this rank computes, and said once only. */
static void test_errors_in_passing(void **state) {
    (void)state;
    careless c = {.poll = RA_ERR_TRANSPORT, .polls_that_fail = 1, .why = "no cable"};
    expect(c, 3, RA_ERR_TRANSPORT, "waiting for rank 1: no cable");
    c.why = NULL;
    expect(c, 1, RA_ERR_TRANSPORT, "without a reason");
}

/* With every rank's own place in front, a long chain would leave no room for what happened. */
static void test_a_peers_failure_is_passed_on_as_it_was(void **state) {
    (void)state;
    careless c = {.poll = RA_ERR_PEER, .polls_that_fail = 9, .why = "rank 1 gave up: rank 3 is silent"};
    assert_int_equal(run(&c, 0), RA_ERR_PEER);
    assert_string_equal(c.told, "rank 1 gave up: rank 3 is silent");
    c = (careless){.poll = RA_ERR_TRANSPORT, .polls_that_fail = 9, .why = "no cable"};
    assert_int_equal(run(&c, 0), RA_ERR_TRANSPORT);
    assert_string_equal(c.told, "rank 0, step 3 of a test, waiting for rank 1: no cable");
}

static void test_lost(void **state) {
    (void)state;
    careless c = {.poll = RA_OK};
    ra_comm *comm = create(&c);
    assert_false(ra_comm_lost(NULL));
    assert_false(ra_comm_lost(comm));
    ra_comm_lose(comm, ra_fail(RA_ERR_MEMORY, "no memory"));
    assert_true(ra_comm_lost(comm));
    ra_comm_progress(comm);
    ra_comm_progress(NULL);
    assert_int_equal(c.polls, 0); /* nothing but destroy after abandon */
    ra_comm_destroy(comm);
}

/* Whoever asks whether the comm is lost posts an empty group: a transport that refuses it is not called again, not for
 * a plan either. */
static void test_an_error_when_asked(void **state) {
    (void)state;
    careless c = {.post = RA_ERR_TRANSPORT};
    ra_transport_ops ops = OPS;
    ra_comm *comm = NULL;
    ra_problem problem = RA_PROBLEM_INIT;
    ra_plan *plan = NULL;
    ops.inquire = inquire;
    ops.reserve = reserve;
    problem.seq_q = problem.heads_q = problem.dim = 1;
    assert_int_equal(ra_comm_create_custom(&ops, &c, 0, 2, &comm), RA_OK);
    assert_true(ra_comm_lost(comm));
    c.post = RA_OK;
    assert_true(ra_comm_lost(comm));
    assert_int_equal(ra_plan_create(comm, &problem, NULL, &plan), RA_ERR_TRANSPORT);
    assert_non_null(strstr(ra_last_error(), "'careless' failed without a reason"));
    assert_int_equal(c.posts, 1);
    assert_int_equal(c.polls, 0);
    assert_int_equal(c.reserves, 0);
    assert_non_null(strstr(c.told, "'careless' failed"));
    ra_comm_destroy(comm);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statuses_that_are_none),
        cmocka_unit_test(test_errors_without_a_text),
        cmocka_unit_test(test_errors_in_passing),
        cmocka_unit_test(test_a_peers_failure_is_passed_on_as_it_was),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_an_error_when_asked),
    };
    return cmocka_run_group_tests_name("comm", tests, NULL, NULL);
}
