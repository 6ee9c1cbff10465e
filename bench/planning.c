/* How long a rank plans: processor time of ra_predict, the median over three ranks and three repeats. And how long
 * ranks of one process take to make a packed plan together (ra_plan_create, with the agreement): the best of many, by
 * the clock and in processor time of all of them.
 *
 *     bench_planning [WORD]      only the problems whose name contains it
 */
#include <ringattn/ringattn.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS = 3, DOCUMENTS = 10000, DEALT = 4000, PACKED = 512 };

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds(void) {
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int time_one(const char *name, const ra_problem *problem, int ranks, ra_layout layout, ra_strategy strategy) {
    double times[3 * REPEATS];
    ra_options options = RA_OPTIONS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    options.backward = 1;
    options.layout = layout;
    options.strategy = strategy;
    for (int i = 0; i < 3 * REPEATS; i++) {
        double start = seconds();
        if (ra_predict(problem, &options, ranks, (ranks - 1) * (i % 3) / 2, &info) != RA_OK) {
            fprintf(stderr, "%s: %s\n", name, ra_last_error());
            return 1;
        }
        times[i] = seconds() - start;
    }
    qsort(times, 3 * REPEATS, sizeof *times, by_value);
    printf("%-24s %5d ranks  %-10s %-9s %8.1f ms  %7.2f MB\n", name, ranks, ra_layout_name(info.layout),
           ra_strategy_name(info.strategy), 1e3 * times[3 * REPEATS / 2], 1e-6 * (double)info.plan_bytes);
    return 0;
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

enum { TOGETHER = 8, TOGETHER_REPEATS = 30 };

typedef struct together {
    const ra_problem *problem;
    ra_layout layout;
    double wall, processor; /* the best */
    ra_plan_info info;
} together;

static ra_status plan_together(ra_comm *comm, void *user) {
    together *t = user;
    ra_options options = RA_OPTIONS_INIT;
    options.backward = 1;
    options.layout = t->layout;
    for (int i = 0; i < TOGETHER_REPEATS; i++) {
        char ready = 0, all[TOGETHER];
        ra_plan *plan = NULL;
        /* Rank 0 comes last: the others wait until its clock runs. */
        if (ra_comm_rank(comm) == 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        double wall = seconds_of(CLOCK_MONOTONIC), processor = seconds();
        if (ra_comm_allgather(comm, &ready, 1, all, 60) != RA_OK) return RA_ERR_PEER;
        ra_status status = ra_plan_create(comm, t->problem, &options, &plan);
        if (status != RA_OK) return status;
        wall = seconds_of(CLOCK_MONOTONIC) - wall;
        processor = seconds() - processor;
        if (ra_comm_rank(comm) == 0 && (i == 0 || wall < t->wall)) t->wall = wall;
        if (ra_comm_rank(comm) == 0 && (i == 0 || processor < t->processor)) t->processor = processor;
        t->info.struct_size = sizeof t->info;
        if (ra_comm_rank(comm) == 0) ra_plan_describe(plan, &t->info);
        ra_plan_destroy(plan);
    }
    return RA_OK;
}

static int time_together(const char *name, const ra_problem *problem, ra_layout layout) {
    together t = {.problem = problem, .layout = layout};
    if (ra_run_threads(TOGETHER, plan_together, &t) != RA_OK) {
        fprintf(stderr, "%s: %s\n", name, ra_last_error());
        return 1;
    }
    printf("%-24s %5d ranks  %-10s %-9s %8.2f ms by the clock, %.2f ms of processors, together in one process\n", name,
           TOGETHER, ra_layout_name(t.info.layout), ra_strategy_name(t.info.strategy), 1e3 * t.wall, 1e3 * t.processor);
    return 0;
}

/* Documents that end anywhere. */
static void cut(int64_t *cu, int64_t documents, int64_t length) {
    uint64_t state = 1;
    for (int64_t d = 1; d < documents; d++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int64_t spread = length / documents;
        cu[d] = d * spread + (int64_t)(state >> 33) % spread;
    }
    cu[0] = 0;
    cu[documents] = length;
}

int main(int argc, char **argv) {
    static int64_t cu[DOCUMENTS + 1], dealt_cu[DEALT + 1], packed_cu[PACKED + 1];
    static const ra_branch branches[] = {{2048, 1}, {16384, 8}, {131072, 64}};
    ra_problem causal = RA_PROBLEM_INIT;
    causal.seq_q = 1 << 20;
    causal.heads_q = 4;
    causal.dim = 64;
    causal.causal = 1;
    ra_problem full = causal, window = causal, documents = causal, dilated = causal, shared = causal, packed = causal;
    full.causal = 0;
    window.window_left = 4096;
    window.window_right = 0;
    cut(cu, DOCUMENTS, documents.seq_q);
    documents.documents = DOCUMENTS;
    documents.cu_seqlens_q = cu;
    ra_problem dealt = documents;
    cut(dealt_cu, DEALT, dealt.seq_q);
    dealt.documents = DEALT;
    dealt.cu_seqlens_q = dealt_cu;
    dilated.branches = 3;
    dilated.dilated = branches;
    shared = dilated;
    shared.heads_q = 32;
    shared.heads_kv = 8;
    packed = causal;
    packed.seq_q = 1 << 17;
    packed.heads_q = 32;
    packed.heads_kv = 8;
    packed.dim = 128;
    cut(packed_cu, PACKED, packed.seq_q);
    packed.documents = PACKED;
    packed.cu_seqlens_q = packed_cu;
    const struct {
        const char *name;
        const ra_problem *problem;
        int ranks;
        ra_layout layout;
        ra_strategy strategy;
    } all[] = {
        {"causal", &causal, 1024, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO},
        {"causal", &causal, 4096, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO},
        {"full", &full, 1024, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO},
        {"full", &full, 4096, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO},
        {"window of 4096", &window, 1024, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO},
        {"window of 4096", &window, 4096, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO},
        {"10,000 documents", &documents, 256, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO},
        {"10,000 documents", &documents, 1024, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO},
        {"4,000 documents, dealt", &dealt, 256, RA_LAYOUT_DOCUMENTS, RA_STRATEGY_PAIRWISE},
        {"4,000 documents, dealt", &dealt, 256, RA_LAYOUT_DOCUMENTS, RA_STRATEGY_RING},
        {"512 documents, 128 K", &packed, 8, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO},
        {"three branches", &dilated, 1024, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO},
        {"three branches, 32:8", &shared, 1024, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc < 2 || strstr(all[i].name, argv[1]))
            failed |= time_one(all[i].name, all[i].problem, all[i].ranks, all[i].layout, all[i].strategy);
    if (argc < 2 || strstr("512 documents, 128 K", argv[1])) {
        failed |= time_together("512 documents, 128 K", &packed, RA_LAYOUT_AUTO);
        failed |= time_together("512 documents, 128 K", &packed, RA_LAYOUT_ZIGZAG);
        failed |= time_together("512 documents, 128 K", &packed, RA_LAYOUT_DOCUMENTS);
    }
    return failed;
}
