/* Ranks of one device read keys where their callers have them. Where a rank's lie in no chunks, it packs them, and the
 * others find them there: the same bits, whoever packs, with keys that stay in the backward pass and with few that
 * travel. */
#include "support/cmocka.h"
#include "support/queued/queued.h"
#include "support/ranks.h"
#include "support/rng.h"

#include "exec/plan.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, HEADS = 2, DIM = 8 };
enum { Q, K, V, O, DOUT, DQ, DK, DV, ARRAYS };

typedef struct lend_case {
    const ra_backend *backend;
    ra_strategy strategy;
    int64_t tokens;
    int odd;              /* bit r: rank r has its keys and values an element further on */
    int packs[RANKS];     /* whether it lent nothing in the last pass */
    uint64_t bits[RANKS]; /* of its outputs */
} lend_case;

typedef struct arrays {
    float *of[ARRAYS], *lse;
    size_t elements;
} arrays;

static ra_status take_arrays(const lend_case *c, int rank, int64_t rows, arrays *a) {
    rng r = {(uint64_t)(100 + rank)};
    a->elements = (size_t)(rows * HEADS * DIM);
    for (int i = 0; i <= ARRAYS; i++) {
        void *memory;
        RA_TRY(ra_backend_allocate(c->backend, (a->elements + 16) * sizeof(float), &memory));
        memset(memory, 0, (a->elements + 16) * sizeof(float));
        if (i == ARRAYS) {
            a->lse = memory;
            break;
        }
        a->of[i] = (float *)memory + ((i == K || i == V) && c->odd >> rank & 1);
        for (size_t n = 0; n < a->elements && (i <= V || i == DOUT); n++)
            a->of[i][n] = (float)rng_between(&r, -100, 100) / 64;
    }
    return RA_OK;
}

static void release_arrays(const lend_case *c, int rank, arrays *a) {
    for (int i = 0; i < ARRAYS; i++)
        ra_backend_release(c->backend, a->of[i] - ((i == K || i == V) && c->odd >> rank & 1));
    ra_backend_release(c->backend, a->lse);
}

static uint64_t bits_of(const arrays *a) {
    static const int outputs[] = {O, DQ, DK, DV};
    uint64_t hash = 1469598103934665603u;
    for (int i = 0; i < 4; i++) {
        const unsigned char *bytes = (const unsigned char *)a->of[outputs[i]];
        for (size_t n = 0; n < a->elements * sizeof(float); n++) hash = (hash ^ bytes[n]) * 1099511628211u;
    }
    return hash;
}

static ra_status run_passes(const lend_case *c, ra_plan *plan, const arrays *a) {
    ra_tensors t = RA_TENSORS_INIT;
    ra_gradients g = RA_GRADIENTS_INIT;
    void *stream;
    const ra_device *device = c->backend->device;
    RA_TRY(device->stream_create(device, 0, &stream));
    t.q.data = g.q.data = a->of[Q], t.k.data = g.k.data = a->of[K], t.v.data = g.v.data = a->of[V];
    t.o.data = a->of[O], t.lse = a->lse;
    g.o.data = a->of[O], g.lse = a->lse, g.dout.data = a->of[DOUT];
    g.dq.data = a->of[DQ], g.dk.data = a->of[DK], g.dv.data = a->of[DV];
    ra_status status = ra_plan_forward(plan, &t, stream);
    if (status == RA_OK) status = ra_plan_backward(plan, &g, stream);
    if (status == RA_OK) status = ra_plan_wait(plan, stream);
    device->stream_destroy(device, stream);
    return status;
}

static ra_status body(ra_comm *comm, void *user) {
    lend_case *c = user;
    int rank = ra_comm_rank(comm);
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    ra_plan *plan;
    arrays a;
    p.seq_q = c->tokens, p.heads_q = HEADS, p.dim = DIM, p.dtype = RA_F32, p.causal = 1;
    o.backend = c->backend, o.strategy = c->strategy, o.layout = RA_LAYOUT_ZIGZAG, o.backward = 1;
    RA_TRY(ra_plan_create(comm, &p, &o, &plan));
    RA_TRY(take_arrays(c, rank, plan->prediction.setup.rows_q, &a));
    ra_status status = run_passes(c, plan, &a);
    c->packs[rank] = plan->sharing.rows->k.data == NULL;
    c->bits[rank] = bits_of(&a);
    release_arrays(c, rank, &a);
    ra_plan_destroy(plan);
    return status;
}

static void run(lend_case *c) {
    if (ra_run_threads(RANKS, body, c) != RA_OK) fail_msg("%s", ra_last_error());
}

static void check(const ra_backend *backend, ra_strategy strategy, int64_t tokens) {
    lend_case plain = {.backend = backend, .strategy = strategy, .tokens = tokens};
    run(&plain);
    for (int odd = 1; odd < 1 << RANKS; odd++) {
        lend_case other = {.backend = backend, .strategy = strategy, .tokens = tokens, .odd = odd};
        run(&other);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(other.packs[r], odd >> r & 1);
            assert_true(other.bits[r] == plain.bits[r]);
        }
    }
}

static void test_who_packs_changes_no_bit(void **state) {
    (void)state;
    static const ra_strategy strategies[] = {RA_STRATEGY_RING, RA_STRATEGY_ALLGATHER};
    queued_device *queued = queued_create((queued_habits){.seed = 1, .delay_one_in = 5, .delay_most_us = 200});
    for (int i = 0; i < 2; i++) {
        check(queued_backend(queued), strategies[i], 90);
        check(queued_backend(queued), strategies[i], 700);
    }
    queued_destroy(queued);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_who_packs_changes_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
