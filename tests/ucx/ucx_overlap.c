/* How much of a ring's transfers is hidden behind its arithmetic, over UCX: no test, a measurement for machines with a
 * core or more for every process.
 *
 *     start_ranks.py 4 ucx_overlap [REPEATS]
 *
 * For full attention of several lengths, the best of so many repeats, of the slowest rank:
 *
 *     one step   the same pairs with all keys at home, every process at once
 *     compute    the forward pass of a ring plan whose messages are not sent: its steps, with nothing to wait for
 *     transfer   the same bytes to the neighbour and from the other one, p - 1 times, and nothing else
 *     ring       the forward pass of the same plan, messages and all
 *
 * The last column is ring over the larger of compute and transfer: 1 would be perfect.
 */
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

/* A forward pass of the queries of one rank's shard with keys of `keys` positions, over that comm. */
static double time_pass(bench *b, ra_comm *comm, int mute, int64_t queries, int64_t keys, int threads) {
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    ra_tensors t = RA_TENSORS_INIT;
    ra_plan *plan = NULL;
    double best = 1e9;
    p.seq_q = queries, p.seq_k = keys, p.heads_q = 8, p.heads_kv = 8, p.dim = 128, p.dtype = RA_BF16;
    o.strategy = RA_STRATEGY_RING, o.layout = RA_LAYOUT_CONTIGUOUS, o.threads = threads;
    CHECK(ra_plan_create(comm, &p, &o, &plan) == RA_OK && ra_plan_describe(plan, &info) == RA_OK);
    size_t q_bytes = (size_t)info.rows_q * 8 * 128 * 2, k_bytes = (size_t)info.rows_k * 8 * 128 * 2;
    void *q = filled(q_bytes), *k = filled(k_bytes), *v = filled(k_bytes), *out = filled(2 * q_bytes);
    float *lse = filled((size_t)info.rows_q * 8 * sizeof *lse);
    t.q.data = q, t.k.data = k, t.v.data = v, t.o.data = out, t.lse = lse;
    for (int i = 0; i < b->repeats + 1; i++) {
        slowest(b, 0);
        b->ring_ucx.muted = mute;
        double start = test_clock();
        CHECK(ra_plan_forward(plan, &t, NULL) == RA_OK);
        double seconds = test_clock() - start;
        b->ring_ucx.muted = 0;
        seconds = slowest(b, seconds);
        if (i > 0 && seconds < best) best = seconds;
    }
    ra_plan_destroy(plan);
    free(q), free(k), free(v), free(out), free(lse);
    return best;
}

static double time_transfers(const bench *b, size_t bytes) {
    int next = (b->rank + 1) % b->ranks, before = (b->rank + b->ranks - 1) % b->ranks, done, culprit;
    char *out = filled(bytes), *in = filled(bytes);
    ra_message group[] = {{.peer = before, .tag = 1, .data = in, .bytes = bytes},
                          {.peer = next, .is_send = 1, .tag = 1, .data = out, .bytes = bytes}};
    double best = 1e9;
    for (int i = 0; i < b->repeats + 1; i++) {
        slowest(b, 0);
        double start = test_clock();
        for (int step = 1; step < b->ranks; step++) {
            CHECK(ra_ucx_ops.post(b->ucx, group, 2, NULL) == RA_OK);
            CHECK(ra_ucx_ops.poll(b->ucx, 60, &done, &culprit) == RA_OK && done);
        }
        double seconds = slowest(b, test_clock() - start);
        if (i > 0 && seconds < best) best = seconds;
    }
    free(out), free(in);
    return best;
}

int main(int argc, char **argv) {
    bench b = {.meeting = meet(), .repeats = argc > 1 ? atoi(argv[1]) : 5};
    int machine_ranks, cores = test_number("RINGATTN_CORES");
    b.rank = ra_rendezvous_rank(b.meeting);
    b.ranks = ra_rendezvous_ranks(b.meeting);
    int threads = cores > b.ranks ? cores / b.ranks : 1;
    CHECK(ra_ucx_open(b.rank, b.ranks, ra_rendezvous_allgather, b.meeting, NULL, &b.ucx, &machine_ranks) == RA_OK);
    CHECK(ra_ucx_open(b.rank, b.ranks, ra_rendezvous_allgather, b.meeting, NULL, &b.ring_ucx.ucx, &machine_ranks) ==
          RA_OK);
    CHECK(ra_comm_create_custom(&MUTABLE, &b.ring_ucx, b.rank, b.ranks, &b.ring) == RA_OK);
    CHECK(ra_comm_create_ucx(b.rank, b.ranks, ra_rendezvous_allgather, b.meeting, NULL, &b.words) == RA_OK);
    CHECK(ra_comm_create_self(&b.alone) == RA_OK);
    if (b.rank == 0)
        printf("%d processes of %d threads, bf16, 8 heads of 128\n%8s %10s %10s %10s %10s %7s\n", b.ranks, threads,
               "tokens", "one step", "compute", "transfer", "ring", "ratio");
    for (int64_t tokens = 256; tokens <= 8192; tokens *= 2) {
        size_t bytes = (size_t)(tokens / b.ranks) * 8 * 128 * 2 * 2;
        double one_step = time_pass(&b, b.alone, 0, tokens / b.ranks, tokens, threads);
        double compute = time_pass(&b, b.ring, 1, tokens, tokens, threads);
        double transfer = time_transfers(&b, bytes);
        double ring = time_pass(&b, b.ring, 0, tokens, tokens, threads);
        if (b.rank == 0)
            printf("%8lld %7.2f ms %7.2f ms %7.2f ms %7.2f ms %7.2f\n", (long long)tokens, 1e3 * one_step,
                   1e3 * compute, 1e3 * transfer, 1e3 * ring, ring / (compute > transfer ? compute : transfer));
        fflush(stdout);
    }
    ra_comm_destroy(b.alone);
    ra_comm_destroy(b.ring);
    ra_comm_destroy(b.words);
    ra_ucx_ops.destroy(b.ucx);
    ra_rendezvous_destroy(b.meeting);
    return 0;
}
