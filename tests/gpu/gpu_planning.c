/* What eight in-process ranks on one GPU do to make a plan for a new packing: 131,072 tokens, 512 documents, both
 * passes, with a workspace of the caller's. Each repeat has other documents. After the first few, planning and
 * destroying plans allocates and releases nothing, never waits for the device, and copies once a plan at most (where
 * one rank computes for all, the others have no lists): calls of the CUDA runtime are counted, also on machines without
 * a GPU, where host memory stands in for the device's. Prints how long a plan takes: the median and the best of rank 0,
 * from an exchange until the plan is agreed on. Nothing fails when it is slow.
 *
 *     gpu_planning [--repeats 20] [--layout N]
 */
#include "cuda_calls.h"
#include "gpu_test.h"

#include <stdint.h>
#include <time.h>

enum { RANKS = 8, DOCUMENTS = 512, TOKENS = 131072, WARM = 5, MOST_REPEATS = 1000 };

typedef struct job {
    const ra_backend *backend;
    int repeats, layout;
    double seconds[MOST_REPEATS];
    ra_plan_info info;
    cuda_calls before, after; /* the plans that are counted */
} job;

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Documents that end anywhere, others for every seed. */
static void pack(uint64_t seed, int64_t *cu) {
    for (int64_t d = 1; d < DOCUMENTS; d++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        cu[d] = d * (TOKENS / DOCUMENTS) + (int64_t)(seed >> 33) % (TOKENS / DOCUMENTS);
    }
    cu[0] = 0;
    cu[DOCUMENTS] = TOKENS;
}

/* All ranks have come to this point. */
static ra_status meet(ra_comm *comm) {
    char ready = 0, all[RANKS];
    return ra_comm_allgather(comm, &ready, 1, all, 60);
}

/* What all ranks have called so far. */
static ra_status count_calls(ra_comm *comm, cuda_calls *calls_out) {
    GPU_TRY(meet(comm));
    if (ra_comm_rank(comm) == 0) *calls_out = cuda_calls_so_far();
    return meet(comm);
}

/* Without a workspace: what it would need. */
static ra_status plan_once(ra_comm *comm, const job *j, int repeat, void *workspace, size_t bytes, double *seconds_out,
                           ra_plan_info *info_out) {
    static _Thread_local int64_t cu[DOCUMENTS + 1];
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    ra_plan *plan = NULL;
    pack((uint64_t)repeat, cu);
    p.seq_q = TOKENS, p.heads_q = 32, p.heads_kv = 8, p.dim = 128, p.causal = 1, p.dtype = RA_BF16;
    p.documents = DOCUMENTS, p.cu_seqlens_q = cu;
    o.backend = j->backend, o.backward = 1, o.layout = (ra_layout)j->layout;
    o.workspace = workspace, o.workspace_bytes = bytes;
    if (!workspace) {
        *info_out = (ra_plan_info)RA_PLAN_INFO_INIT;
        return ra_predict(&p, &o, RANKS, ra_comm_rank(comm), info_out);
    }
    if (ra_comm_rank(comm) == 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* the others wait */
    double start = seconds_now();
    GPU_TRY(meet(comm));
    GPU_TRY(ra_plan_create(comm, &p, &o, &plan));
    *seconds_out = seconds_now() - start;
    ra_plan_destroy(plan);
    return RA_OK;
}

static ra_status body(ra_comm *comm, void *user) {
    job *j = user;
    void *workspace = NULL;
    ra_plan_info info;
    double seconds;
    size_t most = 0;
    for (int i = 0; i < WARM + j->repeats; i++) {
        GPU_TRY(plan_once(comm, j, i, NULL, 0, &seconds, &info));
        if ((size_t)info.workspace_bytes > most) most = (size_t)info.workspace_bytes;
    }
    GPU_TRY(ra_backend_allocate(j->backend, most, &workspace));
    for (int i = 0; i < WARM + j->repeats; i++) {
        if (i == WARM) GPU_TRY(count_calls(comm, &j->before));
        GPU_TRY(plan_once(comm, j, i, workspace, most, &seconds, NULL));
        if (ra_comm_rank(comm) == 0 && i >= WARM) j->seconds[i - WARM] = seconds;
    }
    GPU_TRY(count_calls(comm, &j->after));
    if (ra_comm_rank(comm) == 0) j->info = info;
    ra_backend_release(j->backend, workspace);
    return RA_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How many of the counts are wrong. */
static int check_calls(const job *j) {
    int64_t plans = (int64_t)RANKS * j->repeats, memory = j->after.memory - j->before.memory;
    int64_t waits = j->after.waits - j->before.waits, copies = j->after.copies - j->before.copies;
    printf("%lld plans: %lld calls for memory, %lld waits for the device, %lld copies\n", (long long)plans,
           (long long)memory, (long long)waits, (long long)copies);
    if (memory) puts("FAILED: planning allocates or releases memory");
    if (waits) puts("FAILED: planning waits for the device");
    int miscopied = copies < j->repeats || copies > plans;
    if (miscopied) puts("FAILED: a plan of all ranks is no copy, or one rank's is more than one");
    return (memory != 0) + (waits != 0) + miscopied;
}

int main(int argc, char **argv) {
    static job j;
    if (ra_cuda_devices() == 0) {
        puts("no GPU: host memory stands in for it");
        cuda_calls_pretend();
    }
    j.backend = gpu_backend();
    if (!j.backend) return 1;
    j.repeats = gpu_number(argc, argv, "--repeats", 20);
    j.layout = gpu_number(argc, argv, "--layout", RA_LAYOUT_AUTO);
    if (j.repeats < 1 || j.repeats > MOST_REPEATS) return puts("--repeats is between 1 and 1000"), 1;
    if (ra_run_threads(RANKS, body, &j) != RA_OK) return printf("FAILED: %s\n", ra_last_error()), 1;
    qsort(j.seconds, (size_t)j.repeats, sizeof *j.seconds, by_value);
    printf("512 documents in 131,072 tokens on 8 in-process ranks, %s, %s: median %.2f ms, best %.2f ms\n",
           ra_layout_name(j.info.layout), ra_strategy_name(j.info.strategy), 1e3 * j.seconds[j.repeats / 2],
           1e3 * j.seconds[0]);
    return check_calls(&j);
}
