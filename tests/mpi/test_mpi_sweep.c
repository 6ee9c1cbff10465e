/* Whole problems over MPI: every layout with every strategy, random in everything else. In doubles against the
 * definition; in every type against in-process ranks, bit for bit: the transport must not show in the answer.
 * RINGATTN_SWEEP=N runs N problems instead of 90. */
#include "mpi_test.h"
#include "support/problems/sweep.h"

#include <ringattn/mpi.h>

static const double WORK = 4e6;

static int failed(const test_case *c, ra_status status, const sweep_result *result, uint64_t bits) {
    int close = c->problem.dtype != RA_F64 || sweep_worst_abs(result) < 1e-11;
    return status != RA_OK || !close || result->wrong_infinities || result->traffic_differs || result->bits != bits;
}

static void check_one(ra_comm *comm, test_case *c) {
    char text[512];
    sweep_result result = {0}, in_process = {0};
    sweep_data *data = sweep_data_make(c);
    CHECK(data != NULL);
    ra_status status = sweep_run(comm, data, 2, &result);
    if (ra_comm_rank(comm) == 0) {
        if (status == RA_OK) CHECK(sweep_threads(ra_comm_ranks(comm), data, 1, &in_process) == RA_OK);
        if (failed(c, status, &result, in_process.bits)) {
            printf("%s\n  worst %g, wrong infinities %d, traffic differs on %d ranks, bits %s\n",
                   case_text(c, text, sizeof text), sweep_worst_abs(&result), result.wrong_infinities,
                   result.traffic_differs, result.bits == in_process.bits ? "as in process" : "differ");
            fflush(stdout);
            CHECK(!"as the definition has it");
        }
    }
    CHECK(status == RA_OK);
    sweep_data_free(data);
}

int main(int argc, char **argv) {
    static test_case c;
    const ra_layout layouts[] = {RA_LAYOUT_CONTIGUOUS, RA_LAYOUT_ZIGZAG, RA_LAYOUT_STRIPED};
    const ra_strategy strategies[] = {RA_STRATEGY_RING, RA_STRATEGY_PAIRWISE, RA_STRATEGY_ALLGATHER};
    const ra_dtype dtypes[] = {RA_F64, RA_F32, RA_F64, RA_BF16, RA_F16};
    const char *wanted = getenv("RINGATTN_SWEEP");
    int count = wanted && atoi(wanted) > 0 ? atoi(wanted) : 90, rank, ranks;
    ra_comm *comm = NULL;
    MPI_Comm reversed;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    CHECK(ra_comm_create_mpi(reversed, &comm) == RA_OK);
    if (rank == 0) printf("%d processes, problems %d, seeds 5000 to %d\n", ranks, count, 5000 + count - 1);
    for (int i = 0; i < count; i++) {
        case_make(&c, 5000 + (uint64_t)i, dtypes[i / 9 % 5], WORK);
        c.options.layout = layouts[i % 3];
        c.options.strategy = strategies[i / 3 % 3];
        check_one(comm, &c);
    }
    ra_comm_destroy(comm);
    MPI_Comm_free(&reversed);
    MPI_Finalize();
    return 0;
}
