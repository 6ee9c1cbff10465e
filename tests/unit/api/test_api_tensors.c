/* Tensors as callers give them: C-order, strided, broadcast; structures and their initialisers. */
#include "support/cmocka.h"
#include "support/rng.h"

#include <math.h>
#include <ringattn/ringattn.h>
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

static void test_initialisers_are_the_macros(void **state) {
    (void)state;
    ra_problem p, p_init = RA_PROBLEM_INIT;
    ra_options o, o_init = RA_OPTIONS_INIT;
    ra_tensors t, t_init = RA_TENSORS_INIT;
    ra_gradients g, g_init = RA_GRADIENTS_INIT;
    ra_plan_info i, i_init = RA_PLAN_INFO_INIT;
    ra_problem_init(&p), ra_options_init(&o), ra_tensors_init(&t), ra_gradients_init(&g), ra_plan_info_init(&i);
    ra_problem_init(NULL), ra_options_init(NULL), ra_tensors_init(NULL), ra_gradients_init(NULL),
        ra_plan_info_init(NULL);
    assert_int_equal(p.struct_size, p_init.struct_size);
    assert_int_equal(p.window_left, -1);
    assert_int_equal(p.window_right, -1);
    assert_int_equal(p.dtype, RA_DTYPE_DEFAULT);
    assert_int_equal(o.struct_size, o_init.struct_size);
    assert_int_equal(t.struct_size, t_init.struct_size);
    assert_int_equal(g.struct_size, g_init.struct_size);
    assert_int_equal(i.struct_size, i_init.struct_size);
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
        cmocka_unit_test(test_initialisers_are_the_macros),
        cmocka_unit_test(test_shorter_structures_are_read),
    };
    return cmocka_run_group_tests_name("tensors", tests, NULL, NULL);
}
