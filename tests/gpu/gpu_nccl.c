/* Under mpirun: random problems over NCCL, and over MPI through pinned memory, against the definition; and the same
 * bits as the same number of in-process ranks. Several ranks may share a GPU when NCCL_HOSTID differs between them,
 * which this program sets for itself.
 *
 *     mpirun -n 4 gpu_nccl [--count 12]
 */
#include "gpu_test.h"
#include "tolerance.h"

#include <ringattn/mpi.h>

static void print(int rank, const char *what) {
    if (rank == 0) puts(what);
    fflush(stdout);
}

/* Collective. in_process: the bits of ranks of one process, computed by rank 0 alone. */
static int check_case(ra_comm *comm, const sweep_data *data, uint64_t in_process) {
    sweep_result result = {0};
    ra_status status = sweep_run(comm, data, 2, &result);
    int rank = ra_comm_rank(comm), good = status == RA_OK && is_within(&result, &data->p);
    char text[512];
    if (!good)
        printf("FAILED rank %d over %s: %s\n  status %d (%s), worst relative error %g\n", rank, ra_comm_transport(comm),
               case_text(data->c, text, sizeof text), status, status ? ra_last_error() : "",
               sweep_worst_relative(&result));
    if (good && rank == 0 && result.bits != in_process) {
        printf("FAILED over %s: other bits than in-process ranks: %s\n", ra_comm_transport(comm),
               case_text(data->c, text, sizeof text));
        good = 0;
    }
    return good;
}

static int check_all(ra_comm *mpi, ra_comm *nccl, const ra_backend *backend, int count) {
    static const ra_dtype types[] = {RA_F32, RA_BF16, RA_F64, RA_F16};
    int bad = 0, rank = ra_comm_rank(mpi), ranks = ra_comm_ranks(mpi);
    for (int i = 0; i < count && !bad; i++) {
        static test_case c;
        sweep_result alone = {0};
        case_make(&c, (uint64_t)i + 1, types[i % 4], 5e6);
        if (c.problem.dtype != RA_F64 && c.problem.scale == 0) c.problem.scale = RA_SCALE_DEFAULT;
        c.options.backend = backend;
        c.options.kernel = NULL;
        c.options.timeout_seconds = 30;
        sweep_data *data = sweep_data_make(&c);
        if (rank == 0 && sweep_threads_apart(ranks, data, 1, &alone) != RA_OK)
            printf("FAILED: %s\n", ra_last_error()), bad++;
        bad += !check_case(nccl ? nccl : mpi, data, alone.bits);
        sweep_data_free(data);
    }
    return bad;
}

static int run(int argc, char **argv, const ra_backend *backend) {
    ra_comm *mpi = NULL, *nccl = NULL;
    int count = gpu_number(argc, argv, "--count", 12), bad = 0;
    if (ra_comm_create_mpi(MPI_COMM_WORLD, &mpi) != RA_OK) return printf("FAILED: %s\n", ra_last_error()), 1;
    bad += check_all(mpi, NULL, backend, count);
    print(ra_comm_rank(mpi), bad ? "mpi: wrong" : "mpi through pinned memory: right, the same bits");
    if (!bad && !ra_cuda_has_nccl()) {
        print(ra_comm_rank(mpi), "built without NCCL");
    } else if (!bad) {
        if (ra_comm_create_nccl(mpi, 0, 60, &nccl) != RA_OK) return printf("FAILED: %s\n", ra_last_error()), 1;
        bad += check_all(mpi, nccl, backend, count);
        print(ra_comm_rank(mpi), bad ? "nccl: wrong" : "nccl: right, the same bits");
        ra_comm_destroy(nccl);
    }
    ra_comm_destroy(mpi);
    return bad;
}

int main(int argc, char **argv) {
    char host[32];
    int rank, bad = 0, skipped;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(host, sizeof host, "ringattn-%d", rank);
    setenv("NCCL_HOSTID", host, 0);
    const ra_backend *backend = NULL;
    skipped = ra_cuda_devices() == 0 || ra_cuda_backend(0, &backend) != RA_OK;
    if (skipped)
        print(rank, "no GPU, skipped");
    else
        bad = run(argc, argv, backend);
    fflush(stdout);
    if (bad) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
