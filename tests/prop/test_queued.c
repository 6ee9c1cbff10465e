/* Plans on an asynchronous device, without a GPU: the random problems of test_exact.c on the device of support/queued.h,
 * over in-process ranks and, through host memory, over a transport that knows no devices. Forward and backward, every
 * layout and strategy, 1 to 4 ranks. A device that leaves out waits shows that these tests would see one missing.
 * RINGATTN_SWEEP=N runs N problems; RINGATTN_SEED=S starts at that seed. */
#include "support/cmocka.h"
#include "support/faulty.h"
#include "support/queued_stream.h"
#include "support/ranks.h"
#include "support/sweep.h"

#include "base/status.h"
#include "transport/comm.h"
#include "transport/staged.h"
#include "transport/thread.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 4 };

static int number_from(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text && atoi(text) > 0 ? atoi(text) : otherwise;
}

/* Whether the sums may be kept in the outputs is another path through the executor: f32 from bf16 keeps them apart. */
static void make_case(test_case *c, uint64_t seed, const ra_backend *backend) {
    case_make(c, seed, seed % 3 ? RA_F64 : RA_BF16, 3e6);
    c->options.backend = backend;
    c->options.kernel = NULL;
}

static double tolerance(const test_case *c) {
    return c->problem.dtype == RA_F64 ? 1e-11 : 0.15;
}

/* ---- any transport ----------------------------------------------------------------------------------------------- */

typedef struct body_run {
    const sweep_data *data;
    int repeat;
    sweep_result results[MOST_RANKS];
} body_run;

static ra_status body(ra_comm *comm, void *user) {
    body_run *run = user;
    return sweep_run(comm, run->data, run->repeat, &run->results[ra_comm_rank(comm)]);
}

/* staged: over a transport of host memory only. */
static ra_status run_case(const sweep_data *data, int ranks, int staged, int repeat, sweep_result *result_out) {
    static body_run run;
    rank_outcome outcomes[MOST_RANKS];
    ra_comm *comms[MOST_RANKS];
    run.data = data;
    run.repeat = repeat;
    ra_status status = staged ? fault_create(ranks, (fault){.kind = FAULT_NONE}, NULL, comms)
                              : ra_comm_create_threads(ranks, comms);
    if (status != RA_OK) return status;
    ranks_run(comms, ranks, body, &run, outcomes);
    ranks_destroy(comms, ranks);
    for (int r = 0; r < ranks; r++)
        if (outcomes[r].status != RA_OK) return ra_fail(outcomes[r].status, "%s", outcomes[r].error);
    *result_out = run.results[0];
    return RA_OK;
}

static int is_right(const test_case *c, const sweep_result *result) {
    return sweep_worst_abs(result) < tolerance(c) && !result->wrong_infinities && !result->traffic_differs;
}

static int check_one(uint64_t seed, int ranks, int staged) {
    static test_case c;
    char text[512];
    queued_device *queued = queued_create((queued_habits){.seed = seed, .delay_one_in = 6, .delay_most_us = 300});
    make_case(&c, seed, queued_backend(queued));
    sweep_data *data = sweep_data_make(&c);
    sweep_result result = {0};
    ra_status status = data ? run_case(data, ranks, staged, 2, &result) : RA_ERR_MEMORY;
    sweep_data_free(data);
    int good = status == RA_OK && is_right(&c, &result);
    if (!good)
        printf("FAILED p=%d staged=%d %s\n  status %d (%s), worst %g, wrong infinities %d\n", ranks, staged,
               case_text(&c, text, sizeof text), status, status ? ra_last_error() : "", sweep_worst_abs(&result),
               result.wrong_infinities);
    if (queued_streams(queued) || queued_bytes(queued)) {
        printf("FAILED p=%d %s: %d streams and %lld bytes are left\n", ranks, case_text(&c, text, sizeof text),
               queued_streams(queued), (long long)queued_bytes(queued));
        good = 0;
    }
    queued_destroy(queued);
    return good;
}

static void sweep(int full, int staged) {
    int count = number_from("RINGATTN_SWEEP", full), first = number_from("RINGATTN_SEED", 1), bad = 0;
    printf("problems %d, seeds %d to %d\n", count, first, first + count - 1);
    for (int i = 0; i < count && bad < 5; i++)
        bad += !check_one((uint64_t)(first + i), 1 + (first + i) % MOST_RANKS, staged);
    assert_int_equal(bad, 0);
}

static void test_in_process(void **state) {
    (void)state;
    sweep(300, 0);
}

static void test_through_host_memory(void **state) {
    (void)state;
    sweep(100, 1);
}

/* ---- the same bits, and what a missing wait does ------------------------------------------------------------------ */

static void plain_case(test_case *c, ra_strategy strategy, const ra_backend *backend) {
    *c = (test_case){.seed = 5, .problem = RA_PROBLEM_INIT, .options = RA_OPTIONS_INIT};
    c->problem.dtype = RA_F64;
    c->problem.seq_q = 203;
    c->problem.heads_q = 2;
    c->problem.dim = 8;
    c->problem.causal = 1;
    c->options.strategy = strategy;
    c->options.layout = RA_LAYOUT_ZIGZAG;
    c->options.backward = 1;
    c->options.backend = backend;
}

static ra_status run_plain(ra_strategy strategy, queued_habits habits, int repeat, sweep_result *result_out) {
    static test_case c;
    queued_device *queued = queued_create(habits);
    plain_case(&c, strategy, queued_backend(queued));
    sweep_data *data = sweep_data_make(&c);
    ra_status status = run_case(data, MOST_RANKS, 0, repeat, result_out);
    sweep_data_free(data);
    queued_destroy(queued);
    return status;
}

static void test_delays_change_no_bit(void **state) {
    (void)state;
    for (int strategy = RA_STRATEGY_RING; strategy <= RA_STRATEGY_ALLGATHER; strategy++) {
        sweep_result first, other;
        assert_int_equal(run_plain((ra_strategy)strategy, (queued_habits){.seed = 1}, 1, &first), RA_OK);
        for (uint64_t seed = 2; seed < 5; seed++) {
            queued_habits habits = {.seed = seed, .delay_one_in = 3, .delay_most_us = 400};
            assert_int_equal(run_plain((ra_strategy)strategy, habits, 8, &other), RA_OK);
            assert_true(other.bits == first.bits);
        }
    }
}

/* Left out waits race on purpose, so this is not for ThreadSanitizer. */
#if defined(__SANITIZE_THREAD__)
#define RACES_ALLOWED 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RACES_ALLOWED 0
#endif
#endif
#ifndef RACES_ALLOWED
#define RACES_ALLOWED 1
#endif

static void test_a_missing_wait_is_seen(void **state) {
    (void)state;
    if (!RACES_ALLOWED) skip();
    int seen = 0, runs = 0;
    for (int strategy = RA_STRATEGY_RING; strategy <= RA_STRATEGY_ALLGATHER; strategy++)
        for (uint64_t seed = 1; seed < 6; seed++, runs++) {
            sweep_result result;
            queued_habits habits = {.seed = seed, .delay_one_in = 2, .delay_most_us = 800, .ignore_wait = 3};
            ra_status status = run_plain((ra_strategy)strategy, habits, 1, &result);
            seen += status != RA_OK || sweep_worst_abs(&result) > 1e-11 || result.wrong_infinities;
        }
    printf("%d of %d runs without every third wait went wrong\n", seen, runs);
    assert_true(seen > runs / 2);
}

/* ---- faults ------------------------------------------------------------------------------------------------------- */

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
    plain_case(&c, strategy, queued_backend(queued));
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
    for (int strategy = RA_STRATEGY_RING; strategy <= RA_STRATEGY_ALLGATHER; strategy++) {
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
    plain_case(&c, RA_STRATEGY_RING, queued_backend(queued));
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

/* ---- a device that refuses ------------------------------------------------------------------------------------------ */

enum { PAIR = 2, ROOM = 110 * 2 * 8 }; /* ranks; elements of each tensor */

typedef struct refusing_run {
    test_case c;
    queued_device *devices[PAIR]; /* that of rank 1 refuses */
} refusing_run;

/* Whether all of an output is as it was, 42, or all of it is NaN. */
static ra_status expect_untouched_or_nan(const ra_backend *backend, ra_dtype dtype, const void *from, int64_t count) {
    unsigned char raw[ROOM * 8];
    double values[ROOM];
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
    t.q.data = memory, t.k.data = memory + ROOM * 8, t.v.data = memory + 2 * ROOM * 8;
    t.o.data = memory + 3 * ROOM * 8, t.lse = memory + 4 * ROOM * 8;
    g.q = t.q, g.k = t.k, g.v = t.v, g.o = t.o, g.lse = t.lse, g.dout = t.q;
    g.dq.data = memory + 5 * ROOM * 8, g.dk.data = memory + 6 * ROOM * 8, g.dv.data = memory + 7 * ROOM * 8;
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
    options.backend = queued_backend(run->devices[comm->rank]);
    double values[ROOM];
    unsigned char host[ROOM * 8];
    void *memory, *stream;
    for (int i = 0; i < ROOM; i++) values[i] = 42;
    RA_TRY(ra_convert(run->c.problem.dtype, host, RA_F64, values, ROOM));
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
    rank_outcome outcomes[PAIR];
    ra_comm *comms[PAIR];
    plain_case(&run.c, RA_STRATEGY_RING, NULL);
    run.c.problem.dtype = dtype;
    run.c.options.timeout_seconds = 5;
    for (int r = 0; r < PAIR; r++)
        run.devices[r] = queued_create((queued_habits){.seed = 3, .refuse_check = r == 1 ? number : 0});
    assert_int_equal(ra_comm_create_threads(PAIR, comms), RA_OK);
    ranks_run(comms, PAIR, refusing_body, &run, outcomes);
    ranks_destroy(comms, PAIR);
    for (int r = 0; r < PAIR; r++) {
        if (outcomes[r].status == RA_ERR_INTERNAL) fail_msg("check %d, rank %d: %s", number, r, outcomes[r].error);
        assert_true(outcomes[r].seconds < 2);
        assert_int_equal(queued_bytes(run.devices[r]), 0);
    }
    for (int r = 0; r < PAIR; r++) queued_destroy(run.devices[r]);
    if (outcomes[1].status == RA_OK) return 0;
    assert_int_equal(outcomes[1].status, RA_ERR_TRANSPORT);
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

/* ---- a transport that ends on the device --------------------------------------------------------------------------- */

/* In-process ranks whose copies never end, as NCCL's when a peer has died: the stream stands until the rank gives up. */
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
    static const ra_transport_ops ops = {
        .struct_size = sizeof ops, .name = "hanging", .post = hanging_post, .poll = hanging_poll,
        .abandon = hanging_abandon, .destroy = hanging_destroy, .attach = hanging_attach,
        .post_device = hanging_post_device, .join = hanging_join, .ends_on_device = 1};
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
    enum { ELEMENTS = 110 * 2 * 8 };
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
    double host[110 * 2 * 8];
    RA_TRY(ra_backend_copy(backend, host, from, (size_t)count * sizeof *host));
    for (int64_t i = 0; i < count; i++)
        if (!isnan(host[i])) return ra_fail(RA_ERR_INTERNAL, "%s looks whole: %g", what, host[i]);
    return RA_OK;
}

static ra_status cut_passes(ra_comm *comm, const test_case *c, double *at, void **streams) {
    enum { ELEMENTS = 110 * 2 * 8 };
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
    } else if (comm->rank == 0 && ra_plan_forward(plan, &later, streams[0]) == RA_OK) { /* rank 1 does not come */
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
    enum { ELEMENTS = 110 * 2 * 8 };
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
    enum { RANKS = 2 };
    static test_case c;
    rank_outcome outcomes[RANKS];
    ra_comm *comms[RANKS];
    void *inner[RANKS];
    queued_device *queued = queued_create((queued_habits){.seed = 3});
    plain_case(&c, RA_STRATEGY_RING, queued_backend(queued));
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

/* ---- through host memory: faults ------------------------------------------------------------------------------------- */

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

/* A rank whose stream stands cannot send: its error says that its device was waited for, and no peer. */
static ra_status late_body(ra_comm *comm, void *user) {
    const test_case *c = user;
    const ra_backend *backend = c->options.backend;
    hanging gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .open = comm->rank != 1};
    void *memory, *stream;
    ra_plan *plan;
    char why[1024];
    RA_TRY(ra_backend_stream_create(backend, &stream));
    RA_TRY(ra_backend_allocate(backend, 4 * ROOM * sizeof(double), &memory));
    RA_TRY(ra_plan_create(comm, &c->problem, &c->options, &plan));
    double *at = memory;
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = at, t.k.data = at + ROOM, t.v.data = at + 2 * ROOM, t.o.data = at + 3 * ROOM;
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
    rank_outcome outcomes[PAIR];
    ra_comm *comms[PAIR];
    queued_device *queued = queued_create((queued_habits){.seed = 3});
    plain_case(&c, RA_STRATEGY_RING, queued_backend(queued));
    c.options.timeout_seconds = 0.3;
    assert_int_equal(fault_create(PAIR, (fault){.kind = FAULT_NONE}, NULL, comms), RA_OK);
    ranks_run(comms, PAIR, late_body, &c, outcomes);
    ranks_destroy(comms, PAIR);
    for (int r = 0; r < PAIR; r++) assert_int_not_equal(outcomes[r].status, RA_OK);
    if (!strstr(outcomes[1].error, "own device")) fail_msg("%s", outcomes[1].error);
    if (strstr(outcomes[1].error, "rank 0")) fail_msg("'%s' blames a peer", outcomes[1].error);
    queued_destroy(queued);
}

/* ---- what is refused ----------------------------------------------------------------------------------------------- */

static void test_what_is_refused(void **state) {
    (void)state;
    queued_device *a = queued_create((queued_habits){0});
    test_case c;
    ra_comm *comm;
    ra_plan *plan = NULL;
    plain_case(&c, RA_STRATEGY_RING, queued_backend(a));
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
        cmocka_unit_test(test_in_process),
        cmocka_unit_test(test_through_host_memory),
        cmocka_unit_test(test_delays_change_no_bit),
        cmocka_unit_test(test_a_missing_wait_is_seen),
        cmocka_unit_test(test_faults_end_every_rank),
        cmocka_unit_test(test_a_rank_that_never_comes),
        cmocka_unit_test(test_a_launch_that_is_refused),
        cmocka_unit_test(test_a_peer_that_dies_on_the_device),
        cmocka_unit_test(test_passes_that_are_cut),
        cmocka_unit_test(test_a_failed_poll_fails_again),
        cmocka_unit_test(test_a_device_that_is_late),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests_name("queued", tests, NULL, NULL);
}
