/* Finite input of ordinary size raises none of FE_INVALID, FE_DIVBYZERO and FE_OVERFLOW, whatever the kernel, the mask
 * and what scratch held before: a host program may have enabled traps for them. */
#define _GNU_SOURCE /* feenableexcept */
#include "support/cmocka.h"
#include "support/rng.h"

#include <ringattn/ringattn.h>

#include <fenv.h>
#include <stdlib.h>
#include <string.h>

enum { RAISED = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW };

/* Lengths that leave padding everywhere; rows that see nothing; masked scores far above those that are seen. */
static const struct {
    const char *name;
    int64_t seq_q, seq_k, heads_q, heads_kv, dim, dim_v;
    int causal;
    int64_t left, right;
    double scale;
} problems[] = {
    {"plain", 101, 157, 2, 1, 17, 33, 0, -1, -1, 0},
    {"causal, the first rows see nothing", 130, 75, 2, 2, 64, 64, 1, -1, -1, 0},
    {"causal, scores of 1e4", 203, 203, 1, 1, 40, 8, 1, -1, -1, 500},
    {"a window, negative scale", 301, 211, 3, 1, 8, 130, 0, 5, 2, -3},
    {"a window that most rows see nothing of", 190, 20, 1, 1, 3, 3, 1, 2, 0, 0},
    {"one row", 1, 1, 1, 1, 1, 1, 0, -1, -1, 0},
    {"scale 0, causal", 50, 50, 1, 1, 16, 16, 1, -1, -1, -0.0},
};
enum { PROBLEMS = sizeof problems / sizeof *problems, MOST = 301 * 3 * 130 };

static const ra_dtype types[] = {RA_F64, RA_F32, RA_BF16, RA_F16};

static ra_problem problem_of(int which, ra_dtype dtype) {
    ra_problem p = RA_PROBLEM_INIT;
    p.dtype = dtype;
    p.seq_q = problems[which].seq_q, p.seq_k = problems[which].seq_k;
    p.heads_q = problems[which].heads_q, p.heads_kv = problems[which].heads_kv;
    p.dim = problems[which].dim, p.dim_v = problems[which].dim_v;
    p.causal = problems[which].causal;
    p.window_left = problems[which].left, p.window_right = problems[which].right;
    if (problems[which].scale != 0 || which == PROBLEMS - 1) p.scale = problems[which].scale;
    return p;
}

/* Infinities and signalling NaNs, of float and of double. */
static void fill_with_the_worst(void *memory, size_t bytes) {
    static const uint32_t words[] = {0x7f800000, 0x7fa00001, 0xff800000, 0x7ff00001};
    for (size_t i = 0; i < bytes / 4; i++) memcpy((char *)memory + 4 * i, &words[i % 4], 4);
}

/* The same few thousand numbers again and again. */
static void fill_at_random(void *tensor, ra_dtype dtype, rng *r) {
    enum { DIFFERENT = 5003 };
    size_t bytes = ra_dtype_bytes(dtype), block = DIFFERENT * bytes;
    for (int64_t i = 0; i < DIFFERENT; i++) {
        double x = rng_normal(r);
        ra_convert(dtype, (char *)tensor + i * (int64_t)bytes, RA_F64, &x, 1);
    }
    for (size_t at = block; at + block <= MOST * bytes; at += block) memcpy((char *)tensor + at, tensor, block);
}

enum { Q, K, V, DOUT, O, DQ, DK, DV, LSE, TENSORS };

typedef struct subject {
    void *tensor[TENSORS];
    void *workspace;
    ra_plan *plan;
} subject;

static subject subject_make(ra_comm *comm, const ra_problem *p, const char *kernel) {
    subject s = {0};
    ra_options how = RA_OPTIONS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    rng r = {3};
    for (int i = 0; i < TENSORS; i++) {
        assert_non_null(s.tensor[i] = calloc(MOST, 8));
        if (i <= DOUT) fill_at_random(s.tensor[i], p->dtype, &r);
    }
    how.backward = how.threads = 1;
    how.kernel = kernel;
    if (ra_predict(p, &how, 1, 0, &info) != RA_OK) fail_msg("%s", ra_last_error());
    how.workspace_bytes = ((size_t)info.workspace_bytes + 63) / 64 * 64;
    assert_non_null(s.workspace = how.workspace = aligned_alloc(64, how.workspace_bytes));
    fill_with_the_worst(s.workspace, how.workspace_bytes);
    if (ra_plan_create(comm, p, &how, &s.plan) != RA_OK) fail_msg("%s", ra_last_error());
    return s;
}

static void subject_run(const subject *s) {
    ra_tensors t = RA_TENSORS_INIT;
    ra_gradients g = RA_GRADIENTS_INIT;
    t.q.data = g.q.data = s->tensor[Q], t.k.data = g.k.data = s->tensor[K], t.v.data = g.v.data = s->tensor[V];
    g.o.data = t.o.data = s->tensor[O], t.lse = s->tensor[LSE], g.lse = s->tensor[LSE];
    g.dout.data = s->tensor[DOUT], g.dq.data = s->tensor[DQ], g.dk.data = s->tensor[DK], g.dv.data = s->tensor[DV];
    assert_int_equal(ra_plan_forward(s->plan, &t, NULL), RA_OK);
    assert_int_equal(ra_plan_backward(s->plan, &g, NULL), RA_OK);
}

static void subject_free(subject *s) {
    ra_plan_destroy(s->plan);
    free(s->workspace);
    for (int i = 0; i < TENSORS; i++) free(s->tensor[i]);
}

typedef void (*check)(const subject *s, const char *what, const char *kernel, ra_dtype dtype);

static void for_all(check run) {
    ra_comm *comm;
    assert_int_equal(ra_comm_create_self(&comm), RA_OK);
    for (int kernel = 0; ra_kernel_name(kernel); kernel++) {
        if (!ra_kernel_usable(kernel)) continue;
        for (int which = 0; which < PROBLEMS; which++)
            for (int t = 0; t < 4; t++) {
                ra_problem p = problem_of(which, types[t]);
                subject s = subject_make(comm, &p, ra_kernel_name(kernel));
                run(&s, problems[which].name, ra_kernel_name(kernel), types[t]);
                subject_free(&s);
            }
    }
    ra_comm_destroy(comm);
}

static void no_flag(const subject *s, const char *what, const char *kernel, ra_dtype dtype) {
    feclearexcept(FE_ALL_EXCEPT);
    subject_run(s);
    int raised = fetestexcept(RAISED);
    if (raised)
        fail_msg("%s, %s, %s: raised%s%s%s", what, kernel, ra_dtype_name(dtype),
                 raised & FE_INVALID ? " FE_INVALID" : "", raised & FE_DIVBYZERO ? " FE_DIVBYZERO" : "",
                 raised & FE_OVERFLOW ? " FE_OVERFLOW" : "");
}

static void test_no_flag_is_raised(void **state) {
    (void)state;
    for_all(no_flag);
}

#if defined(__GLIBC__) && defined(__x86_64__)
/* A trap ends the program: that is the test. */
static void survives_traps(const subject *s, const char *what, const char *kernel, ra_dtype dtype) {
    (void)what, (void)kernel, (void)dtype;
    feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(RAISED);
    subject_run(s);
    fedisableexcept(RAISED);
}

static void test_traps_are_not_sprung(void **state) {
    (void)state;
    for_all(survives_traps);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_flag_is_raised),
#if defined(__GLIBC__) && defined(__x86_64__)
        cmocka_unit_test(test_traps_are_not_sprung),
#endif
    };
    return cmocka_run_group_tests_name("traps", tests, NULL, NULL);
}
