/* How much of a ring's transfers is hidden behind its arithmetic, over UCX: no test, a measurement for machines with a
 * core or more for every process.
 *
 *     start_ranks.py 4 ucx_overlap [REPEATS [TOKENS]]
 *
 * For full attention of 256 to TOKENS (8,192) tokens, in turns, the best and the median of so many repeats, of the
 * slowest rank:
 *
 *     one step   the same pairs with all keys at home, every process at once
 *     compute    the forward pass of a ring plan whose messages are not sent: its steps, with nothing to wait for
 *     transfer   the same bytes to the neighbour and from the other one, p - 1 times, and nothing else
 *     ring       the forward pass of the same plan, messages and all
 *
 * The ratios are ring over the larger of compute and transfer, of the best and of the medians: 1 would be perfect. The
 * last column is the least that it can be. Where ranks share memory one of a rank's threads copies what comes, so that
 * threads which share the arithmetic evenly take compute + transfer / threads. And where a message takes longer than
 * the step that hides it, the last step has nothing left to hide: p - 1 times the longer of the two, and one step.
 */
#include "base/cores.h"
#include "transport/ucx/ucx_transport.h"
#include "ucx_test.h"

/* A transport that can be told to send nothing and to call every group done. */
typedef struct mutable_ucx {
    ra_ucx *ucx;
    int muted;
} mutable_ucx;

static ra_status post(void *self, const ra_message *messages, int count, void *stream) {
    mutable_ucx *m = self;
    return m->muted ? RA_OK : ra_ucx_post(m->ucx, messages, count, stream);
}

static ra_status poll(void *self, double seconds, int *done_out, int *culprit_out) {
    mutable_ucx *m = self;
    *done_out = 1, *culprit_out = -1;
    return m->muted ? RA_OK : ra_ucx_poll(m->ucx, seconds, done_out, culprit_out);
}

static int abandon(void *self, const char *reason) {
    return ra_ucx_abandon(((mutable_ucx *)self)->ucx, reason);
}

static void destroy(void *self) {
    ra_ucx_destroy(((mutable_ucx *)self)->ucx);
}

static void inquire(void *self, int peer, ra_sign *sign_out) {
    ra_ucx_inquire(((mutable_ucx *)self)->ucx, peer, sign_out);
}

static const ra_transport_ops MUTABLE = {.struct_size = sizeof(ra_transport_ops),
                                         .name = "ucx that may be mute",
                                         .post = post,
                                         .poll = poll,
                                         .abandon = abandon,
                                         .destroy = destroy,
                                         .inquire = inquire};

typedef struct bench {
    ra_rendezvous *meeting;
    ra_ucx *ucx; /* for the bare transfers */
    mutable_ucx ring_ucx;
    ra_comm *ring;  /* over it */
    ra_comm *alone; /* one rank */
    ra_comm *words; /* what ranks tell each other in between */
    int rank, ranks, repeats;
} bench;

/* The slowest rank's. Over the comm, which takes microseconds: ranks leave it together. */
static double slowest(const bench *b, double mine) {
    double all[64], most = 0;
    CHECK(b->ranks <= 64);
    CHECK(ra_comm_allgather(b->words, &mine, sizeof mine, all, 60) == RA_OK);
    for (int r = 0; r < b->ranks; r++) most = all[r] > most ? all[r] : most;
    return most;
}

static void *filled(size_t bytes) {
    void *memory = malloc(bytes);
    CHECK(memory != NULL);
    memset(memory, 0, bytes);
    return memory;
}

enum { HEADS = 8, DIM = 128, MOST_REPEATS = 1000 };

/* A plan over a comm, and this rank's rows for it. */
typedef struct ring_work {
    ra_plan *plan;
    void *q, *k, *v, *o, *lse;
    ra_tensors tensors; /* of these */
} ring_work;

static ring_work make_work(ra_comm *comm, int64_t queries, int64_t keys, int threads) {
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    ring_work made = {.tensors = RA_TENSORS_INIT};
    p.seq_q = queries, p.seq_k = keys, p.heads_q = HEADS, p.heads_kv = HEADS, p.dim = DIM, p.dtype = RA_BF16;
    o.strategy = RA_STRATEGY_RING, o.layout = RA_LAYOUT_CONTIGUOUS, o.threads = threads;
    CHECK(ra_plan_create(comm, &p, &o, &made.plan) == RA_OK && ra_plan_describe(made.plan, &info) == RA_OK);
    size_t q_bytes = (size_t)info.rows_q * HEADS * DIM * 2, k_bytes = (size_t)info.rows_k * HEADS * DIM * 2;
    made.q = filled(q_bytes), made.o = filled(q_bytes), made.k = filled(k_bytes), made.v = filled(k_bytes);
    made.lse = filled((size_t)info.rows_q * HEADS * sizeof(float));
    made.tensors.q.data = made.q, made.tensors.k.data = made.k, made.tensors.v.data = made.v;
    made.tensors.o.data = made.o, made.tensors.lse = made.lse;
    return made;
}

static void free_work(ring_work *p) {
    ra_plan_destroy(p->plan);
    free(p->q), free(p->k), free(p->v), free(p->o), free(p->lse);
}

static double time_pass(bench *b, const ring_work *p, int mute) {
    slowest(b, 0);
    b->ring_ucx.muted = mute;
    double start = test_clock();
    CHECK(ra_plan_forward(p->plan, &p->tensors, NULL) == RA_OK);
    double seconds = test_clock() - start;
    b->ring_ucx.muted = 0;
    return slowest(b, seconds);
}

static double time_transfers(const bench *b, char *out, char *in, size_t bytes) {
    int next = (b->rank + 1) % b->ranks, before = (b->rank + b->ranks - 1) % b->ranks, done, culprit;
    ra_message group[] = {{.peer = before, .tag = 1, .data = in, .bytes = bytes},
                          {.peer = next, .is_send = 1, .tag = 1, .data = out, .bytes = bytes}};
    slowest(b, 0);
    double start = test_clock();
    for (int step = 1; step < b->ranks; step++) {
        CHECK(ra_ucx_ops.post(b->ucx, group, 2, NULL) == RA_OK);
        CHECK(ra_ucx_ops.poll(b->ucx, 60, &done, &culprit) == RA_OK && done);
    }
    return slowest(b, test_clock() - start);
}

/* ---- what is printed --------------------------------------------------------------------------------------------- */

enum { ONE_STEP, COMPUTE, TRANSFER, RING, TIMES };

typedef struct times {
    double of[TIMES];
} times;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The best of each, and the median. */
static void sum_up(const times *all, int count, times *best_out, times *median_out) {
    static double sorted[MOST_REPEATS];
    for (int what = 0; what < TIMES; what++) {
        for (int i = 0; i < count; i++) sorted[i] = all[i].of[what];
        qsort(sorted, (size_t)count, sizeof *sorted, by_value);
        best_out->of[what] = sorted[0];
        median_out->of[what] = sorted[count / 2];
    }
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

static double ratio_of(const times *t) {
    return t->of[RING] / larger(t->of[COMPUTE], t->of[TRANSFER]);
}

static double least_ratio(const times *t, int ranks, int threads) {
    double step = t->of[COMPUTE] / ranks, message = t->of[TRANSFER] / (ranks - 1);
    double copied = t->of[COMPUTE] + t->of[TRANSFER] / threads;
    double in_turn = (ranks - 1) * larger(step, message) + step;
    return larger(copied, in_turn) / larger(t->of[COMPUTE], t->of[TRANSFER]);
}

static void measure(bench *b, int64_t tokens, int threads) {
    static times all[MOST_REPEATS];
    times best, median;
    size_t bytes = (size_t)(tokens / b->ranks) * HEADS * DIM * 2 * 2;
    char *out = filled(bytes), *in = filled(bytes);
    ring_work alone = make_work(b->alone, tokens / b->ranks, tokens, threads),
              ring = make_work(b->ring, tokens, tokens, threads);
    for (int i = -1; i < b->repeats; i++) { /* the first of all is not counted */
        times t = {{time_pass(b, &alone, 0), time_pass(b, &ring, 1), time_transfers(b, out, in, bytes),
                    time_pass(b, &ring, 0)}};
        if (i >= 0) all[i] = t;
    }
    sum_up(all, b->repeats, &best, &median);
    if (b->rank == 0) {
        printf("%8lld", (long long)tokens);
        for (int what = 0; what < TIMES; what++) printf(" %7.3f ms", 1e3 * best.of[what]);
        printf(" %7.2f %7.2f %7.2f\n", ratio_of(&best), ratio_of(&median), least_ratio(&best, b->ranks, threads));
        fflush(stdout);
    }
    free_work(&alone), free_work(&ring);
    free(out), free(in);
}

int main(int argc, char **argv) {
    bench b = {.meeting = meet(), .repeats = argc > 1 ? atoi(argv[1]) : 15};
    int machine_ranks;
    int64_t most_tokens = argc > 2 ? atoll(argv[2]) : 8192;
    b.rank = ra_rendezvous_rank(b.meeting);
    b.ranks = ra_rendezvous_ranks(b.meeting);
    CHECK(ra_ucx_open(b.rank, b.ranks, ra_rendezvous_allgather, b.meeting, NULL, &b.ucx, &machine_ranks) == RA_OK);
    CHECK(ra_ucx_open(b.rank, b.ranks, ra_rendezvous_allgather, b.meeting, NULL, &b.ring_ucx.ucx, &machine_ranks) ==
          RA_OK);
    CHECK(ra_comm_create_custom(&MUTABLE, &b.ring_ucx, b.rank, b.ranks, &b.ring) == RA_OK);
    CHECK(ra_comm_create_ucx(b.rank, b.ranks, ra_rendezvous_allgather, b.meeting, NULL, &b.words) == RA_OK);
    CHECK(ra_comm_create_self(&b.alone) == RA_OK);
    int threads = ra_core_share(1, machine_ranks);
    CHECK(b.ranks > 1 && b.repeats > 0 && b.repeats <= MOST_REPEATS);
    if (b.rank == 0)
        printf("%d processes of %d threads, bf16, %d heads of %d\n%8s %10s %10s %10s %10s %7s %7s %7s\n", b.ranks,
               threads, HEADS, DIM, "tokens", "one step", "compute", "transfer", "ring", "best", "median", "least");
    for (int64_t tokens = 256; tokens <= most_tokens; tokens *= 2) measure(&b, tokens, threads);
    ra_comm_destroy(b.alone);
    ra_comm_destroy(b.ring);
    ra_comm_destroy(b.words);
    ra_ucx_ops.destroy(b.ucx);
    ra_rendezvous_destroy(b.meeting);
    return 0;
}
