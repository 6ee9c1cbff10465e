/* Where things lie in a plan's block, for random problems, ranks and strategies: no two things that a pass uses
 * overlap, each starts at a multiple of 64 bytes and ends before the block does, and the figures of ra_plan_info add
 * up. */
#include "support/cmocka.h"
#include "support/problems/case.h"
#include "support/rng.h"

#include "plan/predict.h"

enum { CASES = 400, MOST = 512 };

typedef struct region {
    const char *name;
    size_t from, bytes;
} region;

typedef struct layout {
    region all[MOST];
    int count;
} layout;

static void add(layout *l, const char *name, size_t from, int64_t elements, size_t bytes) {
    if (elements == 0) return;
    assert_true(l->count < MOST);
    l->all[l->count++] = (region){name, from, (size_t)elements * bytes};
}

static void add_slots(layout *l, const ra_prediction *p, const ra_schedule *schedule, ra_cargo cargo,
                      const char *name) {
    const ra_slots *slots = &schedule->slots[cargo];
    for (int64_t i = 0; i < slots->count; i++)
        add(l, name, p->workspace.slots[cargo][i], slots->elements[i], ra_cargo_bytes(&p->setup.problem, cargo));
}

/* All that the passes of this kind have in the block at once, with sizes worked out from the problem. */
static layout layout_of(const ra_prediction *p, ra_pass pass) {
    const ra_workspace *w = &p->workspace;
    const ra_shape *shape = &p->setup.shape;
    const ra_schedule *schedule = pass == RA_FORWARD ? &p->forward : &p->backward;
    static const char *const names[RA_CARGO_COUNT] = {
        [RA_CARGO_KV] = "KV",       [RA_CARGO_GRAD] = "gradient", [RA_CARGO_QUERY] = "query",
        [RA_CARGO_STATS] = "stats", [RA_CARGO_STATE] = "state",   [RA_CARGO_DQ] = "dQ slot"};
    size_t acc = p->setup.problem.dtype == RA_F64 ? 8 : 4;
    int64_t rows = shape->batch * shape->heads_q * p->setup.rows_q, states = shape->states;
    int64_t keys = shape->batch * shape->heads_kv * p->setup.rows_k;
    int sums_apart = p->setup.gradient_target == RA_TARGET_WORKSPACE;
    layout l = {.count = 0};
    for (int c = 0; c < RA_CARGO_COUNT; c++) add_slots(&l, p, schedule, (ra_cargo)c, names[c]);
    if (pass == RA_FORWARD || states > 1) {
        add(&l, "m", w->m, states * rows, acc);
        add(&l, "l", w->l, states * rows, acc);
        if (p->setup.o_target == RA_TARGET_WORKSPACE) add(&l, "o", w->o, states * rows * shape->dim_v, acc);
    }
    if (pass == RA_BACKWARD) {
        add(&l, "lse", w->lse, states * rows, acc);
        add(&l, "delta", w->delta, states * rows, acc);
        if (sums_apart) add(&l, "dq", w->dq, rows * shape->dim, acc);
        if (sums_apart) add(&l, "own dk", w->own_dk, keys * shape->dim, acc);
        if (sums_apart) add(&l, "own dv", w->own_dv, keys * shape->dim_v, acc);
    }
    int backward = pass == RA_BACKWARD;
    add(&l, "scratch", w->scratch, (int64_t)p->setup.kernel->scratch_bytes(shape, p->setup.threads, backward), 1);
    return l;
}

static void check(const layout *l, const ra_prediction *p, const char *text) {
    for (int i = 0; i < l->count; i++) {
        const region *a = &l->all[i];
        if (a->from % 64) fail_msg("%s: %s starts at %zu", text, a->name, a->from);
        if (a->from + a->bytes > p->workspace.bytes) fail_msg("%s: %s ends behind the block", text, a->name);
        for (int j = 0; j < i; j++) {
            const region *b = &l->all[j];
            if (a->from < b->from + b->bytes && b->from < a->from + a->bytes)
                fail_msg("%s: %s and %s overlap", text, a->name, b->name);
        }
    }
}

static void test_nothing_overlaps(void **state) {
    (void)state;
    static const ra_dtype types[] = {RA_F32, RA_F64, RA_BF16, RA_F16};
    static const ra_strategy strategies[] = {RA_STRATEGY_RING, RA_STRATEGY_PAIRWISE, RA_STRATEGY_ALLGATHER,
                                             RA_STRATEGY_PASSQ};
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        test_case c;
        char text[600];
        rng r = {seed};
        case_make(&c, seed, types[seed % 4], 1e6);
        c.options.backward = !rng_one_in(&r, 4);
        c.options.strategy = strategies[rng_between(&r, 0, 3)];
        int ranks = (int)rng_between(&r, 1, 6), rank = (int)rng_between(&r, 0, ranks - 1);
        ra_pool pool = {0};
        ra_prediction p = {0};
        case_text(&c, text, sizeof text);
        if (ra_setup_make(&c.problem, &c.options, (ra_seat){rank, ranks, ranks, ranks, 0}, &p.setup) != RA_OK ||
            ra_prediction_make(&pool, &p) != RA_OK)
            fail_msg("%s: %s", text, ra_last_error());
        layout forward = layout_of(&p, RA_FORWARD);
        check(&forward, &p, text);
        if (p.setup.backward) {
            layout backward = layout_of(&p, RA_BACKWARD);
            check(&backward, &p, text);
        }
        assert_int_equal(p.workspace.bytes, p.workspace.kv_slot_bytes + p.workspace.grad_slot_bytes +
                                                p.workspace.state_bytes + p.workspace.scratch_bytes);
        ra_pool_free(&pool);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_overlaps)};
    return cmocka_run_group_tests_name("workspace", tests, NULL, NULL);
}
