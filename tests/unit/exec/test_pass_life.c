/* The life of a pass over a transport that ends on the device: pending until it was waited for, spoiled when the comm
 * is lost before that, and left alone afterwards. One rank on a device of queues; the transport has nobody to talk to.
 */
#include "support/cmocka.h"
#include "support/problems/case.h"
#include "support/queued/queued.h"

#include "base/status.h"
#include "exec/plan.h"

#include <math.h>

static ra_status post(void *self, const ra_message *messages, int count, void *stream) {
    (void)self, (void)messages, (void)count, (void)stream;
    return RA_OK;
}

static ra_status poll(void *self, double seconds, int *done_out, int *culprit_out) {
    (void)self, (void)seconds;
    *done_out = 1;
    *culprit_out = -1;
    return RA_OK;
}

static int abandon(void *self, const char *reason) {
    (void)self, (void)reason;
    return 1;
}

static void destroy(void *self) {
    (void)self;
}

static ra_comm *create_comm(void) {
    static const ra_transport_ops ops = {.struct_size = sizeof ops,
                                         .name = "alone",
                                         .post = post,
                                         .poll = poll,
                                         .abandon = abandon,
                                         .destroy = destroy,
                                         .ends_on_device = 1};
    ra_comm *comm = NULL;
    assert_int_equal(ra_comm_create_custom(&ops, NULL, 0, 1, &comm), RA_OK);
    return comm;
}

enum { ROOM = 203 * 2 * 8, TENSORS = 8 };

typedef struct life {
    queued_device *queued;
    ra_comm *comm;
    ra_plan *plan;
    void *stream;
    double *memory; /* [TENSORS, ROOM]: q, k, v and dout; o, lse, dq; dk and dv */
    ra_tensors t;
    ra_gradients g;
} life;

enum { IN, O, LSE, DQ, DK, DV };

static double *tensor(const life *l, int which) {
    return l->memory + which * ROOM;
}

static life start(void) {
    life l = {.queued = queued_create((queued_habits){.seed = 11, .delay_one_in = 3, .delay_most_us = 300}),
              .comm = create_comm()};
    test_case c;
    void *memory = NULL;
    case_plain(&c, RA_STRATEGY_RING, queued_backend(l.queued));
    assert_int_equal(ra_plan_create(l.comm, &c.problem, &c.options, &l.plan), RA_OK);
    assert_int_equal(ra_backend_stream_create(c.options.backend, &l.stream), RA_OK);
    assert_int_equal(ra_backend_allocate(c.options.backend, sizeof(double[TENSORS * ROOM]), &memory), RA_OK);
    l.memory = memory;
    for (int i = 0; i < TENSORS * ROOM; i++) l.memory[i] = 0.01 * (i % 97);
    l.t = (ra_tensors)RA_TENSORS_INIT;
    l.g = (ra_gradients)RA_GRADIENTS_INIT;
    l.t.q.data = l.t.k.data = l.t.v.data = tensor(&l, IN);
    l.t.o.data = tensor(&l, O), l.t.lse = tensor(&l, LSE);
    l.g.q = l.t.q, l.g.k = l.t.k, l.g.v = l.t.v, l.g.dout = l.t.q, l.g.o = ra_as_input(l.t.o), l.g.lse = l.t.lse;
    l.g.dq.data = tensor(&l, DQ), l.g.dk.data = tensor(&l, DK), l.g.dv.data = tensor(&l, DV);
    return l;
}

static void end(life *l) {
    const ra_backend *backend = queued_backend(l->queued);
    ra_plan_destroy(l->plan);
    ra_backend_release(backend, l->memory);
    ra_backend_stream_destroy(backend, l->stream);
    ra_comm_destroy(l->comm);
    queued_destroy(l->queued);
}

/* The stream has come to its end: the host may look. */
static void settle(const life *l) {
    const ra_device *device = queued_backend(l->queued)->device;
    void *event;
    int done = 0;
    assert_int_equal(device->event_create(device, &event), RA_OK);
    assert_int_equal(device->signal(device, event, l->stream), RA_OK);
    while (!done) assert_int_equal(device->query(device, event, &done), RA_OK);
    device->event_destroy(device, event);
}

static void expect(const life *l, int which, int64_t count, int is_nan) {
    for (int64_t i = 0; i < count; i++)
        if (!isnan(tensor(l, which)[i]) != !is_nan)
            fail_msg("tensor %d, element %lld is %g", which, (long long)i, tensor(l, which)[i]);
}

static void lose(const life *l) {
    assert_int_equal(ra_comm_lose(l->comm, ra_fail(RA_ERR_PEER, "rank 1 fell over")), RA_ERR_PEER);
}

static void test_both_pending_passes_are_spoiled(void **state) {
    (void)state;
    life l = start();
    assert_int_equal(ra_plan_forward(l.plan, &l.t, l.stream), RA_OK);
    assert_int_equal(ra_plan_backward(l.plan, &l.g, l.stream), RA_OK);
    assert_true(l.plan->forward_pending && l.plan->backward_pending);
    lose(&l);
    assert_int_equal(ra_plan_wait(l.plan, l.stream), RA_ERR_BROKEN);
    assert_false(l.plan->forward_pending || l.plan->backward_pending);
    settle(&l);
    expect(&l, IN, ROOM, 0);
    expect(&l, O, ROOM, 1);
    expect(&l, LSE, 203 * 2, 1);
    expect(&l, DQ, ROOM, 1);
    expect(&l, DK, ROOM, 1);
    expect(&l, DV, ROOM, 1);
    end(&l);
}

static void test_a_pass_that_was_waited_for_stays_whole(void **state) {
    (void)state;
    life l = start();
    assert_int_equal(ra_plan_forward(l.plan, &l.t, l.stream), RA_OK);
    assert_int_equal(ra_plan_wait(l.plan, l.stream), RA_OK);
    lose(&l);
    assert_int_equal(ra_plan_wait(l.plan, l.stream), RA_OK); /* there is nothing that could have failed */
    assert_int_equal(ra_plan_forward(l.plan, &l.t, l.stream), RA_ERR_BROKEN);
    settle(&l);
    expect(&l, O, ROOM, 0);
    expect(&l, LSE, 203 * 2, 0);
    end(&l);
}

static void test_only_what_is_pending_is_spoiled(void **state) {
    (void)state;
    life l = start();
    assert_int_equal(ra_plan_forward(l.plan, &l.t, l.stream), RA_OK);
    assert_int_equal(ra_plan_wait(l.plan, l.stream), RA_OK);
    assert_int_equal(ra_plan_backward(l.plan, &l.g, l.stream), RA_OK);
    lose(&l);
    assert_int_equal(ra_plan_wait(l.plan, l.stream), RA_ERR_BROKEN);
    settle(&l);
    expect(&l, O, ROOM, 0);
    expect(&l, DQ, ROOM, 1);
    end(&l);
}

static ra_status refuse_event(const ra_device *device, void *event, void *stream) {
    (void)device, (void)event, (void)stream;
    return ra_fail(RA_ERR_DEVICE, "no event");
}

/* A device that cannot even say where its stream ends has failed: peers are told, as when it fails later in the wait.
 */
static void test_a_wait_that_the_device_refuses(void **state) {
    (void)state;
    life l = start();
    ra_device *device = (ra_device *)queued_backend(l.queued)->device, whole = *device;
    assert_int_equal(ra_plan_forward(l.plan, &l.t, l.stream), RA_OK);
    device->signal = refuse_event;
    assert_int_equal(ra_plan_wait(l.plan, l.stream), RA_ERR_DEVICE);
    device->signal = whole.signal;
    assert_true(ra_comm_lost(l.comm));
    settle(&l);
    expect(&l, O, ROOM, 1);
    expect(&l, LSE, 203 * 2, 1);
    end(&l);
}

/* A pass on the CPU is over when it returns, whatever the transport does on a device: nothing is waited for. */
static void test_the_cpu_over_such_a_transport(void **state) {
    (void)state;
    static double memory[4 * ROOM];
    ra_comm *comm = create_comm();
    ra_plan *plan = NULL;
    test_case c;
    case_plain(&c, RA_STRATEGY_RING, NULL);
    assert_int_equal(ra_plan_create(comm, &c.problem, &c.options, &plan), RA_OK);
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = t.k.data = t.v.data = memory, t.o.data = memory + ROOM;
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_OK);
    assert_int_equal(ra_plan_wait(plan, NULL), RA_OK);
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_OK);
    ra_plan_destroy(plan);
    assert_int_equal(ra_comm_check(comm), RA_OK);
    ra_comm_destroy(comm);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_pending_passes_are_spoiled),
        cmocka_unit_test(test_a_pass_that_was_waited_for_stays_whole),
        cmocka_unit_test(test_only_what_is_pending_is_spoiled),
        cmocka_unit_test(test_a_wait_that_the_device_refuses),
        cmocka_unit_test(test_the_cpu_over_such_a_transport),
    };
    return cmocka_run_group_tests_name("pass_life", tests, NULL, NULL);
}
