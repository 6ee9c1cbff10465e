/* ringattn bench: how long it takes, on random tensors. Every case of the sweep has ranks of its own; a repeat is
 * timed from the moment when all ranks stand ready until the last of them is done. */
#include "cli.h"
#include "options/cases.h"
#include "ranks/devices.h"
#include "report/json.h"
#include "report/peak.h"
#include "report/progress.h"
#include "report/text.h"
#include "report/timing.h"
#include "tensors/arrays.h"
#include "tensors/device_noise.h"
#include "tensors/noise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEQ_DEFAULT = 4096, REPEATS_DEFAULT = 3 };

/* What a rank contributes: one repeat, and what its plan says. */
typedef struct repeat_sample {
    double wall, cpu;
} repeat_sample;

typedef struct rank_sample {
    int64_t pairs, workspace_bytes, bytes_forward, bytes_backward, messages_forward, messages_backward;
} rank_sample;

/* One case; filled in by rank 0. */
typedef struct bench_case {
    const cli_crew *crew;
    cli_case one;
    ra_problem problem;
    ra_options how;
    int repeats;
    uint64_t seed;
    double *wall[2], *cpu[2]; /* [repeats] of forward and backward */
    ra_plan_info info;
    char transport[16];
    int64_t pairs, pairs_most, workspace_most;
    int64_t bytes[2], messages[2]; /* all ranks together */
} bench_case;

/* ---- measuring ------------------------------------------------------------------------------------------------- */

static ra_status fill_arrays(const bench_case *bench, const rank_arrays *a) {
    const ra_problem *p = &bench->problem;
    if (a->backend) return device_noise_fill(bench->seed, p->dtype, a);
    int64_t heads_q = p->heads_q, heads_kv = p->heads_kv;
    CLI_RETURN_ON_ERROR(
        noise_fill(bench->seed, 0, p->batch, p->seq_q, heads_q * p->dim, a->positions_q, a->rows_q, p->dtype, a->q));
    CLI_RETURN_ON_ERROR(
        noise_fill(bench->seed, 1, p->batch, p->seq_k, heads_kv * p->dim, a->positions_k, a->rows_k, p->dtype, a->k));
    CLI_RETURN_ON_ERROR(
        noise_fill(bench->seed, 2, p->batch, p->seq_k, heads_kv * p->dim_v, a->positions_k, a->rows_k, p->dtype, a->v));
    if (!a->dout) return RA_OK;
    return noise_fill(bench->seed, 3, p->batch, p->seq_q, heads_q * p->dim_v, a->positions_q, a->rows_q, p->dtype,
                      a->dout);
}

static ra_status run_pass(ra_plan *plan, const rank_arrays *arrays, ra_pass pass) {
    if (pass == RA_BACKWARD) {
        ra_gradients gradients = arrays_gradients(arrays);
        CLI_RETURN_ON_ERROR(ra_plan_backward(plan, &gradients, arrays->stream));
        return ra_plan_wait(plan, arrays->stream);
    }
    ra_tensors tensors = arrays_tensors(arrays);
    CLI_RETURN_ON_ERROR(ra_plan_forward(plan, &tensors, arrays->stream));
    return ra_plan_wait(plan, arrays->stream);
}

/* all [ranks]: where the samples of all ranks go. Processes add their CPU time up; ranks of one process all see the
 * same. */
static ra_status time_once(bench_case *bench, ra_comm *comm, ra_plan *plan, const rank_arrays *arrays, ra_pass pass,
                           repeat_sample *all, repeat_sample *sample_out) {
    double timeout = bench->crew->timeout_seconds;
    char ready = 0;
    CLI_RETURN_ON_ERROR(ra_comm_allgather(comm, &ready, 1, all, timeout));
    repeat_sample mine = {timing_wall(), timing_cpu()};
    CLI_RETURN_ON_ERROR(run_pass(plan, arrays, pass));
    mine.wall = timing_wall() - mine.wall;
    CLI_RETURN_ON_ERROR(ra_comm_allgather(comm, &ready, 1, all, timeout));
    mine.cpu = timing_cpu() - mine.cpu;
    CLI_RETURN_ON_ERROR(ra_comm_allgather(comm, &mine, sizeof mine, all, timeout));
    *sample_out = (repeat_sample){0};
    for (int r = 0; r < ra_comm_ranks(comm); ++r) {
        sample_out->wall = fmax(sample_out->wall, all[r].wall);
        sample_out->cpu = bench->crew->processes ? sample_out->cpu + all[r].cpu : fmax(sample_out->cpu, all[r].cpu);
    }
    return RA_OK;
}

/* One untimed run warms caches and threads up. */
static ra_status time_pass(bench_case *bench, ra_comm *comm, ra_plan *plan, const rank_arrays *arrays, ra_pass pass) {
    repeat_sample *all = malloc((size_t)ra_comm_ranks(comm) * sizeof *all), sample;
    ra_status status = crew_agree(comm, all ? RA_OK : ra_fail(RA_ERR_MEMORY, "no memory for the times of the ranks"),
                                  bench->crew->timeout_seconds);
    if (status == RA_OK) status = run_pass(plan, arrays, pass);
    for (int i = 0; status == RA_OK && i < bench->repeats; ++i) {
        status = time_once(bench, comm, plan, arrays, pass, all, &sample);
        if (status != RA_OK || ra_comm_rank(comm) != 0) continue;
        bench->wall[pass][i] = sample.wall;
        bench->cpu[pass][i] = sample.cpu;
    }
    free(all);
    return status;
}

static ra_status gather_plan(bench_case *bench, ra_comm *comm, const ra_plan *plan) {
    int ranks = ra_comm_ranks(comm);
    ra_plan_info info = RA_PLAN_INFO_INIT;
    CLI_RETURN_ON_ERROR(ra_plan_describe(plan, &info));
    rank_sample mine = {info.pairs,
                        info.workspace_bytes,
                        info.forward.bytes_sent,
                        info.backward.bytes_sent,
                        info.forward.messages_sent,
                        info.backward.messages_sent};
    rank_sample *all = malloc((size_t)ranks * sizeof *all);
    if (!all) return ra_fail(RA_ERR_MEMORY, "no memory for the plans of %d ranks", ranks);
    ra_status status = ra_comm_allgather(comm, &mine, sizeof mine, all, bench->crew->timeout_seconds);
    for (int r = 0; status == RA_OK && ra_comm_rank(comm) == 0 && r < ranks; ++r) {
        bench->pairs += all[r].pairs;
        if (all[r].pairs > bench->pairs_most) bench->pairs_most = all[r].pairs;
        if (all[r].workspace_bytes > bench->workspace_most) bench->workspace_most = all[r].workspace_bytes;
        bench->bytes[RA_FORWARD] += all[r].bytes_forward;
        bench->bytes[RA_BACKWARD] += all[r].bytes_backward;
        bench->messages[RA_FORWARD] += all[r].messages_forward;
        bench->messages[RA_BACKWARD] += all[r].messages_backward;
    }
    free(all);
    if (ra_comm_rank(comm) != 0) return status;
    bench->info = info;
    snprintf(bench->transport, sizeof bench->transport, "%s", ra_comm_transport(comm));
    return status;
}

static ra_status measure(bench_case *bench, ra_comm *comm, rank_arrays *arrays, ra_plan **plan) {
    double timeout = bench->crew->timeout_seconds;
    int ranks = ra_comm_ranks(comm), rank = ra_comm_rank(comm);
    ra_options how = bench->how;
    ra_status status = devices_choose(bench->crew->options, rank, &how);
    if (status == RA_OK) status = arrays_create(&bench->problem, &how, ranks, rank, how.backend, arrays);
    if (status == RA_OK) status = fill_arrays(bench, arrays);
    CLI_RETURN_ON_ERROR(crew_agree(comm, status, timeout));
    how.layout = arrays->layout;
    CLI_RETURN_ON_ERROR(crew_agree(comm, ra_plan_create(comm, &bench->problem, &how, plan), timeout));
    CLI_RETURN_ON_ERROR(time_pass(bench, comm, *plan, arrays, RA_FORWARD));
    if (how.backward) CLI_RETURN_ON_ERROR(time_pass(bench, comm, *plan, arrays, RA_BACKWARD));
    return gather_plan(bench, comm, *plan);
}

static ra_status bench_body(ra_comm *comm, void *user) {
    rank_arrays arrays = {0};
    ra_plan *plan = NULL;
    ra_status status = measure(user, comm, &arrays, &plan);
    ra_plan_destroy(plan);
    arrays_free(&arrays);
    return status;
}

/* ---- printing -------------------------------------------------------------------------------------------------- */

typedef struct bench_row {
    ra_pass pass;
    double seconds, seconds_min, cpu_seconds, gflops, peak_fraction, imbalance;
} bench_row;

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* The threads that compute at the same time: those asked for, as far as there are cores. */
static int busy_threads(const bench_case *bench) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = (int64_t)bench->one.ranks * bench->how.threads;
    return (int)(bench->how.threads == 0 || threads > cores ? (cores < 1 ? 1 : cores) : threads);
}

/* Forward: one product of dim and one of dim_v per pair. Backward: those again, and three more. */
static bench_row make_row(bench_case *bench, ra_pass pass) {
    bench_row row = {.pass = pass, .seconds = median(bench->wall[pass], bench->repeats)};
    row.seconds_min = bench->wall[pass][0]; /* sorted by median */
    row.cpu_seconds = median(bench->cpu[pass], bench->repeats);
    double operations = 2.0 * (double)bench->pairs * (double)(bench->one.dim + bench->one.dim_v);
    if (pass == RA_BACKWARD) operations *= 2.5;
    row.gflops = row.seconds > 0 ? 1e-9 * operations / row.seconds : 0;
    /* A GPU's peak is not measured. */
    double peak = bench->how.backend ? NAN : peak_gflops(bench->one.dtype, busy_threads(bench));
    row.peak_fraction = peak > 0 || isnan(peak) ? row.gflops / peak : 0;
    row.imbalance = bench->pairs ? (double)bench->pairs_most * bench->one.ranks / (double)bench->pairs : 1;
    return row;
}

static void write_row(json_writer *json, const bench_case *bench, const bench_row *row) {
    const cli_case *one = &bench->one;
    json_open(json, NULL, '{');
    json_int(json, "seq", one->seq_q);
    json_int(json, "seq_k", one->seq_k);
    json_int(json, "batch", one->batch);
    json_int(json, "heads", one->heads_q);
    json_int(json, "kv_heads", one->heads_kv);
    json_int(json, "dim", one->dim);
    json_int(json, "dim_v", one->dim_v);
    json_text(json, "dtype", ra_dtype_name(one->dtype));
    json_bool(json, "causal", bench->problem.causal);
    json_text(json, "device", bench->info.device);
    json_text(json, "kernel", bench->info.kernel);
    json_text(json, "transport", bench->transport);
    json_text(json, "strategy", ra_strategy_name(bench->info.strategy));
    json_text(json, "layout", ra_layout_name(bench->info.layout));
    json_int(json, "ranks", one->ranks);
    json_text(json, "pass", row->pass == RA_FORWARD ? "forward" : "backward");
    json_int(json, "repeats", bench->repeats);
    json_real(json, "seconds", row->seconds);
    json_real(json, "seconds_min", row->seconds_min);
    json_real(json, "cpu_seconds", row->cpu_seconds);
    json_real(json, "gflops", row->gflops);
    json_real(json, "tflops", 1e-3 * row->gflops);
    json_real(json, "peak_fraction", row->peak_fraction);
    json_int(json, "workspace_bytes", bench->workspace_most);
    json_int(json, "bytes_sent", bench->bytes[row->pass]);
    json_int(json, "messages_sent", bench->messages[row->pass]);
    json_int(json, "pairs", bench->pairs);
    json_real(json, "imbalance", row->imbalance);
    json_close(json, '}');
}

static void print_header(int on_device) {
    printf("%9s %5s %4s %5s %5s %-10s %-9s %-10s %-8s %9s %9s %8s %6s %9s %9s %6s\n", "seq", "heads", "dim", "dtype",
           "ranks", "layout", "strategy", "kernel", "pass", "seconds", "cpu", on_device ? "tflops" : "gflops", "peak",
           "workspace", "sent", "imbal.");
}

static void print_row(const bench_case *bench, const bench_row *row) {
    char workspace[TEXT_BYTES], sent[TEXT_BYTES];
    const cli_case *one = &bench->one;
    char peak[TEXT_BYTES] = "-"; /* on a GPU it is not measured */
    if (isfinite(row->peak_fraction)) snprintf(peak, sizeof peak, "%.1f%%", 100 * row->peak_fraction);
    printf("%9lld %5lld %4lld %5s %5d %-10s %-9s %-10s %-8s %9.4f %9.4f %8.2f %6s %9s %9s %6.3f\n",
           (long long)one->seq_q, (long long)one->heads_q, (long long)one->dim, ra_dtype_name(one->dtype), one->ranks,
           ra_layout_name(bench->info.layout), ra_strategy_name(bench->info.strategy), bench->info.kernel,
           row->pass == RA_FORWARD ? "forward" : "backward", row->seconds, row->cpu_seconds,
           bench->how.backend ? 1e-3 * row->gflops : row->gflops, peak, text_bytes(bench->workspace_most, workspace),
           text_bytes(bench->bytes[row->pass], sent), row->imbalance);
    fflush(stdout);
}

static void show(bench_case *bench, json_writer *json) {
    for (int pass = 0; pass <= (bench->how.backward ? 1 : 0); ++pass) {
        bench_row row = make_row(bench, (ra_pass)pass);
        if (json)
            write_row(json, bench, &row);
        else
            print_row(bench, &row);
    }
}

/* ---- the sweep ------------------------------------------------------------------------------------------------- */

static ra_status make_case(const cli_options *options, const cli_crew *crew, int64_t i, bench_case *bench_out) {
    *bench_out = (bench_case){.crew = crew, .seed = (uint64_t)cli_list_at(options->seed, 0, 1)};
    bench_out->one = cases_at(options, i, SEQ_DEFAULT, crew->processes ? crew->processes : 1);
    bench_out->how = cases_options(options, &bench_out->one, options->backward);
    CLI_RETURN_ON_ERROR(devices_choose(options, 0, &bench_out->how));
    return cases_problem(options, &bench_out->one, &bench_out->problem);
}

/* Whether every case can be planned, found out before anything is printed or any memory is filled. */
static ra_status check_cases(const cli_options *options, const cli_crew *crew) {
    for (int64_t i = 0; i < cases_count(options); ++i) {
        bench_case bench;
        ra_plan_info info = RA_PLAN_INFO_INIT;
        CLI_RETURN_ON_ERROR(make_case(options, crew, i, &bench));
        CLI_RETURN_ON_ERROR(ra_predict(&bench.problem, &bench.how, bench.one.ranks, 0, &info));
    }
    return RA_OK;
}

/* times [4, repeats]. json: NULL for a table. */
static ra_status run_case(const cli_options *options, const cli_crew *crew, int64_t i, double *times, int repeats,
                          json_writer *json) {
    bench_case bench;
    CLI_RETURN_ON_ERROR(make_case(options, crew, i, &bench));
    bench.repeats = repeats;
    for (int pass = 0; pass < 2; ++pass) {
        bench.wall[pass] = times + 2 * pass * repeats;
        bench.cpu[pass] = times + (2 * pass + 1) * repeats;
    }
    if (crew->process == 0) progress_begin("benchmark");
    ra_status status = crew_run(crew, bench.one.ranks, bench_body, &bench);
    progress_end();
    if (status == RA_OK && crew->process == 0) show(&bench, json);
    return status;
}

ra_status cli_bench(const cli_options *options, cli_crew *crew) {
    int repeats = (int)cli_list_at(options->repeat, 0, REPEATS_DEFAULT), shown = crew->process == 0;
    CLI_RETURN_ON_ERROR(check_cases(options, crew));
    double *times = calloc((size_t)repeats * 4, sizeof *times);
    if (!times) return ra_fail(RA_ERR_MEMORY, "--repeat: no memory for %d times", repeats);
    json_writer json = json_begin(stdout);
    if (shown && options->json) json_open(&json, NULL, '[');
    if (shown && !options->json) print_header(cli_list_at(options->device, 0, CLI_DEVICE_CPU) != CLI_DEVICE_CPU);
    ra_status status = RA_OK;
    for (int64_t i = 0; status == RA_OK && i < cases_count(options); ++i)
        status = run_case(options, crew, i, times, repeats, options->json ? &json : NULL);
    if (shown && options->json) json_close(&json, ']');
    free(times);
    return status;
}
