#include "options/cases.h"

#include <float.h>
#include <math.h>

#include "cli.h"

int64_t cases_count(const cli_options *options) {
    const cli_list *axes[] = {&options->batch, &options->seq,      &options->seq_k, &options->heads,
                              &options->dim,   &options->kv_heads, &options->dim_v, &options->ranks,
                              &options->dtype, &options->strategy, &options->layout};
    int64_t count = options->kernel ? cli_words_count(options->kernel) : 1;
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; ++i)
        if (axes[i]->count) count *= axes[i]->count;
    return count;
}

/* Takes one axis' digit off *i, the number of a case in mixed radix. */
static int64_t take(cli_list list, int64_t *i, int64_t otherwise) {
    if (list.count == 0) return otherwise;
    int64_t digit = *i % list.count;
    *i /= list.count;
    return list.values[digit];
}

cli_case cases_at(const cli_options *options, int64_t i, int64_t seq_default, int ranks_default) {
    cli_case one = {.kernel = "auto"};
    int64_t kernels = cli_words_count(options->kernel);
    if (kernels) cli_words_at(options->kernel, i % kernels, one.kernel, sizeof one.kernel);
    if (kernels) i /= kernels;
    one.layout = (ra_layout)take(options->layout, &i, RA_LAYOUT_AUTO);
    one.strategy = (ra_strategy)take(options->strategy, &i, RA_STRATEGY_AUTO);
    one.ranks = (int)take(options->ranks, &i, ranks_default);
    one.dtype = (ra_dtype)take(options->dtype, &i, RA_F32);
    one.dim = take(options->dim, &i, 64);
    one.dim_v = take(options->dim_v, &i, one.dim);
    one.heads_q = take(options->heads, &i, 8);
    one.heads_kv = take(options->kv_heads, &i, one.heads_q);
    one.seq_q = take(options->seq, &i, seq_default);
    one.seq_k = take(options->seq_k, &i, one.seq_q);
    one.batch = take(options->batch, &i, 1);
    return one;
}

static ra_status check_documents(const cli_options *options, const cli_case *one) {
    const cli_list *k = options->cu_k.count ? &options->cu_k : &options->cu_q;
    int64_t end_q = options->cu_q.values[options->cu_q.count - 1], end_k = k->values[k->count - 1];
    if (one->batch != 1)
        CLI_RETURN_REFUSAL("--cu-seqlens: packed documents need a batch of 1, not %lld", (long long)one->batch);
    if (end_q != one->seq_q)
        CLI_RETURN_REFUSAL("--cu-seqlens: ends at %lld; the last entry is the number of queries, %lld",
                           (long long)end_q, (long long)one->seq_q);
    int one_for_all = options->cu_q.count == 2 && !options->cu_k.count; /* one document has all keys */
    if (end_k != one->seq_k && !one_for_all)
        CLI_RETURN_REFUSAL("%s: ends at %lld, but there are %lld keys; give --cu-seqlens-k the last entry %lld",
                           options->cu_k.count ? "--cu-seqlens-k" : "--cu-seqlens", (long long)end_k,
                           (long long)one->seq_k, (long long)one->seq_k);
    return RA_OK;
}

/* Scores of all types but f64 are made in f32. */
static ra_status check_scale(const cli_options *options, const cli_case *one) {
    double size = fabs(options->scale);
    if (one->dtype != RA_F64 && size != 0 && (size < (double)FLT_MIN || size > (double)FLT_MAX))
        CLI_RETURN_REFUSAL("--scale: %g is out of range; give 0 or a number from %.2g to %.2g in size, or --dtype f64",
                           options->scale, (double)FLT_MIN, (double)FLT_MAX);
    return RA_OK;
}

ra_status cases_problem(const cli_options *options, const cli_case *one, ra_problem *problem_out) {
    if (options->command != CLI_RUN && one->heads_q % one->heads_kv)
        CLI_RETURN_REFUSAL("--kv-heads: %lld does not divide --heads %lld", (long long)one->heads_kv,
                           (long long)one->heads_q);
    if (options->cu_q.count) CLI_RETURN_ON_ERROR(check_documents(options, one));
    if (options->scale_given) CLI_RETURN_ON_ERROR(check_scale(options, one));
    ra_problem problem = RA_PROBLEM_INIT;
    problem.dtype = one->dtype;
    problem.out_dtype = one->dtype == RA_F64 ? RA_F64 : RA_F32;
    problem.batch = one->batch;
    problem.seq_q = one->seq_q;
    problem.seq_k = one->seq_k;
    problem.heads_q = one->heads_q;
    problem.heads_kv = one->heads_kv;
    problem.dim = one->dim;
    problem.dim_v = one->dim_v;
    if (options->scale_given) problem.scale = options->scale;
    problem.causal = options->causal;
    problem.window_left = cli_list_at(options->window, 0, -1);
    problem.window_right = cli_list_at(options->window, 1, -1);
    problem.documents = options->cu_q.count ? options->cu_q.count - 1 : 0;
    problem.cu_seqlens_q = options->cu_q.values;
    problem.cu_seqlens_k = options->cu_k.values;
    problem.branches = options->dilated.count / 2;
    problem.dilated = (const ra_branch *)options->dilated.values; /* segment, rate, segment, rate, ... */
    problem.dilated_heads = (ra_dilated_heads)cli_list_at(options->dilated_heads, 0, RA_DILATED_ALL);
    problem.dilated_offset = (ra_dilated_offset)cli_list_at(options->dilated_offset, 0, RA_DILATED_HEAD);
    problem.dilated_combine = (ra_dilated_combine)cli_list_at(options->dilated_combine, 0, RA_DILATED_LSE);
    *problem_out = problem;
    return RA_OK;
}

ra_options cases_options(const cli_options *options, const cli_case *one, int backward) {
    ra_options how = RA_OPTIONS_INIT;
    how.layout = one->layout;
    how.strategy = one->strategy;
    how.backward = backward;
    how.kernel = one->kernel;
    how.threads = (int)cli_list_at(options->threads, 0, 0);
    how.timeout_seconds = options->timeout_given ? options->timeout : 0;
    return how;
}
