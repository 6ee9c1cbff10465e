/* Faults on the asynchronous device of support/queued/queued.h: a transport that fails, a rank that never comes, a
 * launch that the device refuses. Every rank gets an error in time, no output looks whole, nothing is left allocated.
 * And what a plan refuses to begin with. */
#include "support/cmocka.h"
#include "support/faults/faulty.h"
#include "support/problems/case.h"
#include "support/queued/queued.h"
#include "support/ranks.h"

#include "base/status.h"
#include "transport/comm.h"
#include "transport/staged.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RANKS = 4 };

/* ---- a transport that fails ------------------------------------------------------------------------------ */

/* A forward pass that fails leaves the output as it was or NaN, and no rank waits longer than it must. */
static ra_status failing_body(ra_comm *comm, void *user) {
    const test_case *c = user;
    enum { ROWS = 64, ELEMENTS = ROWS * 2 * 8 };
    const ra_backend *backend = c->options.backend;
    double host[ELEMENTS];
    void *memory = NULL, *stream = NULL;
    size_t bytes = sizeof host;
    ra_plan *plan = NULL;
    char why[1024] = "";
    RA_TRY(ra_backend_stream_create(backend, &stream));
    RA_TRY(ra_backend_allocate(backend, 5 * bytes, &memory));
    double *q = memory, *k = q + ELEMENTS, *v = k + ELEMENTS, *o = v + ELEMENTS, *lse = o + ELEMENTS;
    for (int i = 0; i < ELEMENTS; i++) host[i] = 42;
    for (int i = 0; i < 5; i++) RA_TRY(ra_backend_copy(backend, q + i * ELEMENTS, host, bytes));
    for (int i = 0; i < ELEMENTS; i++) host[i] = 1;
    RA_TRY(ra_backend_copy(backend, v, host, bytes));
    ra_status status = ra_plan_create(comm, &c->problem, &c->options, &plan);
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = q, t.k.data = k, t.v.data = v, t.o.data = o, t.lse = lse;
    /* A rank that has its messages may learn of another's failure in the next pass only. */
    int passes = 0;
    for (; passes < 3 && status == RA_OK; passes++) status = ra_plan_forward(plan, &t, stream);
    snprintf(why, sizeof why, "%s", ra_last_error());
    if (plan && ra_plan_wait(plan, stream) == RA_OK && status != RA_OK && passes == 1) {
        RA_TRY(ra_backend_copy(backend, host, o, bytes));
        for (int i = 0; i < ELEMENTS; i++)
            if (host[i] != 42 && !isnan(host[i])) return ra_fail(RA_ERR_INTERNAL, "the output looks whole");
    }
    ra_plan_destroy(plan);
    ra_backend_release(backend, memory);
    ra_backend_stream_destroy(backend, stream);
    return status == RA_OK ? RA_OK : ra_fail(status, "%s", why);
}

static void expect_harm(fault f, ra_strategy strategy, double timeout) {
    static test_case c;
    rank_outcome outcomes[MOST_RANKS];
    ra_comm *comms[MOST_RANKS];
    queued_device *queued = queued_create((queued_habits){.seed = 9, .delay_one_in = 4, .delay_most_us = 200});
    case_plain(&c, strategy, queued_backend(queued));
    c.options.timeout_seconds = timeout;
    assert_int_equal(fault_create(MOST_RANKS, f, NULL, comms), RA_OK);
    ranks_run(comms, MOST_RANKS, failing_body, &c, outcomes);
    ranks_destroy(comms, MOST_RANKS);
    for (int r = 0; r < MOST_RANKS; r++) {
        if (outcomes[r].status == RA_OK) fail_msg("rank %d got no error", r);
        if (outcomes[r].seconds > timeout + 1) fail_msg("rank %d took %.2f s", r, outcomes[r].seconds);
        if (!strstr(outcomes[r].error, "step")) fail_msg("'%s' names no step", outcomes[r].error);
    }
    assert_int_equal(queued_streams(queued), 0);
    assert_int_equal(queued_bytes(queued), 0);
    queued_destroy(queued);
}

static void test_faults_end_every_rank(void **state) {
    (void)state;
    for (int strategy = RA_STRATEGY_RING; strategy <= RA_STRATEGY_PASSQ; strategy++) {
        expect_harm((fault){.kind = FAULT_ERROR, .rank = 2, .group = 2}, (ra_strategy)strategy, 5);
        expect_harm((fault){.kind = FAULT_LENGTH, .rank = 1, .group = 2}, (ra_strategy)strategy, 5);
        expect_harm((fault){.kind = FAULT_KILL, .rank = 1, .group = 2}, (ra_strategy)strategy, 0.5);
    }
}

/* A rank that never comes: the others, whose work waits on their streams, give up in time. */
static ra_status absent_body(ra_comm *comm, void *user) {
    const test_case *c = user;
    if (ra_comm_rank(comm) != 2) return failing_body(comm, user);
    ra_plan *plan = NULL;
    RA_TRY(ra_plan_create(comm, &c->problem, &c->options, &plan));
    ra_plan_destroy(plan);
    return RA_OK;
}

static void test_a_rank_that_never_comes(void **state) {
    (void)state;
    static test_case c;
    rank_outcome outcomes[MOST_RANKS];
    ra_comm *comms[MOST_RANKS];
    queued_device *queued = queued_create((queued_habits){.seed = 3});
    case_plain(&c, RA_STRATEGY_RING, queued_backend(queued));
    c.options.timeout_seconds = 0.5;
    assert_int_equal(ra_comm_create_threads(MOST_RANKS, comms), RA_OK);
    ranks_run(comms, MOST_RANKS, absent_body, &c, outcomes);
    ranks_destroy(comms, MOST_RANKS);
    for (int r = 0; r < MOST_RANKS; r++) {
        assert_true((outcomes[r].status == RA_OK) == (r == 2));
        assert_true(outcomes[r].seconds < 1.5);
    }
    assert_int_equal(queued_streams(queued), 0);
    assert_int_equal(queued_bytes(queued), 0);
    queued_destroy(queued);
}

/* ---- a device that refuses ------------------------------------------------------------------------------- */

enum { RANKS = 2, ELEMENTS = 110 * 2 * 8 }; /* ranks; elements of each tensor */

typedef struct refusing_run {
    test_case c;
    queued_device *devices[RANKS]; /* that of rank 1 refuses */
} refusing_run;

/* Whether all of an output is as it was, 42, or all of it is NaN. */
static ra_status expect_untouched_or_nan(const ra_backend *backend, ra_dtype dtype, const void *from, int64_t count) {
    unsigned char raw[ELEMENTS * 8];
    double values[ELEMENTS];
    int64_t same = 0, nan = 0;
    RA_TRY(ra_backend_copy(backend, raw, from, (size_t)count * ra_dtype_bytes(dtype)));
    RA_TRY(ra_convert(RA_F64, values, dtype, raw, count));
    for (int64_t i = 0; i < count; i++) same += values[i] == 42, nan += isnan(values[i]) != 0;
    return same == count || nan == count ? RA_OK : ra_fail(RA_ERR_INTERNAL, "the output looks whole");
}

static ra_status run_refused(ra_comm *comm, const test_case *c, const ra_options *options, unsigned char *memory,
                             void *stream) {
    const ra_backend *backend = options->backend;
    ra_dtype dtype = c->problem.dtype;
    ra_tensors t = RA_TENSORS_INIT;
    ra_gradients g = RA_GRADIENTS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    ra_plan *plan;
    char why[1024];
    t.q.data = memory, t.k.data = memory + ELEMENTS * 8, t.v.data = memory + 2 * ELEMENTS * 8;
    t.o.data = memory + 3 * ELEMENTS * 8, t.lse = memory + 4 * ELEMENTS * 8;
    g.q = t.q, g.k = t.k, g.v = t.v, g.o = ra_as_input(t.o), g.lse = t.lse, g.dout = t.q;
    g.dq.data = memory + 5 * ELEMENTS * 8, g.dk.data = memory + 6 * ELEMENTS * 8, g.dv.data = memory + 7 * ELEMENTS * 8;
    RA_TRY(ra_plan_create(comm, &c->problem, options, &plan));
    RA_TRY(ra_plan_describe(plan, &info));
    ra_status forward = ra_plan_forward(plan, &t, stream);
    ra_status status = forward == RA_OK ? ra_plan_backward(plan, &g, stream) : forward;
    snprintf(why, sizeof why, "%s", ra_last_error());
    int refuses = ra_comm_check(comm) == RA_ERR_BROKEN;
    ra_plan_wait(plan, stream);
    ra_plan_destroy(plan);
    if (status == RA_OK) return RA_OK;
    if (!refuses) return ra_fail(RA_ERR_INTERNAL, "the comm can still be used after: %s", why);
    if (forward != RA_OK) RA_TRY(expect_untouched_or_nan(backend, dtype, t.o.data, info.rows_q * 2 * 8));
    RA_TRY(expect_untouched_or_nan(backend, dtype, g.dq.data, info.rows_q * 2 * 8));
    RA_TRY(expect_untouched_or_nan(backend, dtype, g.dk.data, info.rows_k * 2 * 8));
    RA_TRY(expect_untouched_or_nan(backend, dtype, g.dv.data, info.rows_k * 2 * 8));
    return ra_fail(status, "%s", why);
}

static ra_status refusing_body(ra_comm *comm, void *user) {
    const refusing_run *run = user;
    ra_options options = run->c.options;
    options.backend = queued_backend(run->devices[ra_comm_rank(comm)]);
    double values[ELEMENTS];
    unsigned char host[ELEMENTS * 8];
    void *memory, *stream;
    for (int i = 0; i < ELEMENTS; i++) values[i] = 42;
    RA_TRY(ra_convert(run->c.problem.dtype, host, RA_F64, values, ELEMENTS));
    RA_TRY(ra_backend_stream_create(options.backend, &stream));
    RA_TRY(ra_backend_allocate(options.backend, 8 * sizeof host, &memory));
    for (int i = 0; i < 8; i++)
        RA_TRY(ra_backend_copy(options.backend, (unsigned char *)memory + (size_t)i * sizeof host, host, sizeof host));
    ra_status status = run_refused(comm, &run->c, &options, memory, stream);
    ra_backend_release(options.backend, memory);
    ra_backend_stream_destroy(options.backend, stream);
    return status;
}

/* Whether the check of that number was come to. */
static int refuse(ra_dtype dtype, int number) {
    static refusing_run run;
    rank_outcome outcomes[RANKS];
    ra_comm *comms[RANKS];
    case_plain(&run.c, RA_STRATEGY_RING, NULL);
    run.c.problem.dtype = dtype;
    run.c.options.timeout_seconds = 5;
    for (int r = 0; r < RANKS; r++)
        run.devices[r] = queued_create((queued_habits){.seed = 3, .refuse_check = r == 1 ? number : 0});
    assert_int_equal(ra_comm_create_threads(RANKS, comms), RA_OK);
    ranks_run(comms, RANKS, refusing_body, &run, outcomes);
    ranks_destroy(comms, RANKS);
    for (int r = 0; r < RANKS; r++) {
        if (outcomes[r].status == RA_ERR_INTERNAL) fail_msg("check %d, rank %d: %s", number, r, outcomes[r].error);
        assert_true(outcomes[r].seconds < 2);
        assert_int_equal(queued_bytes(run.devices[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) queued_destroy(run.devices[r]);
    if (outcomes[1].status == RA_OK) return 0;
    assert_int_equal(outcomes[1].status, RA_ERR_DEVICE);
    assert_non_null(strstr(outcomes[1].error, "pass: a launch was refused"));
    return 1;
}

static void test_a_launch_that_is_refused(void **state) {
    (void)state;
    for (int keeps_apart = 0; keeps_apart < 2; keeps_apart++) {
        int number = 1;
        while (refuse(keeps_apart ? RA_BF16 : RA_F64, number)) number++;
        assert_true(number > 6); /* each step of both passes, and their ends */
    }
}

/* ---- through host memory --------------------------------------------------------------------------------- */

/* The first post fails, a second one would not. */
static ra_status post_once(void *self, const ra_message *messages, int count, void *stream) {
    (void)messages, (void)count, (void)stream;
    return ++*(int *)self == 1 ? ra_fail(RA_ERR_TRANSPORT, "the cable is on fire") : RA_OK;
}

/* A poll whose error nobody looked at, as while computing, leaves it to the next one. */
static void test_a_failed_poll_fails_again(void **state) {
    (void)state;
    queued_device *queued = queued_create((queued_habits){.seed = 3});
    const ra_backend *backend = queued_backend(queued);
    ra_transport_ops ops = {.struct_size = sizeof ops, .name = "once", .post = post_once};
    ra_staging *staging = NULL;
    void *memory, *stream;
    int posts = 0, done, culprit;
    assert_int_equal(ra_backend_allocate(backend, 64, &memory), RA_OK);
    assert_int_equal(ra_backend_stream_create(backend, &stream), RA_OK);
    assert_int_equal(ra_staging_attach(&ops, &posts, backend->device, 64, 64, &staging), RA_OK);
    ra_message message = {.peer = 1, .is_send = 1, .data = memory, .bytes = 64};
    assert_int_equal(ra_staging_post(staging, &message, 1, stream), RA_OK);
    assert_int_equal(ra_staging_poll(staging, 10, &done, &culprit), RA_ERR_TRANSPORT);
    ra_fail(RA_ERR_ARGUMENT, "something else");
    assert_int_equal(ra_staging_poll(staging, 10, &done, &culprit), RA_ERR_TRANSPORT);
    assert_string_equal(ra_last_error(), "the cable is on fire");
    assert_int_equal(done, 0);
    assert_int_equal(posts, 1);
    ra_staging_destroy(staging);
    ra_backend_release(backend, memory);
    ra_backend_stream_destroy(backend, stream);
    queued_destroy(queued);
}

/* ---- what is refused ------------------------------------------------------------------------------------- */

static void test_what_is_refused(void **state) {
    (void)state;
    queued_device *a = queued_create((queued_habits){0});
    test_case c;
    ra_comm *comm;
    ra_plan *plan = NULL;
    case_plain(&c, RA_STRATEGY_RING, queued_backend(a));
    assert_int_equal(ra_comm_create_self(&comm), RA_OK);
    assert_int_equal(ra_plan_create(comm, &c.problem, &c.options, &plan), RA_OK);
    ra_plan_destroy(plan);
    c.options.kernel = "avx2";
    assert_int_equal(ra_plan_create(comm, &c.problem, &c.options, &plan), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "queued"));
    ra_backend older = *queued_backend(a);
    older.version--;
    c.options.kernel = NULL;
    c.options.backend = &older;
    assert_int_equal(ra_plan_create(comm, &c.problem, &c.options, &plan), RA_ERR_UNSUPPORTED);
    assert_non_null(strstr(ra_last_error(), "version"));
    ra_comm_destroy(comm);
    queued_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults_end_every_rank),    cmocka_unit_test(test_a_rank_that_never_comes),
        cmocka_unit_test(test_a_launch_that_is_refused), cmocka_unit_test(test_a_failed_poll_fails_again),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests_name("queued_faults", tests, NULL, NULL);
}
