/* A program for run_faults.py to break: `fault TIMEOUT loop` runs passes until something goes wrong, `fault TIMEOUT
 * mismatch` gives the last rank another problem. Every rank prints its pid; one that gets an error prints it and then
 * ends the job the way docs/mpi.md tells programs to. */
#include "mpi_test.h"

#include <ringattn/mpi.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 1, SEQ = 301, HEADS = 2, DIM = 16 };

typedef struct arrays {
    float *q, *k, *v, *o, *lse, *dout, *dq, *dk, *dv;
} arrays;

static float *random_array(size_t count, uint64_t seed) {
    float *data = malloc(count * sizeof *data);
    CHECK(data != NULL);
    for (size_t i = 0; i < count; i++) data[i] = (float)(next_random(&seed) >> 40) / (1 << 24) - 0.5f;
    return data;
}

static arrays make_arrays(int rank) {
    size_t count = (size_t)BATCH * SEQ * HEADS * DIM;
    float *of[9];
    for (int i = 0; i < 9; i++) of[i] = random_array(count, 100 * (uint64_t)rank + (uint64_t)i);
    return (arrays){of[0], of[1], of[2], of[3], of[4], of[5], of[6], of[7], of[8]};
}

static void free_arrays(arrays a) {
    float *of[] = {a.q, a.k, a.v, a.o, a.lse, a.dout, a.dq, a.dk, a.dv};
    for (int i = 0; i < 9; i++) free(of[i]);
}

static ra_status pass_there_and_back(ra_plan *plan, arrays a) {
    ra_tensors forward = RA_TENSORS_INIT;
    ra_gradients backward = RA_GRADIENTS_INIT;
    forward.q.data = backward.q.data = a.q;
    forward.k.data = backward.k.data = a.k;
    forward.v.data = backward.v.data = a.v;
    backward.o.data = forward.o.data = a.o;
    forward.lse = a.lse;
    backward.lse = a.lse;
    backward.dout.data = a.dout;
    backward.dq.data = a.dq;
    backward.dk.data = a.dk;
    backward.dv.data = a.dv;
    ra_status status = ra_plan_forward(plan, &forward, NULL);
    return status == RA_OK ? ra_plan_backward(plan, &backward, NULL) : status;
}

static ra_status run(ra_comm *comm, double timeout, int mismatch) {
    int last = ra_comm_rank(comm) == ra_comm_ranks(comm) - 1;
    ra_problem problem = RA_PROBLEM_INIT;
    ra_options options = RA_OPTIONS_INIT;
    ra_plan *plan = NULL;
    problem.batch = BATCH;
    problem.seq_q = SEQ;
    problem.heads_q = HEADS;
    problem.dim = DIM;
    problem.causal = !(mismatch && last);
    options.backward = 1;
    options.threads = 1;
    options.strategy = RA_STRATEGY_RING;
    options.timeout_seconds = timeout;
    ra_status status = ra_plan_create(comm, &problem, &options, &plan);
    arrays a = make_arrays(ra_comm_rank(comm));
    while (status == RA_OK) status = pass_there_and_back(plan, a);
    free_arrays(a);
    return status;
}

int main(int argc, char **argv) {
    const struct timespec grace = {.tv_nsec = 300000000}; /* for the others to print theirs */
    ra_comm *comm = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: fault TIMEOUT loop|mismatch\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    if (ra_comm_create_mpi(MPI_COMM_WORLD, &comm) == RA_OK) {
        fprintf(stderr, "rank %d has pid %d\n", ra_comm_rank(comm), (int)getpid());
        run(comm, atof(argv[1]), strcmp(argv[2], "mismatch") == 0);
    }
    fprintf(stderr, "rank %d failed: %s\n", ra_comm_rank(comm), ra_last_error());
    fflush(stderr);
    nanosleep(&grace, NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}
