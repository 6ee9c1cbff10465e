/* Tensors as callers give them: C-order, strided, broadcast; structures and their initialisers. */
#include "support/cmocka.h"
#include "support/rng.h"

#include <math.h>
#include <ringattn/transport.h>
#include <ringattn/ucx.h>
#include <string.h>

enum { ROWS = 12, HEADS = 3, DIM = 4, COUNT = ROWS * HEADS * DIM };

static ra_problem problem(void) {
    ra_problem p = RA_PROBLEM_INIT;
    p.seq_q = ROWS, p.heads_q = HEADS, p.dim = DIM, p.causal = 1;
    return p;
}

static void fill(float *x, unsigned seed) {
    rng r = {seed};
    for (int i = 0; i < COUNT; i++) x[i] = (float)rng_real(&r);
}

static ra_plan *plan_of(ra_comm *comm) {
    ra_problem p = problem();
    ra_options o = RA_OPTIONS_INIT;
    ra_plan *plan = NULL;
    o.backward = 1;
    assert_int_equal(ra_plan_create(comm, &p, &o, &plan), RA_OK);
    return plan;
}

/* What sum().backward() hands over: one element for all of dout, every stride 0. */
static void test_a_broadcast_gradient_is_what_it_says(void **state) {
    (void)state;
    float q[COUNT], k[COUNT], v[COUNT], o[COUNT], lse[ROWS * HEADS], ones[COUNT], one = 1;
    float dq[2][COUNT], dk[2][COUNT], dv[2][COUNT];
    ra_comm *comm;
    fill(q, 1), fill(k, 2), fill(v, 3);
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    assert_int_equal(ra_comm_create_self(&comm), RA_OK);
    ra_plan *plan = plan_of(comm);
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = q, t.k.data = k, t.v.data = v, t.o.data = o, t.lse = lse;
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_OK);
    for (int i = 0; i < 2; i++) {
        ra_gradients g = RA_GRADIENTS_INIT;
        g.q = t.q, g.k = t.k, g.v = t.v, g.o = ra_as_input(t.o), g.lse = lse;
        g.dout = i ? (ra_input){&one, 1, {0, 0, 0, 0}} : (ra_input){.data = ones};
        g.dq.data = dq[i], g.dk.data = dk[i], g.dv.data = dv[i];
        assert_int_equal(ra_plan_backward(plan, &g, NULL), RA_OK);
    }
    assert_memory_equal(dq[0], dq[1], sizeof dq[0]);
    assert_memory_equal(dk[0], dk[1], sizeof dk[0]);
    assert_memory_equal(dv[0], dv[1], sizeof dv[0]);
    ra_plan_destroy(plan);
    ra_comm_destroy(comm);
}

static void test_strides_that_cannot_be_meant_are_refused(void **state) {
    (void)state;
    float x[COUNT] = {0};
    ra_comm *comm;
    assert_int_equal(ra_comm_create_self(&comm), RA_OK);
    ra_plan *plan = plan_of(comm);
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = t.k.data = t.v.data = x, t.o.data = x;
    t.k.stride[3] = 1; /* without strided */
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "k.strided"));
    t.k.stride[3] = 0;
    t.o = (ra_tensor){x, 1, {0, HEADS * DIM, 0, 1}}; /* all heads in one place */
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "o.stride[2]"));
    ra_plan_destroy(plan);
    ra_comm_destroy(comm);
}

/* ---- lse --------------------------------------------------------------------------------------------------------- */

enum { BATCH = 2, LSE_ROOM = 4096 };

/* A problem of which lse has batch, heads and rows; with branches of their own softmax where `mean` says so. */
static ra_plan *batch_plan(ra_comm *comm, const char *kernel, int mean) {
    static const ra_branch branches[] = {{4, 1}, {12, 3}};
    ra_problem p = problem();
    ra_options o = RA_OPTIONS_INIT;
    ra_plan *plan = NULL;
    p.batch = BATCH;
    if (mean) p.branches = 2, p.dilated = branches, p.dilated_combine = RA_DILATED_MEAN;
    o.backward = 1, o.kernel = kernel;
    if (ra_plan_create(comm, &p, &o, &plan) != RA_OK) fail_msg("%s", ra_last_error());
    return plan;
}

/* Strides that give every [b, h, row] a place of its own: the axes in any order, any of them backwards, with gaps. What
 * must be added to the pointer comes back. */
static int64_t random_strides(rng *r, int64_t *stride) {
    static const int64_t counts[] = {BATCH, HEADS, ROWS};
    int order[] = {0, 1, 2};
    int64_t step = rng_between(r, 1, 3), start = 0;
    for (int i = 2; i > 0; i--) {
        int j = (int)rng_between(r, 0, i), keep = order[i];
        order[i] = order[j], order[j] = keep;
    }
    for (int i = 0; i < 3; i++) {
        int axis = order[i], backwards = rng_one_in(r, 3);
        stride[axis] = backwards ? -step : step;
        if (backwards) start += step * (counts[axis] - 1);
        step = step * counts[axis] + rng_between(r, 0, 5);
    }
    assert_true(step < LSE_ROOM);
    return start;
}

typedef struct lse_run {
    float o[BATCH * COUNT], lse[LSE_ROOM], dq[BATCH * COUNT], dk[BATCH * COUNT], dv[BATCH * COUNT];
} lse_run;

static void run_with_lse(ra_plan *plan, const float *in, const int64_t *stride, int64_t start, lse_run *run) {
    ra_tensors t = RA_TENSORS_INIT;
    ra_gradients g = RA_GRADIENTS_INIT;
    for (int i = 0; i < LSE_ROOM; i++) run->lse[i] = 123;
    t.q.data = in, t.k.data = in + BATCH * COUNT, t.v.data = in + 2 * BATCH * COUNT, t.o.data = run->o;
    t.lse = run->lse + start;
    if (stride) t.lse_strided = 1, memcpy(t.lse_stride, stride, sizeof t.lse_stride);
    g.q = t.q, g.k = t.k, g.v = t.v, g.o = ra_as_input(t.o), g.dout.data = in + 3 * BATCH * COUNT;
    g.lse = t.lse, g.lse_strided = t.lse_strided, memcpy(g.lse_stride, t.lse_stride, sizeof g.lse_stride);
    g.dq.data = run->dq, g.dk.data = run->dk, g.dv.data = run->dv;
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_OK);
    assert_int_equal(ra_plan_backward(plan, &g, NULL), RA_OK);
}

/* Whatever the strides: the bits are the same, each at its place, and no other place is written. */
static void compare_lse(const lse_run *plain, const lse_run *strided, const int64_t *stride, int64_t start) {
    int64_t untouched = 0;
    for (int64_t i = 0; i < BATCH * HEADS * ROWS; i++) {
        int64_t b = i / (HEADS * ROWS), h = i / ROWS % HEADS, row = i % ROWS;
        int64_t at = start + b * stride[0] + h * stride[1] + row * stride[2];
        assert_memory_equal(&strided->lse[at], &plain->lse[i], sizeof(float));
    }
    for (int64_t i = 0; i < LSE_ROOM; i++) untouched += strided->lse[i] == 123;
    assert_int_equal(untouched, LSE_ROOM - BATCH * HEADS * ROWS);
    assert_memory_equal(strided->o, plain->o, sizeof plain->o);
    assert_memory_equal(strided->dq, plain->dq, sizeof plain->dq);
    assert_memory_equal(strided->dk, plain->dk, sizeof plain->dk);
    assert_memory_equal(strided->dv, plain->dv, sizeof plain->dv);
}

static void test_lse_may_have_any_strides(void **state) {
    (void)state;
    static float in[4 * BATCH * COUNT];
    static lse_run plain, strided;
    rng r = {20};
    ra_comm *comm;
    for (int i = 0; i < 4 * BATCH * COUNT; i++) in[i] = (float)rng_real(&r);
    assert_int_equal(ra_comm_create_self(&comm), RA_OK);
    for (int kernel = 0; ra_kernel_name(kernel); kernel++)
        for (int mean = 0; mean < 2 && ra_kernel_usable(kernel); mean++) {
            ra_plan *plan = batch_plan(comm, ra_kernel_name(kernel), mean);
            run_with_lse(plan, in, NULL, 0, &plain);
            for (int i = 0; i < 25; i++) {
                int64_t stride[3], start = random_strides(&r, stride);
                run_with_lse(plan, in, stride, start, &strided);
                compare_lse(&plain, &strided, stride, start);
            }
            ra_plan_destroy(plan);
        }
    ra_comm_destroy(comm);
}

static void test_lse_strides_that_cannot_be_meant(void **state) {
    (void)state;
    static float x[BATCH * COUNT], lse[LSE_ROOM];
    ra_comm *comm;
    assert_int_equal(ra_comm_create_self(&comm), RA_OK);
    ra_plan *plan = batch_plan(comm, NULL, 0);
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = t.k.data = t.v.data = t.o.data = x, t.lse = lse;
    t.lse_stride[2] = 1; /* without lse_strided */
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "lse_strided"));
    t.lse_strided = 1; /* all heads in one place */
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "lse_stride[0]"));
    t.lse = NULL; /* not wanted, so its strides do not matter */
    assert_int_equal(ra_plan_forward(plan, &t, NULL), RA_OK);
    ra_plan_destroy(plan);
    ra_comm_destroy(comm);
}

static void test_initialisers_are_the_macros(void **state) {
    (void)state;
    ra_problem p, p_init = RA_PROBLEM_INIT;
    ra_options o, o_init = RA_OPTIONS_INIT;
    ra_tensors t, t_init = RA_TENSORS_INIT;
    ra_gradients g, g_init = RA_GRADIENTS_INIT;
    ra_plan_info i, i_init = RA_PLAN_INFO_INIT;
    ra_transport_ops ops, ops_init = RA_TRANSPORT_OPS_INIT;
    ra_ucx_options u, u_init = RA_UCX_OPTIONS_INIT;
    ra_problem_init(&p), ra_options_init(&o), ra_tensors_init(&t), ra_gradients_init(&g), ra_plan_info_init(&i);
    ra_problem_init(NULL), ra_options_init(NULL), ra_tensors_init(NULL), ra_gradients_init(NULL),
        ra_plan_info_init(NULL);
    ra_transport_ops_init(&ops), ra_ucx_options_init(&u), ra_transport_ops_init(NULL), ra_ucx_options_init(NULL);
    assert_int_equal(p.struct_size, p_init.struct_size);
    assert_int_equal(p.window_left, -1);
    assert_int_equal(p.window_right, -1);
    assert_int_equal(p.dtype, RA_DTYPE_DEFAULT);
    assert_int_equal(o.struct_size, o_init.struct_size);
    assert_int_equal(t.struct_size, t_init.struct_size);
    assert_int_equal(g.struct_size, g_init.struct_size);
    assert_int_equal(i.struct_size, i_init.struct_size);
    assert_int_equal(ops.struct_size, ops_init.struct_size);
    assert_null(ops.post);
    assert_int_equal(u.struct_size, u_init.struct_size);
    assert_null(u.devices);
}

/* A program of an older header has a shorter structure: what it does not have keeps its default. */
static void test_shorter_structures_are_read(void **state) {
    (void)state;
    ra_problem p = problem();
    ra_plan_info whole = RA_PLAN_INFO_INIT, part = RA_PLAN_INFO_INIT;
    p.struct_size = offsetof(ra_problem, documents);
    assert_int_equal(ra_predict(&p, NULL, 2, 0, &whole), RA_OK);
    part.struct_size = offsetof(ra_plan_info, pairs) + sizeof part.pairs;
    part.workspace_bytes = -7;
    assert_int_equal(ra_predict(&p, NULL, 2, 0, &part), RA_OK);
    assert_int_equal(part.pairs, whole.pairs);
    assert_int_equal(part.workspace_bytes, -7);
    p.struct_size = sizeof p + 8;
    assert_int_equal(ra_predict(&p, NULL, 2, 0, &whole), RA_ERR_ARGUMENT);
    p.struct_size = 0;
    assert_int_equal(ra_predict(&p, NULL, 2, 0, &whole), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "problem"));
    /* Zeros would be a window of one key and a scale of 0. */
    ra_problem zeros = {.struct_size = sizeof zeros, .seq_q = ROWS, .heads_q = HEADS, .dim = DIM};
    assert_int_equal(ra_predict(&zeros, NULL, 2, 0, &whole), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "RA_PROBLEM_INIT"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_broadcast_gradient_is_what_it_says),
        cmocka_unit_test(test_strides_that_cannot_be_meant_are_refused),
        cmocka_unit_test(test_lse_may_have_any_strides),
        cmocka_unit_test(test_lse_strides_that_cannot_be_meant),
        cmocka_unit_test(test_initialisers_are_the_macros),
        cmocka_unit_test(test_shorter_structures_are_read),
    };
    return cmocka_run_group_tests_name("tensors", tests, NULL, NULL);
}
