/* Ranks of one device that use each other's memory (exec/sharing.h), and a launch of one of them that is refused, at
 * each moment of two passes each way. A rank frees what its caller and its workspace have as soon as its own stream is
 * done: nobody must read or write there any more, which AddressSanitizer and ThreadSanitizer see, and no output looks
 * whole. */
#include "support/cmocka.h"
#include "support/queued/queued_stream.h"
#include "support/ranks.h"

#include "base/status.h"
#include "exec/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, HEADS = 2, DIM = 8, PASSES = 4 };
enum { Q, K, V, DOUT, O, DQ, DK, DV, LSE, WORKSPACE, ARRAYS };

typedef struct lent_case {
    const ra_backend *backend;
    ra_strategy strategy;
    ra_dtype dtype;
    int64_t tokens;
    double timeout;
    int absent, absent_from; /* a rank that does not come to that pass; -1: all come */
    int stays[RANKS];
} lent_case;

/* Memory of its own for each, so that what lies behind it is nobody's. */
typedef struct memory {
    void *of[ARRAYS];
    int64_t elements;
} memory;

/* The arrays from the first to the last, full of 42. */
static ra_status fill(const lent_case *c, const memory *m, int first, int last) {
    double *values = malloc((size_t)m->elements * sizeof *values);
    ra_status status = values ? RA_OK : ra_fail(RA_ERR_MEMORY, "no memory");
    for (int64_t i = 0; values && i < m->elements; i++) values[i] = 42;
    for (int i = first; i <= last && status == RA_OK; i++)
        status = ra_convert(c->dtype, m->of[i], RA_F64, values, m->elements);
    free(values);
    return status;
}

static ra_status take(const lent_case *c, const ra_plan_info *info, memory *m) {
    m->elements = info->rows_q * HEADS * DIM;
    for (int i = 0; i < ARRAYS; i++) {
        size_t bytes = i == LSE         ? (size_t)(info->rows_q * HEADS) * sizeof(float)
                       : i == WORKSPACE ? (size_t)info->workspace_bytes
                                        : (size_t)m->elements * ra_dtype_bytes(c->dtype);
        if (posix_memalign(&m->of[i], 256, bytes) != 0) return ra_fail(RA_ERR_MEMORY, "no memory");
    }
    return fill(c, m, Q, DV);
}

/* All of an output is as it was, or all of it is NaN. */
static ra_status expect_nothing(const lent_case *c, const memory *m, int output) {
    int64_t same = 0, nan = 0;
    double *values = malloc((size_t)m->elements * sizeof *values);
    if (!values) return ra_fail(RA_ERR_MEMORY, "no memory");
    ra_status status = ra_convert(RA_F64, values, c->dtype, m->of[output], m->elements);
    for (int64_t i = 0; i < m->elements; i++) same += values[i] == 42, nan += isnan(values[i]) != 0;
    free(values);
    if (status == RA_OK && same != m->elements && nan != m->elements)
        return ra_fail(RA_ERR_INTERNAL, "output %d looks whole", output);
    return status;
}

static ra_status run_forward(ra_plan *plan, const memory *m, void *stream) {
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = m->of[Q], t.k.data = m->of[K], t.v.data = m->of[V], t.o.data = m->of[O], t.lse = m->of[LSE];
    return ra_plan_forward(plan, &t, stream);
}

static ra_status run_backward(ra_plan *plan, const memory *m, void *stream) {
    ra_gradients g = RA_GRADIENTS_INIT;
    g.q.data = m->of[Q], g.k.data = m->of[K], g.v.data = m->of[V], g.dout.data = m->of[DOUT];
    g.o.data = m->of[O], g.lse = m->of[LSE];
    g.dq.data = m->of[DQ], g.dk.data = m->of[DK], g.dv.data = m->of[DV];
    return ra_plan_backward(plan, &g, stream);
}

/* Passes one after the other, until one fails, which leaves nothing; its rank's memory is free when its stream is done.
 */
static ra_status run_passes(const lent_case *c, int rank, ra_plan *plan, const memory *m, void *stream) {
    char why[1024];
    for (int pass = 0; pass < (rank == c->absent ? c->absent_from : PASSES); pass++) {
        int first = pass % 2 ? DQ : O, last = pass % 2 ? DV : O;
        queued_drain(stream);
        RA_TRY(fill(c, m, first, last));
        ra_status status = pass % 2 ? run_backward(plan, m, stream) : run_forward(plan, m, stream);
        if (status == RA_OK) continue;
        snprintf(why, sizeof why, "%s", ra_last_error());
        queued_drain(stream);
        for (int i = first; i <= last; i++) RA_TRY(expect_nothing(c, m, i));
        return ra_fail(status, "%s", why);
    }
    queued_drain(stream);
    return RA_OK;
}

static void describe(const lent_case *c, ra_problem *p, ra_options *o) {
    ra_problem_init(p);
    ra_options_init(o);
    p->seq_q = c->tokens, p->heads_q = HEADS, p->dim = DIM, p->dtype = c->dtype, p->causal = 1;
    o->backend = c->backend, o->strategy = c->strategy, o->layout = RA_LAYOUT_ZIGZAG, o->backward = 1;
    o->timeout_seconds = c->timeout;
}

static ra_status body(ra_comm *comm, void *user) {
    lent_case *c = user;
    const ra_device *device = c->backend->device;
    int rank = ra_comm_rank(comm);
    ra_problem p;
    ra_options o;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    ra_plan *plan = NULL;
    memory m;
    void *stream;
    describe(c, &p, &o);
    RA_TRY(ra_predict(&p, &o, RANKS, rank, &info));
    RA_TRY(take(c, &info, &m));
    o.workspace = m.of[WORKSPACE], o.workspace_bytes = info.workspace_bytes;
    RA_TRY(device->stream_create(device, 0, &stream));
    ra_status status = ra_plan_create(comm, &p, &o, &plan); /* fails where another's first pass has failed by then */
    c->stays[rank] = status == RA_OK && plan->forward.stays && plan->backward.stays;
    if (status == RA_OK) status = run_passes(c, rank, plan, &m, stream);
    for (int i = 0; i < ARRAYS; i++) free(m.of[i]);
    ra_plan_destroy(plan);
    device->stream_destroy(device, stream);
    return status;
}

/* Whether the check of that number was come to. */
static int refuse(lent_case *c, int number) {
    rank_outcome outcomes[RANKS];
    ra_comm *comms[RANKS];
    int refused = 0;
    queued_habits habits = {.seed = (uint64_t)number, .delay_one_in = 4, .delay_most_us = 300, .refuse_check = number};
    queued_device *queued = queued_create(habits);
    c->backend = queued_backend(queued);
    assert_int_equal(ra_comm_create_threads(RANKS, comms), RA_OK);
    ranks_run(comms, RANKS, body, c, outcomes);
    for (int r = 0; r < RANKS; r++) {
        if (outcomes[r].status == RA_ERR_INTERNAL) fail_msg("check %d, rank %d: %s", number, r, outcomes[r].error);
        assert_true(outcomes[r].seconds < 10);
        refused += outcomes[r].status == RA_ERR_DEVICE;
    }
    ranks_destroy(comms, RANKS);
    queued_destroy(queued);
    return refused;
}

static void test_who_gives_up_has_its_memory_for_itself(void **state) {
    (void)state;
    static const ra_strategy strategies[] = {RA_STRATEGY_RING, RA_STRATEGY_ALLGATHER};
    for (int i = 0; i < 8; i++) {
        int stay = i >> 2, number = 1;
        lent_case c = {.strategy = strategies[i & 1],
                       .dtype = i & 2 ? RA_F32 : RA_BF16,
                       .tokens = stay ? 600 : 90,
                       .timeout = 20,
                       .absent = -1};
        while (refuse(&c, number) == 1) number++;
        assert_true(number > 2 * RANKS * PASSES); /* steps, and ends, of all ranks' passes */
        for (int r = 0; r < RANKS; r++) assert_int_equal(c.stays[r], stay);
    }
}

/* A rank goes, with its memory, after some passes: the others, whose next pass it does not come to, give up in time,
 * name it, and have not touched what was its own. */
static void test_a_rank_that_does_not_come(void **state) {
    (void)state;
    for (int i = 0; i < RANKS * PASSES; i++) {
        rank_outcome outcomes[RANKS];
        ra_comm *comms[RANKS];
        queued_device *queued =
            queued_create((queued_habits){.seed = (uint64_t)i, .delay_one_in = 4, .delay_most_us = 300});
        lent_case c = {.backend = queued_backend(queued),
                       .strategy = RA_STRATEGY_RING,
                       .dtype = i % 3 ? RA_F32 : RA_BF16,
                       .tokens = i % 5 ? 600 : 90,
                       .timeout = 0.3,
                       .absent = i % RANKS,
                       .absent_from = i / RANKS};
        char culprit[16];
        snprintf(culprit, sizeof culprit, "rank %d", c.absent);
        assert_int_equal(ra_comm_create_threads(RANKS, comms), RA_OK);
        ranks_run(comms, RANKS, body, &c, outcomes);
        for (int r = 0; r < RANKS; r++) {
            ra_status status = outcomes[r].status;
            if (r != c.absent && !strstr(outcomes[r].error, culprit))
                fail_msg("without %s: %s", culprit, outcomes[r].error);
            if (r == c.absent ? status != RA_OK : status != RA_ERR_TIMEOUT && status != RA_ERR_PEER)
                fail_msg("rank %d without rank %d: %d, %s", r, c.absent, (int)status, outcomes[r].error);
            assert_true(outcomes[r].seconds < 5);
        }
        ranks_destroy(comms, RANKS);
        queued_destroy(queued);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_who_gives_up_has_its_memory_for_itself),
                                       cmocka_unit_test(test_a_rank_that_does_not_come)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
