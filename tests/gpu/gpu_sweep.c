/* Random problems of every feature against the definition, on the GPU: f64, f32, bf16, f16; 1 to 8 in-process ranks;
 * every layout and strategy; both passes, twice, with the same bits. Then one problem whose error must not grow with
 * the ranks.
 *
 *     gpu_sweep [--count 150] [--seed 1] [--kernel NAME] [--type NAME] [--ranks N] [--work 30000000] [--sweep-only]
 *               [--plain] [--long]
 *
 * --plain: no branches and no window, on the ring or with allgather: keys stay in most of these, or travel in all of
 * them (RINGATTN_BUSY_KEYS, gpu_test.h). --long: hundreds of rows, as kernels that copy whole tiles want them.
 */
#include "gpu_test.h"
#include "tolerance.h"

#include "support/rng.h"

static const char *const output_names[OUT_COUNT] = {"o", "lse", "dq", "dk", "dv"};

static const char *name_from(int argc, char **argv, const char *flag) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], flag) == 0) return argv[i + 1];
    return NULL;
}

static void print_errors(const sweep_result *result) {
    for (int i = 0; i < OUT_COUNT; i++)
        printf("  %s: relative %.3g, largest %.3g", output_names[i], result->relative[i], result->max_abs[i]);
    printf("; %d wrong infinities, traffic differs on %d ranks\n", result->wrong_infinities, result->traffic_differs);
}

static int check_case(const test_case *c, int ranks, double *worst) {
    char text[512];
    sweep_result result = {0};
    sweep_data *data = sweep_data_make(c);
    ra_status status = data ? sweep_threads(ranks, data, 2, &result) : RA_ERR_MEMORY;
    int good = status == RA_OK && is_within(&result, &data->p);
    sweep_data_free(data);
    if (status == RA_OK)
        for (int i = 0; i < OUT_COUNT; i++)
            if (result.relative[i] > worst[i] && result.size[i] >= 0.1) worst[i] = result.relative[i];
    if (good) return 1;
    printf("FAILED p=%d %s\n", ranks, case_text(c, text, sizeof text));
    if (status != RA_OK)
        printf("  status %d: %s\n", status, ra_last_error());
    else
        print_errors(&result);
    fflush(stdout);
    return 0;
}

static int is_plain, is_long;

static void make_plain(test_case *c) {
    if (!is_plain) return;
    c->problem.branches = 0, c->problem.window_left = c->problem.window_right = -1;
    c->options.strategy = c->seed % 2 ? RA_STRATEGY_RING : RA_STRATEGY_ALLGATHER;
}

/* A scale of one makes scores of size 50, whose own rounding in f32 is above the tolerance. */
static int sweep(ra_dtype dtype, const ra_backend *backend, const char *kernel, int count, int first, int ranks,
                 double work) {
    static test_case c;
    double worst[OUT_COUNT] = {0};
    int bad = 0;
    for (int i = 0; i < count && bad < 5; i++) {
        uint64_t seed = (uint64_t)(first + i);
        if (is_long)
            case_make_long(&c, seed, dtype);
        else
            case_make(&c, seed, dtype, work);
        if (dtype != RA_F64 && c.problem.scale == 0) c.problem.scale = RA_SCALE_DEFAULT;
        make_plain(&c);
        c.options.backend = backend;
        c.options.kernel = kernel;
        bad += !check_case(&c, ranks ? ranks : 1 + (int)(seed % 8), worst);
    }
    printf("%-4s %d problems, %d wrong; worst relative error of outputs that are not small:", ra_dtype_name(dtype),
           count, bad);
    for (int i = 0; i < OUT_COUNT; i++) printf(" %s %.2g", output_names[i], worst[i]);
    printf("\n");
    fflush(stdout);
    return bad;
}

/* The error of many ranks over that of one. */
static int check_flat(ra_dtype dtype, const ra_backend *backend, const char *kernel) {
    static test_case c;
    double one[OUT_COUNT] = {0}, most = 0;
    c = (test_case){.seed = 77, .problem = RA_PROBLEM_INIT, .options = RA_OPTIONS_INIT};
    c.problem.dtype = dtype;
    c.problem.seq_q = 2048;
    c.problem.heads_q = 2;
    c.problem.dim = 128;
    c.problem.causal = 1;
    c.options.backward = 1;
    c.options.layout = RA_LAYOUT_ZIGZAG;
    c.options.backend = backend;
    c.options.kernel = kernel;
    sweep_data *data = sweep_data_make(&c);
    for (int ranks = 1; ranks <= 8; ranks++) {
        sweep_result result;
        if (!data || sweep_threads(ranks, data, 1, &result) != RA_OK) return printf("FAILED: %s\n", ra_last_error()), 1;
        for (int i = 0; i < OUT_COUNT; i++) {
            if (ranks == 1) one[i] = result.relative[i];
            double ratio = one[i] > 0 ? result.relative[i] / one[i] : 1;
            if (ratio > most) most = ratio;
        }
    }
    sweep_data_free(data);
    printf("%-4s error over that of one rank, p to 8: %.3f at most (o of one rank: %.3g)\n", ra_dtype_name(dtype), most,
           one[OUT_O]);
    return most > (dtype == RA_F32 ? 1.5 : 1.2); /* f32: a few units in the last place, of few values */
}

int main(int argc, char **argv) {
    static const ra_dtype types[] = {RA_F64, RA_F32, RA_BF16, RA_F16};
    const ra_backend *backend = gpu_backend();
    if (!backend) return 0;
    int count = gpu_number(argc, argv, "--count", 150), first = gpu_number(argc, argv, "--seed", 1), bad = 0;
    int ranks = gpu_number(argc, argv, "--ranks", 0); /* 0: 1 to 8, by the seed */
    double work = gpu_number(argc, argv, "--work", 30000000);
    is_plain = gpu_flag(argc, argv, "--plain");
    is_long = gpu_flag(argc, argv, "--long");
    const char *kernel = name_from(argc, argv, "--kernel"), *type = name_from(argc, argv, "--type");
    if (gpu_lacks_kernel(backend, kernel)) return 0;
    for (int i = 0; i < 4; i++)
        if (!type || strcmp(type, ra_dtype_name(types[i])) == 0)
            bad += sweep(types[i], backend, kernel, count, first, ranks, work);
    for (int i = 1; i < 4 && !gpu_flag(argc, argv, "--sweep-only"); i++) bad += check_flat(types[i], backend, kernel);
    return bad != 0;
}
