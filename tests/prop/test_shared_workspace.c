/* Plans of one comm that share a workspace, as those of a training step do: their passes follow one another and leave
 * nothing in it that a later one needs. The same bits as with a workspace for each, on the CPU and on a device whose
 * work is put on one stream; also when each plan is destroyed as soon as its passes are on the stream. */
#include "support/cmocka.h"

#include "support/queued/queued.h"
#include "support/ranks.h"
#include "support/rng.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, PLANS = 3, ROUNDS = 2, HEADS = 4, DIM = 16, TOKENS = 250 };
enum { Q, K, V, O, DOUT, DQ, DK, DV, ARRAYS };

/* What the plans share: nothing, a workspace, or that and the time that only one of them exists. */
typedef enum sharing { APART, SHARED, ONE_BY_ONE } sharing;

typedef struct job {
    const ra_backend *backend;
    sharing sharing;
    uint64_t bits[RANKS][PLANS]; /* of all outputs */
} job;

/* One plan and its arrays, C-order, all of the same size. */
typedef struct task {
    ra_plan *plan;
    size_t bytes, lse_bytes;
    void *arrays[ARRAYS], *lse;
} task;

static const int64_t documents[PLANS][5] = {
    {0, 100, 101, 200, TOKENS}, {0, 1, 20, 249, TOKENS}, {0, 60, 120, 180, TOKENS}};

static ra_problem problem_of(int plan) {
    ra_problem p = RA_PROBLEM_INIT;
    p.seq_q = TOKENS, p.heads_q = HEADS, p.dim = DIM, p.causal = 1, p.dtype = RA_BF16;
    p.documents = 4, p.cu_seqlens_q = documents[plan];
    return p;
}

static ra_options options_of(const job *j, int plan) {
    static const ra_strategy strategies[PLANS] = {RA_STRATEGY_RING, RA_STRATEGY_PAIRWISE, RA_STRATEGY_PASSQ};
    ra_options o = RA_OPTIONS_INIT;
    o.backend = j->backend, o.backward = 1, o.threads = 1, o.strategy = strategies[plan];
    o.layout = plan == 1 ? RA_LAYOUT_DOCUMENTS : RA_LAYOUT_ZIGZAG;
    return o;
}

/* The host's memory, which the device of queues has as well; values of bf16 that are neither large nor special. */
static ra_status make_arrays(const job *j, task *t, const ra_plan_info *info, uint64_t seed) {
    rng r = {seed};
    int64_t rows = info->rows_q > info->rows_k ? info->rows_q : info->rows_k;
    t->bytes = (size_t)((rows + 1) * HEADS * DIM) * 4;
    t->lse_bytes = (size_t)((rows + 1) * HEADS) * 4;
    for (int i = 0; i < ARRAYS; i++) {
        RA_TRY(ra_backend_allocate(j->backend, (t->bytes + 63) / 64 * 64, &t->arrays[i]));
        uint16_t *values = t->arrays[i];
        for (size_t n = 0; n < t->bytes / 2; n++) values[n] = (uint16_t)(0x3e00 + rng_next(&r) % 256);
    }
    RA_TRY(ra_backend_allocate(j->backend, (t->lse_bytes + 63) / 64 * 64, &t->lse));
    memset(t->lse, 0, t->lse_bytes);
    return RA_OK;
}

static ra_status run_forward(task *t, void *stream) {
    ra_tensors x = RA_TENSORS_INIT;
    x.q.data = t->arrays[Q], x.k.data = t->arrays[K], x.v.data = t->arrays[V], x.o.data = t->arrays[O], x.lse = t->lse;
    return ra_plan_forward(t->plan, &x, stream);
}

static ra_status run_backward(task *t, void *stream) {
    ra_gradients g = RA_GRADIENTS_INIT;
    g.q.data = t->arrays[Q], g.k.data = t->arrays[K], g.v.data = t->arrays[V], g.o.data = t->arrays[O];
    g.dout.data = t->arrays[DOUT], g.lse = t->lse;
    g.dq.data = t->arrays[DQ], g.dk.data = t->arrays[DK], g.dv.data = t->arrays[DV];
    return ra_plan_backward(t->plan, &g, stream);
}

static uint64_t hash(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *c = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ c[i]) * 0x100000001b3u;
    return h;
}

/* Layers of a step: all forward passes, then all backward passes from the last to the first, without a wait between. */
static ra_status run_all(task *tasks, void *stream) {
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PLANS; i++) RA_TRY(run_forward(&tasks[i], stream));
        for (int i = PLANS - 1; i >= 0; i--) RA_TRY(run_backward(&tasks[i], stream));
    }
    return ra_plan_wait(tasks[PLANS - 1].plan, stream);
}

/* Every plan with its passes, without a wait; the last one stays. */
static ra_status run_one_by_one(task *tasks, int i, void *stream) {
    for (int round = 0; round < ROUNDS; round++) {
        RA_TRY(run_forward(&tasks[i], stream));
        RA_TRY(run_backward(&tasks[i], stream));
    }
    if (i == PLANS - 1) return ra_plan_wait(tasks[i].plan, stream);
    ra_plan_destroy(tasks[i].plan);
    tasks[i].plan = NULL;
    return RA_OK;
}

static ra_status workspace_for(const job *j, int rank, void **workspace_out, size_t *bytes_out) {
    size_t most = 0;
    for (int i = 0; i < PLANS; i++) {
        ra_problem p = problem_of(i);
        ra_options o = options_of(j, i);
        ra_plan_info info = RA_PLAN_INFO_INIT;
        RA_TRY(ra_predict(&p, &o, RANKS, rank, &info));
        if ((size_t)info.workspace_bytes > most) most = (size_t)info.workspace_bytes;
    }
    *bytes_out = most;
    return ra_backend_allocate(j->backend, (most + 63) / 64 * 64, workspace_out);
}

static ra_status body(ra_comm *comm, void *user) {
    job *j = user;
    task tasks[PLANS] = {{0}};
    void *workspace = NULL, *stream = NULL;
    size_t most = 0;
    int rank = ra_comm_rank(comm);
    RA_TRY(workspace_for(j, rank, &workspace, &most));
    RA_TRY(ra_backend_stream_create(j->backend, &stream));
    for (int i = 0; i < PLANS; i++) {
        ra_problem p = problem_of(i);
        ra_options o = options_of(j, i);
        ra_plan_info info = RA_PLAN_INFO_INIT;
        if (j->sharing != APART) o.workspace = workspace, o.workspace_bytes = most;
        RA_TRY(ra_plan_create(comm, &p, &o, &tasks[i].plan));
        RA_TRY(ra_plan_describe(tasks[i].plan, &info));
        RA_TRY(make_arrays(j, &tasks[i], &info, (uint64_t)(100 * i + rank)));
        if (j->sharing == ONE_BY_ONE) RA_TRY(run_one_by_one(tasks, i, stream));
    }
    if (j->sharing != ONE_BY_ONE) RA_TRY(run_all(tasks, stream));
    for (int i = 0; i < PLANS; i++) {
        uint64_t h = hash(0xcbf29ce484222325u, tasks[i].lse, tasks[i].lse_bytes);
        for (int a = 0; a < ARRAYS; a++) h = hash(h, tasks[i].arrays[a], tasks[i].bytes);
        j->bits[rank][i] = h;
        ra_plan_destroy(tasks[i].plan);
        for (int a = 0; a < ARRAYS; a++) ra_backend_release(j->backend, tasks[i].arrays[a]);
        ra_backend_release(j->backend, tasks[i].lse);
    }
    ra_backend_stream_destroy(j->backend, stream);
    ra_backend_release(j->backend, workspace);
    return RA_OK;
}

static void run_job(job *j) {
    ra_comm *comms[RANKS];
    rank_outcome outcomes[RANKS];
    assert_int_equal(ra_comm_create_threads(RANKS, comms), RA_OK);
    ranks_run(comms, RANKS, body, j, outcomes);
    ranks_destroy(comms, RANKS);
    for (int r = 0; r < RANKS; r++)
        if (outcomes[r].status != RA_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
}

static void check_sharing(const ra_backend *backend) {
    static job apart, other;
    apart = (job){.backend = backend, .sharing = APART};
    run_job(&apart);
    for (int how = SHARED; how <= ONE_BY_ONE; how++) {
        other = (job){.backend = backend, .sharing = (enum sharing)how};
        run_job(&other);
        assert_memory_equal(apart.bits, other.bits, sizeof apart.bits);
    }
}

static void test_on_the_cpu(void **state) {
    (void)state;
    check_sharing(NULL);
}

static void test_on_a_device(void **state) {
    (void)state;
    queued_device *queued = queued_create((queued_habits){.seed = 5, .delay_one_in = 6, .delay_most_us = 300});
    assert_non_null(queued);
    check_sharing(queued_backend(queued));
    queued_destroy(queued);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_on_the_cpu), cmocka_unit_test(test_on_a_device)};
    return cmocka_run_group_tests_name("workspace", tests, NULL, NULL);
}
