/* A child of fork() goes on with its parent's plan, or makes its own: same bits, and no hang. */
#include "support/cmocka.h"

#include <ringattn/ringattn.h>

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SEQ = 300, HEADS = 2, DIM = 16, ELEMENTS = SEQ * HEADS * DIM };

static float q[ELEMENTS], dout[ELEMENTS];

typedef struct outputs {
    float o[ELEMENTS], lse[SEQ * HEADS], dq[ELEMENTS], dk[ELEMENTS], dv[ELEMENTS];
} outputs;

static ra_status make_plan(ra_comm *comm, ra_plan **plan_out) {
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    p.seq_q = SEQ;
    p.heads_q = HEADS;
    p.dim = DIM;
    p.causal = 1;
    o.threads = 2;
    o.backward = 1;
    return ra_plan_create(comm, &p, &o, plan_out);
}

static ra_status run_both(ra_plan *plan, outputs *out) {
    ra_tensors t = RA_TENSORS_INIT;
    ra_gradients g = RA_GRADIENTS_INIT;
    t.q.data = t.k.data = t.v.data = g.q.data = g.k.data = g.v.data = q;
    g.o.data = t.o.data = out->o;
    t.lse = out->lse;
    g.lse = out->lse;
    g.dout.data = dout;
    g.dq.data = out->dq;
    g.dk.data = out->dk;
    g.dv.data = out->dv;
    ra_status status = ra_plan_forward(plan, &t, NULL);
    return status == RA_OK ? ra_plan_backward(plan, &g, NULL) : status;
}

/* The child: the parent's plan, then a plan of its own. */
static int child_code(ra_plan *inherited, const outputs *want) {
    static outputs got;
    ra_comm *comm;
    ra_plan *own;
    alarm(60);
    if (run_both(inherited, &got) != RA_OK) return 1;
    if (memcmp(&got, want, sizeof got) != 0) return 2;
    memset(&got, 0, sizeof got);
    if (ra_comm_create_self(&comm) != RA_OK || make_plan(comm, &own) != RA_OK) return 3;
    if (run_both(own, &got) != RA_OK) return 4;
    return memcmp(&got, want, sizeof got) == 0 ? 0 : 5;
}

static void test_a_child_computes(void **state) {
    (void)state;
    static outputs want, again;
    ra_comm *comm;
    ra_plan *plan;
    int status = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        q[i] = (float)(i * 37 % 101) / 101 - 0.5f;
        dout[i] = (float)(i * 53 % 97) / 97 - 0.5f;
    }
    assert_int_equal(ra_comm_create_self(&comm), RA_OK);
    assert_int_equal(make_plan(comm, &plan), RA_OK);
    assert_int_equal(run_both(plan, &want), RA_OK);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(child_code(plan, &want));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) fail_msg("the child was ended by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(run_both(plan, &again), RA_OK);
    assert_memory_equal(&again, &want, sizeof want);
    ra_plan_destroy(plan);
    ra_comm_destroy(comm);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_child_computes)};
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
