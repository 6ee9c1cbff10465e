/* A program for run_gpu_faults.py to break: passes over NCCL on the GPU until something goes wrong. Every rank prints
 * its pid; one that gets an error prints it and ends at once.
 *
 *     mpirun -n 3 gpu_fault TIMEOUT
 */
#include "gpu_test.h"

#include <ringattn/mpi.h>
#include <time.h>
#include <unistd.h>

enum { SEQ = 4096, HEADS = 2, DIM = 64 };

static ra_status run(ra_comm *comm, const ra_backend *backend, double timeout) {
    ra_problem problem = RA_PROBLEM_INIT;
    ra_options options = RA_OPTIONS_INIT;
    ra_plan *plan = NULL;
    void *memory[8], *stream;
    problem.seq_q = SEQ, problem.heads_q = HEADS, problem.dim = DIM, problem.causal = 1;
    options.backward = 1, options.backend = backend, options.timeout_seconds = timeout;
    options.strategy = RA_STRATEGY_RING;
    GPU_TRY(ra_plan_create(comm, &problem, &options, &plan));
    GPU_TRY(ra_backend_stream_create(backend, &stream));
    size_t bytes = (size_t)SEQ * HEADS * DIM * sizeof(float);
    float *host = malloc(bytes);
    for (size_t i = 0; i < bytes / sizeof *host; i++) host[i] = (float)(i % 97) / 97;
    for (int i = 0; i < 8; i++) {
        GPU_TRY(ra_backend_allocate(backend, bytes, &memory[i]));
        GPU_TRY(ra_backend_copy(backend, memory[i], host, bytes));
    }
    ra_tensors t = RA_TENSORS_INIT;
    ra_gradients g = RA_GRADIENTS_INIT;
    t.q.data = memory[0], t.k.data = memory[1], t.v.data = memory[2], t.o.data = memory[3], t.lse = memory[4];
    g.q = t.q, g.k = t.k, g.v = t.v, g.o = ra_as_input(t.o), g.lse = t.lse, g.dout.data = memory[0];
    g.dq.data = memory[5], g.dk.data = memory[6], g.dv.data = memory[7];
    for (;;) {
        GPU_TRY(ra_plan_forward(plan, &t, stream));
        GPU_TRY(ra_plan_backward(plan, &g, stream));
        GPU_TRY(ra_plan_wait(plan, stream));
    }
}

int main(int argc, char **argv) {
    char host[32];
    int rank;
    ra_comm *mpi = NULL, *nccl = NULL;
    const ra_backend *backend = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(host, sizeof host, "ringattn-%d", rank);
    setenv("NCCL_HOSTID", host, 0);
    if (ra_cuda_devices() == 0 || ra_cuda_backend(0, &backend) != RA_OK || !ra_cuda_has_nccl()) {
        if (rank == 0) fprintf(stderr, "no GPU, skipped\n");
        MPI_Finalize();
        return 0;
    }
    double timeout = argc > 1 ? atof(argv[1]) : 5;
    if (ra_comm_create_mpi(MPI_COMM_WORLD, &mpi) == RA_OK && ra_comm_create_nccl(mpi, 0, 60, &nccl) == RA_OK) {
        fprintf(stderr, "rank %d has pid %d\n", rank, (int)getpid());
        run(nccl, backend, timeout);
    }
    fprintf(stderr, "rank %d failed: %s\n", rank, ra_last_error());
    fflush(stderr);
    _exit(1);
}
