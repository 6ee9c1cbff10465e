/* ringattn verify: both passes on random tensors against the definition in fp64. Every process has the whole tensors
 * and what is wanted; every rank computes its rows and compares them; the sums of the ranks are added. */
#include "cli.h"
#include "options/cases.h"
#include "ranks/devices.h"
#include "report/progress.h"
#include "tensors/arrays.h"
#include "tensors/compare.h"
#include "tensors/noise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Above this many multiplications the definition would take minutes, and rows of the forward pass are sampled. */
#define WHOLE_MAX 2e9
enum { SEQ_DEFAULT = 512, ROWS_SAMPLED = 64, OUTPUTS = 5 };

static const char *const output_names[OUTPUTS] = {"o", "lse", "dq", "dk", "dv"};

/* One per process. Whole sequences, doubles, C-order; the inputs rounded to the type. */
typedef struct verification {
    const cli_crew *crew;
    ra_problem problem;
    ra_options how;
    double *q, *k, *v, *dout;
    double *o, *lse, *dq, *dk, *dv; /* what is wanted */
    int sampled;
    deviation sums[OUTPUTS]; /* filled in by rank 0 */
    ra_plan_info info;
    ra_status prepared; /* and the sentence, where that failed */
    char prepared_error[1024];
} verification;

/* ---- what is wanted -------------------------------------------------------------------------------------------- */

static ra_status make(uint64_t seed, uint64_t tensor, const ra_problem *p, int64_t n, int64_t width,
                      double **whole_out) {
    int64_t count = p->batch * n * width;
    void *rounded = malloc((size_t)count * ra_dtype_bytes(p->dtype));
    *whole_out = malloc((size_t)count * sizeof(double));
    ra_status status =
        rounded && *whole_out ? RA_OK : ra_fail(RA_ERR_MEMORY, "no memory for whole tensors; make the problem smaller");
    if (status == RA_OK) status = noise_fill(seed, tensor, p->batch, n, width, NULL, n, p->dtype, rounded);
    if (status == RA_OK) status = ra_convert(RA_F64, *whole_out, p->dtype, rounded, count);
    free(rounded);
    return status;
}

static ra_status make_inputs(verification *job, uint64_t seed) {
    const ra_problem *p = &job->problem;
    CLI_RETURN_ON_ERROR(make(seed, 0, p, p->seq_q, p->heads_q * p->dim, &job->q));
    CLI_RETURN_ON_ERROR(make(seed, 1, p, p->seq_k, p->heads_kv * p->dim, &job->k));
    CLI_RETURN_ON_ERROR(make(seed, 2, p, p->seq_k, p->heads_kv * p->dim_v, &job->v));
    return make(seed, 3, p, p->seq_q, p->heads_q * p->dim_v, &job->dout);
}

static ra_status compute_wanted(verification *job) {
    const ra_problem *p = &job->problem;
    int64_t q = p->batch * p->seq_q * p->heads_q, k = p->batch * p->seq_k * p->heads_kv;
    job->o = malloc((size_t)(q * p->dim_v) * sizeof(double));
    job->lse = malloc((size_t)q * sizeof(double));
    job->dq = malloc((size_t)(q * p->dim) * sizeof(double));
    job->dk = malloc((size_t)(k * p->dim) * sizeof(double));
    job->dv = malloc((size_t)(k * p->dim_v) * sizeof(double));
    if (!job->o || !job->lse || !job->dq || !job->dk || !job->dv)
        return ra_fail(RA_ERR_MEMORY, "no memory for whole results; make the problem smaller");
    return ra_reference(p, job->q, job->k, job->v, job->dout, job->o, job->lse, job->dq, job->dk, job->dv);
}

static void free_whole(verification *job) {
    double *all[] = {job->q, job->k, job->v, job->dout, job->o, job->lse, job->dq, job->dk, job->dv};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) free(all[i]);
}

/* ---- one rank -------------------------------------------------------------------------------------------------- */

typedef struct verify_rank {
    verification *job;
    rank_arrays arrays, on_device; /* on_device only where how.backend is one */
    ra_options how;
    ra_plan *plan;
    deviation sums[OUTPUTS];
} verify_rank;

/* One element of an array of the rank's as a double. */
static double element(ra_dtype dtype, const void *data, int64_t i) {
    return dtype == RA_F64 ? ((const double *)data)[i] : ((const float *)data)[i];
}

/* whole [batch, n, width] to the rank's rows of dtype. */
static ra_status scatter(const ra_problem *p, const double *whole, int64_t n, int64_t width, const int64_t *positions,
                         int64_t rows, void *data_out) {
    size_t row_bytes = (size_t)width * ra_dtype_bytes(p->dtype);
    for (int64_t b = 0; b < p->batch; ++b)
        for (int64_t row = 0; row < rows; ++row)
            CLI_RETURN_ON_ERROR(ra_convert(p->dtype, (char *)data_out + (size_t)(b * rows + row) * row_bytes, RA_F64,
                                           whole + (b * n + positions[row]) * width, width));
    return RA_OK;
}

static ra_status fill_arrays(verify_rank *r) {
    const verification *job = r->job;
    const ra_problem *p = &job->problem;
    const rank_arrays *a = &r->arrays;
    CLI_RETURN_ON_ERROR(scatter(p, job->q, p->seq_q, p->heads_q * p->dim, a->positions_q, a->rows_q, a->q));
    CLI_RETURN_ON_ERROR(scatter(p, job->k, p->seq_k, p->heads_kv * p->dim, a->positions_k, a->rows_k, a->k));
    CLI_RETURN_ON_ERROR(scatter(p, job->v, p->seq_k, p->heads_kv * p->dim_v, a->positions_k, a->rows_k, a->v));
    return a->dout ? scatter(p, job->dout, p->seq_q, p->heads_q * p->dim_v, a->positions_q, a->rows_q, a->dout) : RA_OK;
}

/* got [batch, rows, width] against rows of wanted [batch, n, width]. */
static void compare_rows(const ra_problem *p, const void *got, const double *wanted, int64_t n, int64_t width,
                         const int64_t *positions, int64_t rows, deviation *sum) {
    for (int64_t b = 0; b < p->batch; ++b)
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t d = 0; d < width; ++d)
                deviation_add(sum, element(p->out_dtype, got, (b * rows + row) * width + d),
                              wanted[(b * n + positions[row]) * width + d]);
}

static void compare_whole(verify_rank *r) {
    const verification *job = r->job;
    const ra_problem *p = &job->problem;
    const rank_arrays *a = &r->arrays;
    compare_rows(p, a->o, job->o, p->seq_q, p->heads_q * p->dim_v, a->positions_q, a->rows_q, &r->sums[0]);
    compare_rows(p, a->dq, job->dq, p->seq_q, p->heads_q * p->dim, a->positions_q, a->rows_q, &r->sums[2]);
    compare_rows(p, a->dk, job->dk, p->seq_k, p->heads_kv * p->dim, a->positions_k, a->rows_k, &r->sums[3]);
    compare_rows(p, a->dv, job->dv, p->seq_k, p->heads_kv * p->dim_v, a->positions_k, a->rows_k, &r->sums[4]);
    for (int64_t i = 0; i < p->batch * p->heads_q; ++i)
        for (int64_t row = 0; row < a->rows_q; ++row)
            deviation_add_lse(&r->sums[1], element(p->out_dtype, a->lse, i * a->rows_q + row),
                              job->lse[i * p->seq_q + a->positions_q[row]]);
}

static ra_status compare_one(verify_rank *r, int64_t b, int64_t h, int64_t row) {
    const verification *job = r->job;
    const ra_problem *p = &job->problem;
    const rank_arrays *a = &r->arrays;
    double o[256], lse;
    CLI_RETURN_ON_ERROR(ra_reference_row(p, job->q, job->k, job->v, b, h, a->positions_q[row], o, &lse));
    for (int64_t d = 0; d < p->dim_v; ++d)
        deviation_add(&r->sums[0], element(p->out_dtype, a->o, ((b * a->rows_q + row) * p->heads_q + h) * p->dim_v + d),
                      o[d]);
    deviation_add_lse(&r->sums[1], element(p->out_dtype, a->lse, (b * p->heads_q + h) * a->rows_q + row), lse);
    return RA_OK;
}

/* Each rank compares some of its own rows, spread over them, a head each in turn. */
static ra_status compare_sample(verify_rank *r, int ranks) {
    const ra_problem *p = &r->job->problem;
    int64_t rows = r->arrays.rows_q, wanted = ROWS_SAMPLED / ranks + 1;
    for (int64_t n = 0; rows > 0 && n < wanted; ++n)
        CLI_RETURN_ON_ERROR(compare_one(r, n % p->batch, n % p->heads_q, rows - 1 - n * rows / wanted));
    return RA_OK;
}

static ra_status compute(verify_rank *r, ra_comm *comm) {
    const rank_arrays *arrays = r->how.backend ? &r->on_device : &r->arrays;
    r->how.layout = r->arrays.layout;
    CLI_RETURN_ON_ERROR(ra_plan_create(comm, &r->job->problem, &r->how, &r->plan));
    ra_tensors tensors = arrays_tensors(arrays);
    CLI_RETURN_ON_ERROR(ra_plan_forward(r->plan, &tensors, arrays->stream));
    if (r->how.backward) {
        ra_gradients gradients = arrays_gradients(arrays);
        CLI_RETURN_ON_ERROR(ra_plan_backward(r->plan, &gradients, arrays->stream));
    }
    CLI_RETURN_ON_ERROR(ra_plan_wait(r->plan, arrays->stream));
    return r->how.backend ? arrays_copy_outputs(&r->arrays, &r->on_device) : RA_OK;
}

static ra_status compare(verify_rank *r, int ranks) {
    if (r->job->sampled) return compare_sample(r, ranks);
    compare_whole(r);
    return RA_OK;
}

static ra_status add_up(verify_rank *r, ra_comm *comm) {
    int ranks = ra_comm_ranks(comm);
    verification *job = r->job;
    deviation *all = malloc((size_t)ranks * sizeof r->sums);
    if (!all) return ra_fail(RA_ERR_MEMORY, "no memory for the errors of %d ranks", ranks);
    ra_status status = ra_comm_allgather(comm, r->sums, sizeof r->sums, all, job->crew->timeout_seconds);
    if (status == RA_OK && ra_comm_rank(comm) == 0) {
        for (int i = 0; i < ranks * OUTPUTS; ++i) deviation_merge(&job->sums[i % OUTPUTS], &all[i]);
        job->info = (ra_plan_info)RA_PLAN_INFO_INIT;
        status = ra_plan_describe(r->plan, &job->info);
    }
    free(all);
    return status;
}

static ra_status make_arrays(verify_rank *r, int ranks, int rank) {
    const ra_problem *p = &r->job->problem;
    r->how = r->job->how;
    CLI_RETURN_ON_ERROR(devices_choose(r->job->crew->options, rank, &r->how));
    CLI_RETURN_ON_ERROR(arrays_create(p, &r->how, ranks, rank, NULL, &r->arrays));
    CLI_RETURN_ON_ERROR(fill_arrays(r));
    if (!r->how.backend) return RA_OK;
    CLI_RETURN_ON_ERROR(arrays_create(p, &r->how, ranks, rank, r->how.backend, &r->on_device));
    return arrays_copy_inputs(&r->on_device, &r->arrays);
}

static ra_status verify_stages(verify_rank *r, ra_comm *comm) {
    double timeout = r->job->crew->timeout_seconds;
    int ranks = ra_comm_ranks(comm);
    CLI_RETURN_ON_ERROR(crew_agree(comm, make_arrays(r, ranks, ra_comm_rank(comm)), timeout));
    CLI_RETURN_ON_ERROR(crew_agree(comm, compute(r, comm), timeout));
    CLI_RETURN_ON_ERROR(crew_agree(comm, compare(r, ranks), timeout));
    return add_up(r, comm);
}

static ra_status verify_body(ra_comm *comm, void *user) {
    verify_rank r = {.job = user};
    ra_status status = r.job->prepared;
    if (status != RA_OK) ra_fail(status, "%s", r.job->prepared_error);
    status = crew_agree(comm, status, r.job->crew->timeout_seconds);
    if (status == RA_OK) status = verify_stages(&r, comm);
    ra_plan_destroy(r.plan);
    arrays_free(&r.on_device);
    arrays_free(&r.arrays);
    return status;
}

/* ---- the verdict ----------------------------------------------------------------------------------------------- */

/* What dq and dk are the larger by where the scale is more than the usual one: so is the rounding of what cancels. */
static double gradient_size(const ra_problem *p) {
    double scale = p->scale == RA_SCALE_DEFAULT ? 1 : fabs(p->scale) * sqrt((double)p->dim);
    return scale > 1 ? scale : 1;
}

static ra_status judge(const verification *job, int ranks) {
    int good = 1;
    printf("%d rank%s, strategy %s, layout %s, kernel %s on %s, %s, against fp64\n", ranks, ranks == 1 ? "" : "s",
           ra_strategy_name(job->info.strategy), ra_layout_name(job->info.layout), job->info.kernel, job->info.device,
           ra_dtype_name(job->problem.dtype));
    if (job->sampled) printf("too large to compute whole in fp64: rows of the forward pass were sampled\n");
    printf("%6s %12s %14s %14s\n", "", "elements", "max abs error", "relative norm");
    for (int i = 0; i < (job->sampled ? 2 : OUTPUTS); ++i) {
        const deviation *sum = &job->sums[i];
        deviation judged = *sum;
        if (i == 2 || i == 3) judged.max_abs /= gradient_size(&job->problem);
        int within = deviation_within(&judged, job->problem.dtype, i >= 2);
        printf("%6s %12lld %14.3e %14.3e%s\n", output_names[i], (long long)sum->count, sum->max_abs,
               deviation_relative(sum), within ? "" : "   out of tolerance");
        good &= within;
    }
    return good ? RA_OK
                : ra_fail(CLI_FAILED, "the result is out of tolerance for %s", ra_dtype_name(job->problem.dtype));
}

static ra_status prepare(verification *job, uint64_t seed, int ranks) {
    ra_plan_info info = RA_PLAN_INFO_INIT;
    double work = 0;
    for (int r = 0; r < ranks; ++r) {
        CLI_RETURN_ON_ERROR(ra_predict(&job->problem, &job->how, ranks, r, &info));
        work += (double)info.pairs * (double)(job->problem.dim + job->problem.dim_v);
    }
    job->sampled = work > WHOLE_MAX;
    job->how.backward = !job->sampled;
    CLI_RETURN_ON_ERROR(make_inputs(job, seed));
    return job->sampled ? RA_OK : compute_wanted(job);
}

ra_status cli_verify(const cli_options *options, cli_crew *crew) {
    verification job = {.crew = crew};
    cli_case one = cases_at(options, 0, SEQ_DEFAULT, crew->processes ? crew->processes : 1);
    CLI_RETURN_ON_ERROR(cases_problem(options, &one, &job.problem));
    job.how = cases_options(options, &one, 1);
    CLI_RETURN_ON_ERROR(devices_choose(options, 0, &job.how));
    if (crew->process == 0) progress_begin("verifying");
    job.prepared = prepare(&job, (uint64_t)cli_list_at(options->seed, 0, 1), one.ranks);
    ra_status status = job.prepared;
    if (status != RA_OK) snprintf(job.prepared_error, sizeof job.prepared_error, "%s", ra_last_error());
    /* Another process may have succeeded: tell it, rather than leave it waiting. */
    if (status == RA_OK || crew->processes) status = crew_run(crew, one.ranks, verify_body, &job);
    progress_end();
    if (status == RA_OK && crew->process == 0) status = judge(&job, one.ranks);
    free_whole(&job);
    return status;
}
