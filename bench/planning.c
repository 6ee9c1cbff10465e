/* How long a rank plans: processor time of ra_predict, the median over three ranks and three repeats.
 *
 *     bench_planning [WORD]      only the problems whose name contains it
 */
#include <ringattn/ringattn.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS = 3, DOCUMENTS = 10000, PACKED = 512 };

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int time_one(const char *name, const ra_problem *problem, int ranks) {
    double times[3 * REPEATS];
    ra_options options = RA_OPTIONS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    options.backward = 1;
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
    static int64_t cu[DOCUMENTS + 1], packed_cu[PACKED + 1];
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
    } all[] = {
        {"causal", &causal, 1024},
        {"causal", &causal, 4096},
        {"full", &full, 1024},
        {"full", &full, 4096},
        {"window of 4096", &window, 1024},
        {"window of 4096", &window, 4096},
        {"10,000 documents", &documents, 256},
        {"10,000 documents", &documents, 1024},
        {"512 documents, 128 K", &packed, 8},
        {"three branches", &dilated, 1024},
        {"three branches, 32:8", &shared, 1024},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc < 2 || strstr(all[i].name, argv[1])) failed |= time_one(all[i].name, all[i].problem, all[i].ranks);
    return failed;
}
