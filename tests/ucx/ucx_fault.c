/* A program for run_ucx_faults.py to break: `ucx_fault TIMEOUT loop` runs passes until something goes wrong, `ucx_fault
 * TIMEOUT mismatch` gives the last rank another problem, `ucx_fault TIMEOUT SECONDS` runs passes for so long and
 * compares their results. Every rank prints when it begins to look for the others, which is after UCX was loaded, and
 * its pid when it has met them; one that gets an error prints it and ends with 1. Ranks meet in RINGATTN_TEST_FOLDER
 * or, where that is not set, by the environment variables of torchrun. */
#include "ucx_test.h"

#include <unistd.h>

/* Messages of 800 KiB between three ranks: UCX sends so much only with the receiver's help. */
enum { SEQ = 301, HEADS = 16, DIM = 64, COUNT = SEQ * HEADS * DIM };

static float q[COUNT], k[COUNT], v[COUNT], o[COUNT], lse[COUNT], dout[COUNT], dq[COUNT], dk[COUNT], dv[COUNT];

static void fill(float *data, uint64_t seed) {
    for (size_t i = 0; i < COUNT; i++) data[i] = (float)(next_random(&seed) >> 40) / (1 << 24) - 0.5f;
}

static ra_status pass_there_and_back(ra_plan *plan) {
    ra_tensors forward = RA_TENSORS_INIT;
    ra_gradients backward = RA_GRADIENTS_INIT;
    forward.q.data = backward.q.data = q;
    forward.k.data = backward.k.data = k;
    forward.v.data = backward.v.data = v;
    backward.o.data = forward.o.data = o;
    forward.lse = lse;
    backward.lse = lse;
    backward.dout.data = dout;
    backward.dq.data = dq;
    backward.dk.data = dk;
    backward.dv.data = dv;
    ra_status status = ra_plan_forward(plan, &forward, NULL);
    return status == RA_OK ? ra_plan_backward(plan, &backward, NULL) : status;
}

static ra_status make_plan(ra_comm *comm, double timeout, int mismatch, ra_plan **plan_out) {
    int last = ra_comm_rank(comm) == ra_comm_ranks(comm) - 1;
    ra_problem problem = RA_PROBLEM_INIT;
    ra_options options = RA_OPTIONS_INIT;
    problem.batch = 1;
    problem.seq_q = SEQ;
    problem.heads_q = HEADS;
    problem.dim = DIM;
    problem.causal = !(mismatch && last);
    options.backward = 1;
    options.threads = 1;
    options.strategy = RA_STRATEGY_RING;
    options.timeout_seconds = timeout;
    return ra_plan_create(comm, &problem, &options, plan_out);
}

/* FNV-1a over all results. */
static uint64_t hash_results(void) {
    const float *of[] = {o, dq, dk, dv};
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < 4; i++)
        for (size_t j = 0; j < sizeof o; j++) hash = (hash ^ ((const unsigned char *)of[i])[j]) * 1099511628211u;
    return hash;
}

/* seconds 0: until something goes wrong. The last rank's clock decides when it is over. */
static ra_status run(ra_comm *comm, ra_plan *plan, double seconds) {
    int all[64], passes = 0, over = 0, last = ra_comm_ranks(comm) - 1;
    double start = test_clock();
    uint64_t first = 0;
    ra_status status = RA_OK;
    while (status == RA_OK && !over) {
        status = pass_there_and_back(plan);
        if (status != RA_OK || seconds <= 0) continue;
        if (passes++ == 0) first = hash_results();
        CHECK(hash_results() == first);
        int mine = test_clock() - start > seconds;
        status = ra_comm_allgather(comm, &mine, sizeof mine, all, 0);
        over = all[last];
    }
    if (status == RA_OK)
        fprintf(stderr, "rank %d: %d passes, all %016llx\n", ra_comm_rank(comm), passes, (unsigned long long)first);
    return status;
}

static ra_status start(double timeout, ra_comm **comm_out) {
    const char *folder = getenv("RINGATTN_TEST_FOLDER");
    ra_rendezvous *meeting = NULL;
    ra_ucx_options options = RA_UCX_OPTIONS_INIT;
    options.create_seconds = timeout;
    ra_status status =
        folder ? ra_rendezvous_folder(folder, test_number("RANK"), test_number("WORLD_SIZE"), timeout, &meeting)
               : ra_rendezvous_environment(timeout, &meeting);
    if (status == RA_OK)
        status = ra_comm_create_ucx(ra_rendezvous_rank(meeting), ra_rendezvous_ranks(meeting), ra_rendezvous_allgather,
                                    meeting, &options, comm_out);
    ra_rendezvous_destroy(meeting);
    return status;
}

int main(int argc, char **argv) {
    ra_comm *comm = NULL;
    ra_plan *plan = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: ucx_fault TIMEOUT loop|mismatch|SECONDS\n");
        return 2;
    }
    skip_without_ucx();
    double timeout = atof(argv[1]);
    float *const arrays[] = {q, k, v, dout};
    for (int i = 0; i < 4; i++) fill(arrays[i], 100 * (uint64_t)test_number("RANK") + (uint64_t)i);
    fprintf(stderr, "rank %d begins\n", test_number("RANK"));
    ra_status status = start(timeout, &comm);
    if (status == RA_OK) {
        fprintf(stderr, "rank %d has pid %d\n", ra_comm_rank(comm), (int)getpid());
        status = make_plan(comm, timeout, strcmp(argv[2], "mismatch") == 0, &plan);
    }
    if (status == RA_OK) status = run(comm, plan, atof(argv[2]));
    if (status != RA_OK) fprintf(stderr, "rank %d failed: %s\n", test_number("RANK"), ra_last_error());
    ra_plan_destroy(plan);
    ra_comm_destroy(comm);
    return status == RA_OK ? 0 : 1;
}
