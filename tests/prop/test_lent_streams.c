/* Ranks of one device that use each other's memory (exec/sharing.h), with two plans on streams of their own, pass
 * behind pass, and nobody waits for the device. A rank's stream spoils the rank's rows behind each pass, and brings
 * them back before the next: whoever still read or wrote there would show. Every round has the bits of the first. */
#include "support/cmocka.h"
#include "support/queued/queued_stream.h"
#include "support/rng.h"

#include "base/status.h"
#include "exec/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, PLANS = 2, ROUNDS = 8, HEADS = 2, DIM = 8 };
enum { Q, K, V, DOUT, INPUTS, O = INPUTS, DQ, DK, DV, LSE, ARRAYS, OUTPUTS = ARRAYS - INPUTS };

typedef struct streams_case {
    const ra_backend *backend;
    ra_dtype dtype;
    ra_strategy strategy;
    int64_t tokens;
    int stays; /* keys do, of so many */
} streams_case;

/* One plan's, on one rank. */
typedef struct lane {
    ra_plan *plan;
    void *stream;
    void *of[ARRAYS], *kept[INPUTS], *saved[ROUNDS][OUTPUTS], *spoiled;
    size_t bytes; /* of an array; lse has no more */
} lane;

static ra_status take(size_t bytes, void **memory_out) {
    if (posix_memalign(memory_out, 64, bytes) != 0) return ra_fail(RA_ERR_MEMORY, "no memory");
    memset(*memory_out, 0xff, bytes); /* NaN */
    return RA_OK;
}

static ra_status fill(ra_dtype dtype, int64_t elements, uint64_t seed, void *to) {
    double *values = malloc((size_t)elements * sizeof *values);
    rng r = {seed};
    if (!values) return ra_fail(RA_ERR_MEMORY, "no memory");
    for (int64_t i = 0; i < elements; i++) values[i] = (double)rng_between(&r, -100, 100) / 100;
    ra_status status = ra_convert(dtype, to, RA_F64, values, elements);
    free(values);
    return status;
}

static ra_status open_lane(ra_comm *comm, const streams_case *c, int number, lane *l) {
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    p.seq_q = c->tokens - 10 * number, p.heads_q = HEADS, p.dim = DIM, p.dtype = c->dtype, p.causal = 1;
    o.backend = c->backend, o.strategy = c->strategy, o.layout = RA_LAYOUT_ZIGZAG, o.backward = 1;
    RA_TRY(ra_plan_create(comm, &p, &o, &l->plan));
    RA_TRY(ra_plan_describe(l->plan, &info));
    RA_TRY(ra_backend_stream_create(c->backend, &l->stream));
    int64_t elements = info.rows_q * HEADS * DIM;
    l->bytes = (size_t)elements * ra_dtype_bytes(c->dtype);
    RA_TRY(take(l->bytes, &l->spoiled));
    for (int i = 0; i < ARRAYS; i++) RA_TRY(take(l->bytes, &l->of[i]));
    for (int i = 0; i < ROUNDS * OUTPUTS; i++) RA_TRY(take(l->bytes, &l->saved[i / OUTPUTS][i % OUTPUTS]));
    for (int i = 0; i < INPUTS; i++) {
        RA_TRY(take(l->bytes, &l->kept[i]));
        RA_TRY(fill(c->dtype, elements, (uint64_t)(100 * number + 10 * ra_comm_rank(comm) + i), l->kept[i]));
    }
    return RA_OK;
}

static void close_lane(const streams_case *c, lane *l) {
    if (l->stream) queued_drain(l->stream);
    ra_plan_destroy(l->plan);
    if (l->stream) ra_backend_stream_destroy(c->backend, l->stream);
    free(l->spoiled);
    for (int i = 0; i < ARRAYS; i++) free(l->of[i]);
    for (int i = 0; i < INPUTS; i++) free(l->kept[i]);
    for (int i = 0; i < ROUNDS * OUTPUTS; i++) free(l->saved[i / OUTPUTS][i % OUTPUTS]);
}

static ra_status put_copy(const streams_case *c, const lane *l, void *to, const void *from) {
    return c->backend->device->copy(c->backend->device, to, from, l->bytes, l->stream);
}

static ra_status forward(const streams_case *c, lane *l) {
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = l->of[Q], t.k.data = l->of[K], t.v.data = l->of[V], t.o.data = l->of[O], t.lse = l->of[LSE];
    for (int i = 0; i < INPUTS; i++) RA_TRY(put_copy(c, l, l->of[i], l->kept[i]));
    RA_TRY(ra_plan_forward(l->plan, &t, l->stream));
    for (int i = 0; i < INPUTS; i++) RA_TRY(put_copy(c, l, l->of[i], l->spoiled));
    return RA_OK;
}

static ra_status backward(const streams_case *c, lane *l, int round) {
    ra_gradients g = RA_GRADIENTS_INIT;
    g.q.data = l->of[Q], g.k.data = l->of[K], g.v.data = l->of[V], g.dout.data = l->of[DOUT];
    g.o.data = l->of[O], g.lse = l->of[LSE];
    g.dq.data = l->of[DQ], g.dk.data = l->of[DK], g.dv.data = l->of[DV];
    for (int i = 0; i < INPUTS; i++) RA_TRY(put_copy(c, l, l->of[i], l->kept[i]));
    RA_TRY(ra_plan_backward(l->plan, &g, l->stream));
    for (int i = 0; i < OUTPUTS; i++) RA_TRY(put_copy(c, l, l->saved[round][i], l->of[INPUTS + i]));
    for (int i = 0; i < ARRAYS; i++) RA_TRY(put_copy(c, l, l->of[i], l->spoiled));
    return RA_OK;
}

/* No NaN but behind the end of lse, and the bits of the first round. */
static ra_status check_lane(const streams_case *c, const lane *l) {
    int64_t elements = (int64_t)(l->bytes / ra_dtype_bytes(c->dtype)), nan = 0;
    double *values = malloc((size_t)elements * sizeof *values);
    if (!values) return ra_fail(RA_ERR_MEMORY, "no memory");
    queued_drain(l->stream);
    for (int i = 0; i < OUTPUTS - 1; i++) {
        RA_TRY(ra_convert(RA_F64, values, c->dtype, l->saved[0][i], elements));
        for (int64_t e = 0; e < elements; e++) nan += isnan(values[e]) != 0;
    }
    free(values);
    if (nan) return ra_fail(RA_ERR_INTERNAL, "%lld elements are NaN", (long long)nan);
    for (int i = 0; i < ROUNDS * OUTPUTS; i++)
        if (memcmp(l->saved[i / OUTPUTS][i % OUTPUTS], l->saved[0][i % OUTPUTS], l->bytes) != 0)
            return ra_fail(RA_ERR_INTERNAL, "output %d is another one in round %d", i % OUTPUTS, i / OUTPUTS);
    return RA_OK;
}

static ra_status run_lanes(ra_comm *comm, const streams_case *c, lane *lanes) {
    for (int i = 0; i < PLANS; i++) {
        RA_TRY(open_lane(comm, c, i, &lanes[i]));
        const ra_plan *plan = lanes[i].plan;
        if (plan->forward.stays != c->stays || plan->backward.stays != c->stays)
            return ra_fail(RA_ERR_INTERNAL, "whether keys stay");
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PLANS; i++) RA_TRY(forward(c, &lanes[i]));
        for (int i = 0; i < PLANS; i++) RA_TRY(backward(c, &lanes[i], round));
    }
    for (int i = 0; i < PLANS; i++) RA_TRY(check_lane(c, &lanes[i]));
    return RA_OK;
}

static ra_status body(ra_comm *comm, void *user) {
    const streams_case *c = user;
    lane lanes[PLANS] = {0};
    ra_status status = run_lanes(comm, c, lanes);
    for (int i = 0; i < PLANS; i++) close_lane(c, &lanes[i]);
    return status;
}

static void test_streams_of_plans_are_their_own(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        queued_device *queued = queued_create((queued_habits){.seed = seed, .delay_one_in = 5, .delay_most_us = 500});
        int stays = seed % 4 < 2;
        streams_case c = {.backend = queued_backend(queued),
                          .dtype = seed % 2 ? RA_F32 : RA_BF16,
                          .strategy = seed % 3 ? RA_STRATEGY_RING : RA_STRATEGY_ALLGATHER,
                          .tokens = stays ? 600 : 90,
                          .stays = stays};
        if (ra_run_threads(RANKS, body, &c) != RA_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, ra_last_error());
        queued_destroy(queued);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_streams_of_plans_are_their_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
