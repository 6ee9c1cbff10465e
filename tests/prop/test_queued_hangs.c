/* Streams of the device of support/queued/queued.h that stand: copies that never end, as those of a peer that has died,
 * and a device that is late. A rank gives up in time, says what it waited for, and spoils what its passes wrote. */
#include "support/cmocka.h"
#include "support/faults/faulty.h"
#include "support/problems/case.h"
#include "support/queued/queued_stream.h"
#include "support/ranks.h"

#include "base/status.h"
#include "transport/comm.h"
#include "transport/thread.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 2, ELEMENTS = 110 * 2 * 8 }; /* ranks; elements of each tensor */

/* ---- a transport that ends on the device ----------------------------------------------------------------- */

/* In-process ranks whose copies never end, as NCCL's when a peer has died: the stream stands until the rank gives
 * up. */
typedef struct hanging {
    void *inner;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int open;
} hanging;

static ra_status hanging_post(void *self, const ra_message *messages, int count, void *stream) {
    return ra_thread_ops.post(((hanging *)self)->inner, messages, count, stream);
}

static ra_status hanging_poll(void *self, double seconds, int *done_out, int *culprit_out) {
    return ra_thread_ops.poll(((hanging *)self)->inner, seconds, done_out, culprit_out);
}

static ra_status hanging_attach(void *self, const ra_device *device) {
    return ra_thread_ops.attach(((hanging *)self)->inner, device);
}

static ra_status hanging_post_device(void *self, const ra_message *messages, int count, void *stream) {
    return ra_thread_ops.post_device(((hanging *)self)->inner, messages, count, stream);
}

static void stand(const job *j) {
    hanging *h = j->to;
    pthread_mutex_lock(&h->lock);
    while (!h->open) pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

static ra_status hanging_join(void *self, void *stream) {
    queued_put(stream, &(job){.run = stand, .to = self});
    return ra_thread_ops.join(((hanging *)self)->inner, stream);
}

static int hanging_abandon(void *self, const char *reason) {
    hanging *h = self;
    pthread_mutex_lock(&h->lock);
    h->open = 1;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    return ra_thread_ops.abandon(h->inner, reason);
}

static void hanging_destroy(void *self) {
    hanging *h = self;
    ra_thread_ops.destroy(h->inner);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->changed);
    free(h);
}

static ra_comm *hanging_create(void *inner, int rank, int ranks) {
    static const ra_transport_ops ops = {.struct_size = sizeof ops,
                                         .name = "hanging",
                                         .post = hanging_post,
                                         .poll = hanging_poll,
                                         .abandon = hanging_abandon,
                                         .destroy = hanging_destroy,
                                         .attach = hanging_attach,
                                         .post_device = hanging_post_device,
                                         .join = hanging_join,
                                         .ends_on_device = 1};
    hanging *h = calloc(1, sizeof *h);
    ra_comm *comm = NULL;
    h->inner = inner;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    assert_int_equal(ra_comm_create_custom(&ops, h, rank, ranks, &comm), RA_OK);
    return comm;
}

enum { IMPATIENT = 6 };

/* The pass itself is put on the stream without a word; waiting for it finds out, and spoils what it wrote. */
static ra_status hanging_body(ra_comm *comm, void *user) {
    const test_case *c = user;
    const ra_backend *backend = c->options.backend;
    double host[ELEMENTS];
    void *memory, *stream;
    ra_plan *plan;
    char why[1024];
    for (int i = 0; i < ELEMENTS; i++) host[i] = 1;
    RA_TRY(ra_backend_stream_create(backend, &stream));
    RA_TRY(ra_backend_allocate(backend, 5 * sizeof host, &memory));
    double *at = memory;
    for (int i = 0; i < 5; i++) RA_TRY(ra_backend_copy(backend, at + i * ELEMENTS, host, sizeof host));
    RA_TRY(ra_plan_create(comm, &c->problem, &c->options, &plan));
    ra_plan_info info = RA_PLAN_INFO_INIT;
    RA_TRY(ra_plan_describe(plan, &info));
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = at, t.k.data = at + ELEMENTS, t.v.data = at + 2 * ELEMENTS, t.o.data = at + 3 * ELEMENTS;
    t.lse = at + 4 * ELEMENTS;
    ra_status status = ra_plan_forward(plan, &t, stream);
    int impatient = c->seed == IMPATIENT; /* destroys the plan without waiting */
    ra_status waited = status != RA_OK || impatient ? status : ra_plan_wait(plan, stream);
    snprintf(why, sizeof why, "%s", ra_last_error());
    ra_plan_destroy(plan); /* behind all that is on the stream */
    if (impatient) {
        ra_backend_release(backend, memory);
        ra_backend_stream_destroy(backend, stream);
        return ra_comm_check(comm);
    }
    RA_TRY(ra_backend_copy(backend, host, t.o.data, sizeof host));
    for (int64_t i = 0; i < info.rows_q * 2 * 8; i++)
        if (!isnan(host[i])) snprintf(why, sizeof why, "the output looks whole");
    ra_backend_release(backend, memory);
    ra_backend_stream_destroy(backend, stream);
    return waited == RA_OK ? RA_OK : ra_fail(waited, "%s", why);
}

/* What the last pass wrote is NaN after the comm was lost under it, whoever lost it. */
enum { CUT_BY_A_CALL = 7, CUT_BY_A_PLAN };

static ra_status expect_nan(const ra_backend *backend, const double *from, int64_t count, const char *what) {
    double host[ELEMENTS];
    RA_TRY(ra_backend_copy(backend, host, from, (size_t)count * sizeof *host));
    for (int64_t i = 0; i < count; i++)
        if (!isnan(host[i])) return ra_fail(RA_ERR_INTERNAL, "%s looks whole: %g", what, host[i]);
    return RA_OK;
}

static ra_status cut_passes(ra_comm *comm, const test_case *c, double *at, void **streams) {
    ra_plan *plan, *other;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    ra_tensors t = RA_TENSORS_INIT;
    RA_TRY(ra_plan_create(comm, &c->problem, &c->options, &plan));
    RA_TRY(ra_plan_create(comm, &c->problem, &c->options, &other));
    RA_TRY(ra_plan_describe(plan, &info));
    t.q.data = at, t.k.data = at + ELEMENTS, t.v.data = at + 2 * ELEMENTS, t.o.data = at + 3 * ELEMENTS;
    t.lse = at + 4 * ELEMENTS;
    RA_TRY(ra_plan_forward(plan, &t, streams[0]));
    ra_tensors later = t;
    later.o.data = at + 5 * ELEMENTS, later.lse = NULL;
    if (c->seed == CUT_BY_A_PLAN) {
        RA_TRY(ra_plan_forward(other, &later, streams[1]));
        if (ra_plan_wait(other, streams[1]) == RA_OK) return ra_fail(RA_ERR_INTERNAL, "a wait that should have failed");
    } else if (ra_comm_rank(comm) == 0 &&
               ra_plan_forward(plan, &later, streams[0]) == RA_OK) { /* rank 1 does not come */
        return ra_fail(RA_ERR_INTERNAL, "a pass that should have failed");
    }
    ra_status waited = ra_plan_wait(plan, streams[0]);
    char why[1024];
    snprintf(why, sizeof why, "%s", ra_last_error());
    ra_plan_destroy(other);
    ra_plan_destroy(plan);
    RA_TRY(expect_nan(c->options.backend, t.o.data, info.rows_q * 2 * 8, "the output"));
    RA_TRY(expect_nan(c->options.backend, t.lse, info.rows_q * 2, "lse"));
    return waited == RA_OK ? RA_OK : ra_fail(waited, "%s", why);
}

static ra_status cut_body(ra_comm *comm, void *user) {
    const test_case *c = user;
    const ra_backend *backend = c->options.backend;
    double host[ELEMENTS];
    void *memory, *streams[2];
    for (int i = 0; i < ELEMENTS; i++) host[i] = 1;
    for (int i = 0; i < 2; i++) RA_TRY(ra_backend_stream_create(backend, &streams[i]));
    RA_TRY(ra_backend_allocate(backend, 6 * sizeof host, &memory));
    for (int i = 0; i < 6; i++) RA_TRY(ra_backend_copy(backend, (double *)memory + i * ELEMENTS, host, sizeof host));
    ra_status status = cut_passes(comm, c, memory, streams);
    ra_backend_release(backend, memory);
    for (int i = 0; i < 2; i++) ra_backend_stream_destroy(backend, streams[i]);
    return status;
}

static void expect_hanging(uint64_t seed, const char *words) {
    static test_case c;
    rank_outcome outcomes[RANKS];
    ra_comm *comms[RANKS];
    void *inner[RANKS];
    queued_device *queued = queued_create((queued_habits){.seed = 3});
    case_plain(&c, RA_STRATEGY_RING, queued_backend(queued));
    c.seed = seed;
    c.options.timeout_seconds = 0.5;
    assert_int_equal(ra_thread_create(RANKS, inner), RA_OK);
    for (int r = 0; r < RANKS; r++) comms[r] = hanging_create(inner[r], r, RANKS);
    ranks_run(comms, RANKS, seed < CUT_BY_A_CALL ? hanging_body : cut_body, &c, outcomes);
    for (int r = 0; r < RANKS; r++) {
        if (!strstr(outcomes[r].error, words)) fail_msg("rank %d: %s", r, outcomes[r].error);
        assert_int_not_equal(outcomes[r].status, RA_OK);
        assert_true(outcomes[r].seconds < 1.5);
    }
    ranks_destroy(comms, RANKS);
    assert_int_equal(queued_streams(queued), 0);
    assert_int_equal(queued_bytes(queued), 0);
    queued_destroy(queued);
}

static void test_a_peer_that_dies_on_the_device(void **state) {
    (void)state;
    expect_hanging(5, "waiting for the device");
    expect_hanging(IMPATIENT, "lost earlier");
}

static void test_passes_that_are_cut(void **state) {
    (void)state;
    expect_hanging(CUT_BY_A_CALL, "rank");
    expect_hanging(CUT_BY_A_PLAN, "lost earlier");
}

/* ---- a device that is late ------------------------------------------------------------------------------- */

/* A rank whose stream stands cannot send: its error says that its device was waited for, and no peer. */
static ra_status late_body(ra_comm *comm, void *user) {
    const test_case *c = user;
    const ra_backend *backend = c->options.backend;
    hanging gate = {
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .open = ra_comm_rank(comm) != 1};
    void *memory, *stream;
    ra_plan *plan;
    char why[1024];
    RA_TRY(ra_backend_stream_create(backend, &stream));
    RA_TRY(ra_backend_allocate(backend, 4 * ELEMENTS * sizeof(double), &memory));
    RA_TRY(ra_plan_create(comm, &c->problem, &c->options, &plan));
    double *at = memory;
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = at, t.k.data = at + ELEMENTS, t.v.data = at + 2 * ELEMENTS, t.o.data = at + 3 * ELEMENTS;
    queued_put(stream, &(job){.run = stand, .to = &gate});
    ra_status status = ra_plan_forward(plan, &t, stream);
    snprintf(why, sizeof why, "%s", ra_last_error());
    pthread_mutex_lock(&gate.lock);
    gate.open = 1;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    ra_plan_wait(plan, stream);
    ra_plan_destroy(plan);
    ra_backend_release(backend, memory);
    ra_backend_stream_destroy(backend, stream);
    return status == RA_OK ? RA_OK : ra_fail(status, "%s", why);
}

static void test_a_device_that_is_late(void **state) {
    (void)state;
    static test_case c;
    rank_outcome outcomes[RANKS];
    ra_comm *comms[RANKS];
    queued_device *queued = queued_create((queued_habits){.seed = 3});
    case_plain(&c, RA_STRATEGY_RING, queued_backend(queued));
    c.options.timeout_seconds = 0.3;
    assert_int_equal(fault_create(RANKS, (fault){.kind = FAULT_NONE}, NULL, comms), RA_OK);
    ranks_run(comms, RANKS, late_body, &c, outcomes);
    ranks_destroy(comms, RANKS);
    for (int r = 0; r < RANKS; r++) assert_int_not_equal(outcomes[r].status, RA_OK);
    if (!strstr(outcomes[1].error, "own device")) fail_msg("%s", outcomes[1].error);
    if (strstr(outcomes[1].error, "rank 0")) fail_msg("'%s' blames a peer", outcomes[1].error);
    queued_destroy(queued);
}

/* Through host memory: rank 1's device is late, and then its peer is, which says all the while that it is alive.
 * Neither takes the whole timeout, both together more. */
static const double PATIENCE = 0.5;

static void sleep_for(double seconds) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

static void be_late(const job *j) {
    (void)j;
    sleep_for(0.7 * PATIENCE);
}

static ra_status both_late_body(ra_comm *comm, void *user) {
    const test_case *c = user;
    const ra_backend *backend = c->options.backend;
    void *memory, *stream;
    ra_plan *plan;
    RA_TRY(ra_backend_stream_create(backend, &stream));
    RA_TRY(ra_backend_allocate(backend, 4 * ELEMENTS * sizeof(double), &memory));
    RA_TRY(ra_plan_create(comm, &c->problem, &c->options, &plan));
    double *at = memory;
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = at, t.k.data = at + ELEMENTS, t.v.data = at + 2 * ELEMENTS, t.o.data = at + 3 * ELEMENTS;
    if (ra_comm_rank(comm) == 1) queued_put(stream, &(job){.run = be_late});
    for (int i = 0; ra_comm_rank(comm) == 0 && i < 20; i++) {
        ra_comm_progress(comm);
        sleep_for(0.08 * PATIENCE);
    }
    ra_status status = ra_plan_forward(plan, &t, stream);
    if (status == RA_OK) status = ra_plan_wait(plan, stream);
    ra_plan_destroy(plan);
    ra_backend_release(backend, memory);
    ra_backend_stream_destroy(backend, stream);
    return status;
}

static void test_a_late_device_and_a_late_peer(void **state) {
    (void)state;
    static test_case c;
    rank_outcome outcomes[RANKS];
    ra_comm *comms[RANKS];
    queued_device *queued = queued_create((queued_habits){.seed = 3});
    case_plain(&c, RA_STRATEGY_RING, queued_backend(queued));
    c.options.timeout_seconds = PATIENCE;
    assert_int_equal(fault_create(RANKS, (fault){.kind = FAULT_NONE}, NULL, comms), RA_OK);
    ranks_run(comms, RANKS, both_late_body, &c, outcomes);
    ranks_destroy(comms, RANKS);
    for (int r = 0; r < RANKS; r++)
        if (outcomes[r].status != RA_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
    queued_destroy(queued);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_peer_that_dies_on_the_device),
        cmocka_unit_test(test_passes_that_are_cut),
        cmocka_unit_test(test_a_device_that_is_late),
        cmocka_unit_test(test_a_late_device_and_a_late_peer),
    };
    return cmocka_run_group_tests_name("queued_hangs", tests, NULL, NULL);
}
