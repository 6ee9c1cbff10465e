/* A program for run_faults.py to break: fault TIMEOUT MODE [N]
 *
 *     loop         runs passes until something goes wrong
 *     mismatch     gives the last rank another problem
 *     passes N     runs passes for N seconds of rank 0's and prints a hash of what they gave
 *     compute      the same for one pass, with a slow kernel and a problem that takes one rank much longer than others
 *     count        prints how often the last rank asks for memory until it has a plan
 *     memory N     the N-th time that it asks for memory it gets none
 *
 * Every rank prints its pid; one that gets an error prints it and then ends the job the way docs/mpi.md tells programs
 * to. */
#include "mpi_test.h"
#include "processes/failing_memory.h"

#include <ringattn/mpi.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 1, MOST_SEQ = 2000, HEADS = 2, DIM = 16 };

typedef struct job {
    double timeout;
    const char *mode;
    long number;
} job;

static int is_mode(const job *j, const char *mode) {
    return strcmp(j->mode, mode) == 0;
}

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
    size_t count = (size_t)BATCH * MOST_SEQ * HEADS * DIM;
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

static uint64_t hash(uint64_t sum, const float *data, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &data[i], sizeof bits);
        sum = (sum ^ bits) * 1099511628211u;
    }
    return sum;
}

static void print_hash(int rank, arrays a) {
    size_t count = (size_t)BATCH * MOST_SEQ * HEADS * DIM;
    const float *outputs[] = {a.o, a.lse, a.dq, a.dk, a.dv};
    uint64_t sum = 14695981039346656037u;
    for (int i = 0; i < 5; i++) sum = hash(sum, outputs[i], count);
    fprintf(stderr, "rank %d has bits %016llx\n", rank, (unsigned long long)sum);
}

static ra_status make_plan(ra_comm *comm, const job *j, ra_plan **plan_out) {
    int last = ra_comm_rank(comm) == ra_comm_ranks(comm) - 1, computes = is_mode(j, "compute");
    ra_problem problem = RA_PROBLEM_INIT;
    ra_options options = RA_OPTIONS_INIT;
    problem.batch = BATCH;
    problem.seq_q = computes ? MOST_SEQ : 301;
    problem.heads_q = HEADS;
    problem.dim = DIM;
    problem.causal = !(is_mode(j, "mismatch") && last);
    options.backward = 1;
    options.threads = 1;
    options.strategy = RA_STRATEGY_RING;
    options.timeout_seconds = j->timeout;
    if (computes) {
        options.kernel = "ref";
        options.layout = RA_LAYOUT_CONTIGUOUS;
    }
    return ra_plan_create(comm, &problem, &options, plan_out);
}

/* Whether there is another pass to run, which rank 0 decides for all. */
static ra_status decide(ra_comm *comm, const job *j, double start, int *more_out) {
    int mine = MPI_Wtime() - start < (double)j->number, all[64];
    *more_out = !is_mode(j, "compute");
    if (!is_mode(j, "passes")) return RA_OK;
    ra_status status = ra_comm_allgather(comm, &mine, sizeof mine, all, j->timeout);
    *more_out = all[0];
    return status;
}

static ra_status run(ra_comm *comm, const job *j) {
    int rank = ra_comm_rank(comm), more = 1;
    double start = MPI_Wtime();
    ra_plan *plan = NULL;
    ra_status status = make_plan(comm, j, &plan);
    if (is_mode(j, "count")) {
        fprintf(stderr, "rank %d asked for memory %ld times\n", rank, memory_calls);
        return status;
    }
    arrays a = make_arrays(rank);
    while (status == RA_OK && more) {
        status = pass_there_and_back(plan, a);
        if (status == RA_OK) status = decide(comm, j, start, &more);
    }
    if (status == RA_OK) print_hash(rank, a);
    free_arrays(a);
    if (status == RA_OK) ra_plan_destroy(plan);
    return status;
}

static int fail(int rank) {
    const struct timespec grace = {.tv_nsec = 150000000}; /* for the others to print theirs */
    fprintf(stderr, "rank %d failed: %s\n", rank, ra_last_error());
    fflush(stderr);
    nanosleep(&grace, NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

int main(int argc, char **argv) {
    ra_comm *comm = NULL;
    int rank, ranks;
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: fault TIMEOUT loop|mismatch|passes|compute|count|memory [N]\n");
        return 2;
    }
    job j = {.timeout = atof(argv[1]), .mode = argv[2], .number = argc == 4 ? (long)atof(argv[3]) : 0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    fprintf(stderr, "rank %d has pid %d\n", rank, (int)getpid());
    fail_memory(is_mode(&j, "memory") && rank == ranks - 1 ? j.number : -1);
    ra_status status = ra_comm_create_mpi_timeout(MPI_COMM_WORLD, j.timeout, &comm);
    if (status == RA_OK) fprintf(stderr, "rank %d has a comm\n", rank);
    if (status == RA_OK) status = run(comm, &j);
    if (status != RA_OK) return fail(rank);
    ra_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
