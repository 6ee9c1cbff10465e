/* Whole problems over a comm of processes: every layout with every strategy, random in everything else. In doubles
 * against the definition; in every type against in-process ranks, bit for bit: the transport must not show in the
 * answer. RINGATTN_SWEEP=N runs N problems instead of 120. Included behind the transport's own test header. */
#ifndef RA_TESTS_PROCESSES_PROCESS_SWEEP_H
#define RA_TESTS_PROCESSES_PROCESS_SWEEP_H

#include "processes/check.h"
#include "support/problems/sweep.h"

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
        if (status == RA_OK) CHECK(sweep_threads_apart(ra_comm_ranks(comm), data, 1, &in_process) == RA_OK);
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

static inline void run_sweep(ra_comm *comm) {
    static test_case c;
    enum { LAYOUTS = 4, STRATEGIES = 4, FIRST_SEED = 5000 };
    const ra_layout layouts[LAYOUTS] = {RA_LAYOUT_CONTIGUOUS, RA_LAYOUT_ZIGZAG, RA_LAYOUT_STRIPED, RA_LAYOUT_DOCUMENTS};
    const ra_strategy strategies[STRATEGIES] = {RA_STRATEGY_RING, RA_STRATEGY_PAIRWISE, RA_STRATEGY_ALLGATHER,
                                                RA_STRATEGY_PASSQ};
    const ra_dtype dtypes[] = {RA_F64, RA_F32, RA_F64, RA_BF16, RA_F16};
    const char *wanted = getenv("RINGATTN_SWEEP");
    int count = wanted && atoi(wanted) > 0 ? atoi(wanted) : 120;
    if (ra_comm_rank(comm) == 0)
        printf("%d processes, problems %d, seeds %d to %d\n", ra_comm_ranks(comm), count, FIRST_SEED,
               FIRST_SEED + count - 1);
    for (int i = 0; i < count; i++) {
        case_make(&c, (uint64_t)(FIRST_SEED + i), dtypes[i / (LAYOUTS * STRATEGIES) % 5], WORK);
        c.options.layout = layouts[i % LAYOUTS];
        c.options.strategy = strategies[i / LAYOUTS % STRATEGIES];
        check_one(comm, &c);
    }
}

#endif
