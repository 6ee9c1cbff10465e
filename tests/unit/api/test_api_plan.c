/* The public calls: agreement between ranks, refusals, a workspace of the caller's. */
#include "support/cmocka.h"
#include "support/ranks.h"

#include "base/status.h"

#include <ringattn/transport.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ra_problem good(void) {
    ra_problem p = RA_PROBLEM_INIT;
    p.seq_q = 24;
    p.heads_q = 2;
    p.dim = 4;
    return p;
}

static void error_names(const char *error, const char *word) {
    if (!strstr(error, word)) fail_msg("'%s' does not name '%s'", error, word);
}

/* ---- disagreement ------------------------------------------------------------------------------------------------ */

enum { RANKS = 3 };
static const int64_t cuts[] = {0, 10, 24}, other_cuts[] = {0, 11, 24};

typedef struct disagreement {
    const char *word;                          /* what the error must name */
    void (*spoil)(ra_problem *, ra_options *); /* what rank 2 does differently */
} disagreement;

static void spoil_causal(ra_problem *p, ra_options *o) {
    (void)o, p->causal = 1;
}
static void spoil_length(ra_problem *p, ra_options *o) {
    (void)o, p->seq_q = 25;
}
static void spoil_scale(ra_problem *p, ra_options *o) {
    (void)o, p->scale = 0.3;
}
static void spoil_dtype(ra_problem *p, ra_options *o) {
    (void)o, p->dtype = RA_BF16;
}
static void spoil_window(ra_problem *p, ra_options *o) {
    (void)o, p->window_left = 3, p->window_right = -1;
}
static void spoil_cuts(ra_problem *p, ra_options *o) {
    (void)o, p->cu_seqlens_q = other_cuts;
}
static void spoil_layout(ra_problem *p, ra_options *o) {
    (void)p, o->layout = RA_LAYOUT_STRIPED;
}
static void spoil_strategy(ra_problem *p, ra_options *o) {
    (void)p, o->strategy = RA_STRATEGY_ALLGATHER;
}
static void spoil_backward(ra_problem *p, ra_options *o) {
    (void)p, o->backward = 1;
}
static void spoil_everything(ra_problem *p, ra_options *o) {
    (void)o, p->heads_q = -4;
}
static void spoil_workspace(ra_problem *p, ra_options *o) {
    static _Alignas(64) char small[64];
    (void)p, o->workspace = small, o->workspace_bytes = 64;
}

static ra_status forgetful_body(ra_comm *comm, void *user) {
    (void)user;
    ra_problem p = good();
    ra_plan *plan = NULL;
    ra_status status = ra_plan_create(comm, &p, NULL, ra_comm_rank(comm) == 1 ? NULL : &plan);
    ra_plan_destroy(plan);
    return status;
}

static void test_a_missing_plan_out_is_told_to_everyone(void **state) {
    (void)state;
    ra_comm *comms[RANKS];
    rank_outcome outcomes[RANKS];
    assert_int_equal(ra_comm_create_threads(RANKS, comms), RA_OK);
    ranks_run(comms, RANKS, forgetful_body, NULL, outcomes);
    ranks_destroy(comms, RANKS);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(outcomes[r].status, r == 1 ? RA_ERR_ARGUMENT : RA_ERR_MISMATCH);
        error_names(outcomes[r].error, "plan_out");
        error_names(outcomes[r].error, "rank 1");
    }
}

static ra_status disagree_body(ra_comm *comm, void *user) {
    const disagreement *d = user;
    ra_problem p = good();
    ra_options o = RA_OPTIONS_INIT;
    ra_plan *plan = (ra_plan *)comm; /* must stay untouched */
    o.layout = RA_LAYOUT_CONTIGUOUS;
    o.strategy = RA_STRATEGY_RING;
    p.documents = 2;
    p.cu_seqlens_q = cuts;
    if (ra_comm_rank(comm) == 2) d->spoil(&p, &o);
    ra_status status = ra_plan_create(comm, &p, &o, &plan);
    if (plan != (ra_plan *)comm) return ra_fail(RA_ERR_INTERNAL, "plan_out was set");
    if (status == RA_OK) return RA_OK;
    char why[512];
    snprintf(why, sizeof why, "%s", ra_last_error());
    /* The comm is still good: all ranks can try again. */
    ra_problem agreed = good();
    RA_TRY(ra_plan_create(comm, &agreed, NULL, &plan));
    ra_plan_destroy(plan);
    return ra_fail(status, "%s", why);
}

static void test_disagreement_is_told_to_everyone(void **state) {
    (void)state;
    static const disagreement all[] = {
        {"causal", spoil_causal},
        {"seq_q", spoil_length},
        {"scale", spoil_scale},
        {"dtype", spoil_dtype},
        {"window_left", spoil_window},
        {"cu_seqlens_q", spoil_cuts},
        {"layout", spoil_layout},
        {"strategy", spoil_strategy},
        {"backward", spoil_backward},
        {"heads_q", spoil_everything},
        {"workspace_bytes", spoil_workspace},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ra_comm *comms[RANKS];
        rank_outcome outcomes[RANKS];
        disagreement d = all[i];
        assert_int_equal(ra_comm_create_threads(RANKS, comms), RA_OK);
        ranks_run(comms, RANKS, disagree_body, &d, outcomes);
        ranks_destroy(comms, RANKS);
        for (int r = 0; r < RANKS; r++) {
            int own_fault =
                r == 2 && (d.spoil == spoil_everything || d.spoil == spoil_workspace || d.spoil == spoil_length);
            assert_int_equal(outcomes[r].status, own_fault ? RA_ERR_ARGUMENT : RA_ERR_MISMATCH);
            if (d.spoil != spoil_length) error_names(outcomes[r].error, d.word);
            error_names(outcomes[r].error, "rank 2");
        }
    }
}

/* ---- nothing has failed ------------------------------------------------------------------------------------------ */

static ra_status run_all_calls(ra_comm *comm, ra_strategy strategy) {
    enum { ELEMENTS = 24 * 2 * 4 };
    float q[ELEMENTS] = {0}, o[ELEMENTS], lse[24 * 2], dq[ELEMENTS], dk[ELEMENTS], dv[ELEMENTS];
    ra_problem p = good();
    ra_options options = RA_OPTIONS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    ra_layout layout;
    ra_plan *plan;
    char mine = 1, all[RANKS];
    options.strategy = strategy;
    options.backward = 1;
    options.threads = 1;
    ra_tensors t = RA_TENSORS_INIT;
    ra_gradients g = RA_GRADIENTS_INIT;
    t.q.data = t.k.data = t.v.data = g.q.data = g.k.data = g.v.data = g.dout.data = q;
    g.o.data = t.o.data = o;
    t.lse = lse;
    g.lse = lse;
    g.dq.data = dq;
    g.dk.data = dk;
    g.dv.data = dv;
    RA_TRY(ra_predict(&p, &options, RANKS, 0, &info));
    RA_TRY(ra_layout_resolve(&p, &options, RANKS, &layout));
    RA_TRY(ra_plan_create(comm, &p, &options, &plan));
    RA_TRY(ra_plan_forward(plan, &t, NULL));
    RA_TRY(ra_plan_backward(plan, &g, NULL));
    RA_TRY(ra_plan_wait(plan, NULL));
    RA_TRY(ra_plan_describe(plan, &info));
    ra_plan_destroy(plan);
    return ra_comm_allgather(comm, &mine, 1, all, 30);
}

static ra_status flawless_body(ra_comm *comm, void *user) {
    (void)user;
    for (int strategy = RA_STRATEGY_AUTO; strategy <= RA_STRATEGY_ALLGATHER; strategy++) {
        RA_TRY(run_all_calls(comm, (ra_strategy)strategy));
        if (ra_last_error()[0]) return ra_fail(RA_ERR_INTERNAL, "nothing failed, but: %s", ra_last_error());
    }
    return RA_OK;
}

static void test_no_error_where_nothing_failed(void **state) {
    (void)state;
    if (ra_run_threads(RANKS, flawless_body, NULL) != RA_OK) fail_msg("%s", ra_last_error());
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void test_refusals(void **state) {
    (void)state;
    ra_comm *comm;
    ra_plan *plan = NULL;
    ra_problem p = good();
    ra_options o = RA_OPTIONS_INIT;
    assert_int_equal(ra_comm_create_self(&comm), RA_OK);
    assert_int_equal(ra_plan_create(NULL, &p, NULL, &plan), RA_ERR_ARGUMENT);
    assert_int_equal(ra_plan_create(comm, NULL, NULL, &plan), RA_ERR_ARGUMENT);
    assert_int_equal(ra_plan_create(comm, &p, NULL, NULL), RA_ERR_ARGUMENT);
    o.kernel = "warp-drive";
    assert_int_not_equal(ra_plan_create(comm, &p, &o, &plan), RA_OK);
    error_names(ra_last_error(), "warp-drive");
    error_names(ra_last_error(), "portable");
    o = (ra_options)RA_OPTIONS_INIT;
    o.layout = (ra_layout)9;
    assert_int_equal(ra_plan_create(comm, &p, &o, &plan), RA_ERR_ARGUMENT);
    o = (ra_options)RA_OPTIONS_INIT;
    o.timeout_seconds = -1;
    assert_int_equal(ra_plan_create(comm, &p, &o, &plan), RA_ERR_ARGUMENT);
    o = (ra_options)RA_OPTIONS_INIT;
    o.threads = -1;
    assert_int_equal(ra_plan_create(comm, &p, &o, &plan), RA_ERR_ARGUMENT);
    assert_null(plan);

    assert_int_equal(ra_plan_create(comm, &p, NULL, &plan), RA_OK);
    float data[24 * 2 * 4] = {0};
    ra_tensors t = RA_TENSORS_INIT;
    ra_gradients g = RA_GRADIENTS_INIT;
    assert_int_equal(ra_plan_forward(NULL, &t, NULL), RA_ERR_ARGUMENT);
    assert_int_equal(ra_plan_forward(plan, NULL, NULL), RA_ERR_ARGUMENT);
    t.q.data = t.k.data = t.o.data = data;
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_ERR_ARGUMENT);
    error_names(ra_last_error(), "v.data");
    t.v.data = data;
    assert_int_equal(ra_plan_forward(plan, &t, data), RA_ERR_ARGUMENT);
    error_names(ra_last_error(), "stream");
    t.struct_size = 8;
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_ERR_ARGUMENT);
    assert_int_equal(ra_plan_backward(plan, &g, NULL), RA_ERR_ARGUMENT);
    error_names(ra_last_error(), "backward");
    ra_plan_info info = RA_PLAN_INFO_INIT;
    assert_int_equal(ra_plan_describe(plan, NULL), RA_ERR_ARGUMENT);
    assert_int_equal(ra_plan_describe(NULL, &info), RA_ERR_ARGUMENT);
    info.struct_size = 0;
    assert_int_equal(ra_plan_describe(plan, &info), RA_ERR_ARGUMENT);
    ra_plan_destroy(plan);
    ra_plan_destroy(NULL);
    ra_comm_destroy(comm);
    ra_comm_destroy(NULL);
}

static void test_custom_transport_refusals(void **state) {
    (void)state;
    ra_comm *comm = NULL;
    ra_transport_ops ops = {.struct_size = sizeof ops, .name = "half"};
    assert_int_equal(ra_comm_create_custom(NULL, NULL, 0, 1, &comm), RA_ERR_ARGUMENT);
    assert_int_equal(ra_comm_create_custom(&ops, NULL, 0, 1, &comm), RA_ERR_ARGUMENT);
    error_names(ra_last_error(), "post");
    assert_int_equal(ra_comm_create_threads(0, &comm), RA_ERR_ARGUMENT);
    assert_int_equal(ra_run_threads(-1, NULL, NULL), RA_ERR_ARGUMENT);
    assert_null(comm);
}

/* ---- workspace --------------------------------------------------------------------------------------------------- */

static void test_a_workspace_of_the_callers(void **state) {
    (void)state;
    ra_problem p = good();
    ra_options o = RA_OPTIONS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    ra_comm *comm;
    ra_plan *plan;
    float q[24 * 2 * 4], o1[24 * 2 * 4], o2[24 * 2 * 4];
    for (int i = 0; i < 24 * 2 * 4; i++) q[i] = (float)(i % 7) / 7;
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = t.k.data = t.v.data = q;
    t.o.data = o1;
    assert_int_equal(ra_comm_create_self(&comm), RA_OK);
    assert_int_equal(ra_plan_create(comm, &p, &o, &plan), RA_OK);
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_OK);
    ra_plan_destroy(plan);

    assert_int_equal(ra_predict(&p, &o, 1, 0, &info), RA_OK);
    o.workspace = aligned_alloc(64, (size_t)info.workspace_bytes + 64);
    o.workspace_bytes = (size_t)info.workspace_bytes;
    memset(o.workspace, 0x5a, (size_t)info.workspace_bytes + 64);
    t.o.data = o2;
    assert_int_equal(ra_plan_create(comm, &p, &o, &plan), RA_OK);
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_OK);
    assert_memory_equal(o1, o2, sizeof o1);
    for (int i = 0; i < 64; i++) assert_int_equal(((unsigned char *)o.workspace)[info.workspace_bytes + i], 0x5a);
    ra_plan_destroy(plan);
    void *memory = o.workspace;
    o.workspace = (char *)memory + 4;
    assert_int_equal(ra_plan_create(comm, &p, &o, &plan), RA_ERR_ARGUMENT);
    error_names(ra_last_error(), "aligned");
    free(memory);
    ra_comm_destroy(comm);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disagreement_is_told_to_everyone),
        cmocka_unit_test(test_a_missing_plan_out_is_told_to_everyone),
        cmocka_unit_test(test_no_error_where_nothing_failed),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_custom_transport_refusals),
        cmocka_unit_test(test_a_workspace_of_the_callers),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
