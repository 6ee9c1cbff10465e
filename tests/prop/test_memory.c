/* O(n/p): what a plan allocates is what it said, within the promise, halves when p doubles, and nothing is allocated on
 * the run path. malloc and its kin are counted here. */
#include "support/cmocka.h"
#include "support/problems/sweep.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __has_feature /* clang's way of saying it */
#define HAS_SANITIZER (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#else
#define HAS_SANITIZER 0
#endif

#if HAS_SANITIZER
#define COUNTS_ALLOCATIONS 0
#else
#define COUNTS_ALLOCATIONS 1
static _Thread_local long allocations;
static atomic_size_t largest;

/* glibc's own names for the real ones. */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static void note(size_t bytes) {
    allocations++;
    if (bytes > atomic_load(&largest)) atomic_store(&largest, bytes);
}

void *malloc(size_t bytes) {
    note(bytes);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    note(count * bytes);
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
    note(bytes);
    return __libc_realloc(memory, bytes);
}

int posix_memalign(void **memory_out, size_t alignment, size_t bytes) {
    note(bytes);
    *memory_out = __libc_memalign(alignment, bytes);
    return *memory_out ? 0 : 12;
}
#endif

static ra_problem problem_of(int64_t seq, ra_dtype dtype) {
    ra_problem p = RA_PROBLEM_INIT;
    p.dtype = dtype;
    p.seq_q = seq;
    p.heads_q = 8;
    p.heads_kv = 4;
    p.dim = 64;
    p.causal = 1;
    return p;
}

static ra_plan_info predict(const ra_problem *p, ra_strategy strategy, int ranks, int rank) {
    ra_options o = RA_OPTIONS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    o.strategy = strategy;
    o.layout = RA_LAYOUT_ZIGZAG;
    o.threads = 1;
    if (ra_predict(p, &o, ranks, rank, &info) != RA_OK) fail_msg("%s", ra_last_error());
    return info;
}

/* Ring forward: at most 2 KV slots + fp32 O + m and l + a constant independent of n. */
static void test_ring_forward_keeps_the_promise(void **state) {
    (void)state;
    static const ra_dtype dtypes[] = {RA_F32, RA_BF16};
    for (int d = 0; d < 2; d++) {
        int64_t constant = -1;
        for (int64_t seq = 1 << 12; seq <= 1 << 20; seq *= 4)
            for (int ranks = 2; ranks <= 16; ranks *= 2) {
                ra_problem p = problem_of(seq, dtypes[d]);
                ra_plan_info info = predict(&p, RA_STRATEGY_RING, ranks, 1);
                int64_t rows = seq / ranks;
                int64_t slot = rows * 4 * (64 + 64) * (int64_t)ra_dtype_bytes(dtypes[d]);
                int64_t state_bytes = rows * 8 * (64 + 1 + 1) * 4;
                int64_t rest = info.workspace_bytes - 2 * slot - state_bytes;
                assert_true(rest <= info.scratch_bytes + 6 * 64);
                if (constant < 0) constant = info.scratch_bytes;
                assert_int_equal(info.scratch_bytes, constant);
                assert_int_equal(info.kv_slots, 2);
                assert_int_equal(info.workspace_bytes,
                                 info.kv_slot_bytes + info.state_bytes + info.grad_slot_bytes + info.scratch_bytes);
                if (ranks == 2) continue; /* two causal zigzag ranks need not even a whole shard of each other */
                ra_plan_info half = predict(&p, RA_STRATEGY_RING, 2 * ranks, 1);
                int64_t a = info.workspace_bytes - constant, b = half.workspace_bytes - constant;
                assert_true(2 * b <= a + 12 * 64 && 2 * b >= a - 12 * 64);
            }
    }
}

/* Everything but allgather is O(n/p) in both passes: doubling n and p together leaves the workspace as it is. */
static void test_backward_and_pairwise_scale_too(void **state) {
    (void)state;
    for (int strategy = RA_STRATEGY_RING; strategy <= RA_STRATEGY_PAIRWISE; strategy++) {
        ra_options o = RA_OPTIONS_INIT;
        ra_plan_info small = RA_PLAN_INFO_INIT, large = RA_PLAN_INFO_INIT;
        ra_problem p = problem_of(1 << 14, RA_F32), q = problem_of(1 << 17, RA_F32);
        o.strategy = (ra_strategy)strategy;
        o.layout = RA_LAYOUT_ZIGZAG;
        o.backward = o.threads = 1;
        assert_int_equal(ra_predict(&p, &o, 4, 1, &small), RA_OK);
        assert_int_equal(ra_predict(&q, &o, 32, 1, &large), RA_OK);
        assert_true(large.workspace_bytes <= small.workspace_bytes + 4096);
    }
}

#if COUNTS_ALLOCATIONS
enum { RANKS = 3, SEQ = 3000 };

typedef struct counted_run {
    long run_allocations[RANKS];
} counted_run;

/* Plans, then runs both passes twice between two readings of the counter. */
static ra_status counted_body(ra_comm *comm, void *user) {
    counted_run *run = user;
    ra_problem p = problem_of(SEQ, RA_F32);
    ra_options o = RA_OPTIONS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    ra_plan *plan;
    char mine = 0, all[RANKS];
    o.strategy = RA_STRATEGY_RING;
    o.backward = o.threads = 1;
    ra_status status = ra_plan_create(comm, &p, &o, &plan);
    if (status != RA_OK) return status;
    ra_plan_describe(plan, &info);
    size_t q = (size_t)info.rows_q * 8 * 64, k = (size_t)info.rows_k * 4 * 64;
    float *memory = malloc((5 * q + 6 * k) * sizeof(float) + (size_t)info.rows_q * 8 * sizeof(float));
    for (size_t i = 0; i < 5 * q + 6 * k; i++) memory[i] = (float)(i % 13) / 13;
    ra_tensors t = RA_TENSORS_INIT;
    ra_gradients g = RA_GRADIENTS_INIT;
    t.q.data = memory, t.k.data = memory + q, t.v.data = memory + q + k, t.o.data = memory + q + 2 * k;
    t.lse = memory + 5 * q + 6 * k;
    g.q = t.q, g.k = t.k, g.v = t.v, g.o = ra_as_input(t.o), g.lse = t.lse, g.dout.data = memory + 2 * q + 2 * k;
    g.dq.data = memory + 3 * q + 2 * k, g.dk.data = memory + 4 * q + 2 * k, g.dv.data = memory + 4 * q + 3 * k;
    ra_comm_allgather(comm, &mine, 1, all, 0); /* everyone has allocated what they will */
    long before = allocations;
    for (int i = 0; i < 2 && status == RA_OK; i++) {
        status = ra_plan_forward(plan, &t, NULL);
        if (status == RA_OK) status = ra_plan_backward(plan, &g, NULL);
    }
    run->run_allocations[ra_comm_rank(comm)] = allocations - before;
    ra_comm_allgather(comm, &mine, 1, all, 0);
    ra_plan_destroy(plan);
    free(memory);
    return status;
}
#endif

static void test_nothing_is_allocated_while_running(void **state) {
    (void)state;
#if COUNTS_ALLOCATIONS
    counted_run run = {{0}};
    if (ra_run_threads(RANKS, counted_body, &run) != RA_OK) fail_msg("%s", ra_last_error());
    for (int r = 0; r < RANKS; r++) assert_int_equal(run.run_allocations[r], 0);
#else
    skip();
#endif
}

/* The report's figure is what was allocated: the largest block a plan takes is its workspace. */
static void test_workspace_is_what_was_allocated(void **state) {
    (void)state;
#if COUNTS_ALLOCATIONS
    ra_problem p = problem_of(20000, RA_F32);
    ra_options o = RA_OPTIONS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    ra_comm *comm;
    ra_plan *plan;
    o.backward = 1;
    assert_int_equal(ra_comm_create_self(&comm), RA_OK);
    atomic_store(&largest, 0);
    assert_int_equal(ra_plan_create(comm, &p, &o, &plan), RA_OK);
    assert_int_equal(ra_plan_describe(plan, &info), RA_OK);
    assert_int_equal(atomic_load(&largest), info.workspace_bytes);
    ra_plan_destroy(plan);
    ra_comm_destroy(comm);
#else
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_forward_keeps_the_promise),
        cmocka_unit_test(test_backward_and_pairwise_scale_too),
        cmocka_unit_test(test_nothing_is_allocated_while_running),
        cmocka_unit_test(test_workspace_is_what_was_allocated),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
