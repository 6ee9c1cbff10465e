/* ringattn run: attention over files.
 *
 *   open (per process)   headers, shapes, targets
 *   rank body            own rows in -> plan -> forward -> own rows out -> backward -> gradients out
 *   rank 0               check, report, rename
 *
 * Between the stages the ranks agree that all is well, so that a failure anywhere ends every rank with one sentence and
 * no output. */
#include "cli.h"
#include "files/npy_rows.h"
#include "options/cases.h"
#include "ranks/devices.h"
#include "ranks/request.h"
#include "report/progress.h"
#include "report/report.h"
#include "report/timing.h"
#include "tensors/arrays.h"
#include "tensors/check_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One per process, shared by its ranks. */
typedef struct run_job {
    const cli_options *options;
    const cli_crew *crew;
    npy_file q, k, v, dout;
    cli_case one;
    ra_problem problem;
    ra_options how;
    output_set outputs;
    output_file *out, *lse, *dq, *dk, *dv, *report; /* in outputs; NULL: not asked for */
    ra_status opened;
    char opened_error[1024];
} run_job;

/* ---- open ------------------------------------------------------------------------------------------------------ */

static ra_status same(const npy_file *file, int axis, int64_t wanted, const char *name, const char *other) {
    int64_t got = file->header.shape[axis];
    if (got != wanted)
        CLI_RETURN_REFUSAL("%s: its %s is %lld, but that of %s is %lld", file->what, name, (long long)got, other,
                           (long long)wanted);
    return RA_OK;
}

/* The rest of --k and --v is as long as what is checked. */
static ra_status check_lengths(const npy_file *file) {
    static const struct {
        const char *name;
        int64_t most;
    } axes[] = {{"batch", CLI_BATCH_MAX},
                {"number of rows", CLI_SEQ_MAX},
                {"number of heads", CLI_HEADS_MAX},
                {"dim", RA_MAX_DIM}};
    for (int i = 0; i < 4; ++i)
        if (file->header.shape[i] > axes[i].most)
            CLI_RETURN_REFUSAL("%s: its %s is %lld; at most %lld is supported", file->what, axes[i].name,
                               (long long)file->header.shape[i], (long long)axes[i].most);
    return RA_OK;
}

static ra_status check_shapes(const run_job *job) {
    const int64_t *q = job->q.header.shape, *k = job->k.header.shape, *v = job->v.header.shape;
    CLI_RETURN_ON_ERROR(same(&job->k, 0, q[0], "batch", "--q"));
    CLI_RETURN_ON_ERROR(same(&job->k, 3, q[3], "dim", "--q"));
    if (q[2] % k[2])
        CLI_RETURN_REFUSAL("--k: its %lld heads do not divide the %lld of --q", (long long)k[2], (long long)q[2]);
    CLI_RETURN_ON_ERROR(same(&job->v, 0, q[0], "batch", "--q"));
    CLI_RETURN_ON_ERROR(same(&job->v, 1, k[1], "number of rows", "--k"));
    CLI_RETURN_ON_ERROR(same(&job->v, 2, k[2], "number of heads", "--k"));
    CLI_RETURN_ON_ERROR(check_lengths(&job->q));
    CLI_RETURN_ON_ERROR(check_lengths(&job->v));
    if (!job->options->dout) return RA_OK;
    for (int axis = 0; axis < 3; ++axis) {
        static const char *const names[] = {"batch", "number of rows", "number of heads"};
        CLI_RETURN_ON_ERROR(same(&job->dout, axis, q[axis], names[axis], "--q"));
    }
    return same(&job->dout, 3, v[3], "dim", "--v");
}

static ra_status open_inputs(run_job *job) {
    const cli_options *o = job->options;
    CLI_RETURN_ON_ERROR(npy_open("--q", o->q, &job->q));
    CLI_RETURN_ON_ERROR(npy_open("--k", o->k, &job->k));
    CLI_RETURN_ON_ERROR(npy_open("--v", o->v, &job->v));
    if (o->dout) CLI_RETURN_ON_ERROR(npy_open("--dout", o->dout, &job->dout));
    return check_shapes(job);
}

static ra_status find_problem(run_job *job) {
    const int64_t *q = job->q.header.shape, *k = job->k.header.shape;
    int processes = job->crew->processes;
    cli_case one = cases_at(job->options, 0, q[1], processes ? processes : 1);
    one.batch = q[0];
    one.seq_k = k[1];
    one.heads_q = q[2];
    one.heads_kv = k[2];
    one.dim = q[3];
    one.dim_v = job->v.header.shape[3];
    if (!job->options->dtype.count && job->q.header.dtype == RA_F64) one.dtype = RA_F64;
    job->one = one;
    job->how = cases_options(job->options, &job->one, job->options->dout != NULL);
    CLI_RETURN_ON_ERROR(devices_choose(job->options, 0, &job->how));
    return cases_problem(job->options, &one, &job->problem);
}

static ra_status find_outputs(run_job *job) {
    const cli_options *o = job->options;
    const int64_t *q = job->q.header.shape, *k = job->k.header.shape, *v = job->v.header.shape;
    const int64_t out[] = {q[0], q[1], q[2], v[3]}, lse[] = {q[0], q[2], q[1]};
    ra_dtype dtype = job->problem.out_dtype;
    job->out = outputs_add(&job->outputs, "--out", o->out, dtype, 4, out);
    job->lse = outputs_add(&job->outputs, "--lse", o->lse, dtype, 3, lse);
    job->dq = outputs_add(&job->outputs, "--dq", o->dq, dtype, 4, q);
    job->dk = outputs_add(&job->outputs, "--dk", o->dk, dtype, 4, k);
    job->dv = outputs_add(&job->outputs, "--dv", o->dv, dtype, 4, v);
    job->report = outputs_add(&job->outputs, "--report", o->report, RA_F32, 0, NULL);
    CLI_RETURN_ON_ERROR(outputs_check(&job->outputs, job->crew->process == 0));
    CLI_RETURN_ON_ERROR(outputs_check_input(&job->outputs, "--q", o->q));
    CLI_RETURN_ON_ERROR(outputs_check_input(&job->outputs, "--k", o->k));
    CLI_RETURN_ON_ERROR(outputs_check_input(&job->outputs, "--v", o->v));
    return outputs_check_input(&job->outputs, "--dout", o->dout);
}

static ra_status open_job(run_job *job) {
    CLI_RETURN_ON_ERROR(open_inputs(job));
    CLI_RETURN_ON_ERROR(find_problem(job));
    return find_outputs(job);
}

static void close_job(run_job *job) {
    outputs_discard(&job->outputs);
    npy_close(&job->q);
    npy_close(&job->k);
    npy_close(&job->v);
    npy_close(&job->dout);
}

/* ---- one rank -------------------------------------------------------------------------------------------------- */

typedef struct run_rank {
    run_job *job;
    ra_comm *comm;
    int rank, ranks;
    rank_arrays arrays;
    ra_options how; /* on this rank's device, which has arrays of its own */
    rank_arrays on_device;
    ra_plan *plan;
    double seconds[3]; /* plan, forward, backward */
    double said_at;    /* when rank 0, checking, last told the others that it is at work */
} run_rank;

/* What the passes work on. */
static const rank_arrays *worked_on(const run_rank *r) {
    return r->how.backend ? &r->on_device : &r->arrays;
}

static ra_status agree(const run_rank *r, ra_status mine) {
    return crew_agree(r->comm, mine, r->job->crew->timeout_seconds);
}

static void phase(const run_rank *r, const char *name) {
    if (r->rank == 0) progress_phase(name);
}

static ra_status read_arrays(run_rank *r) {
    const run_job *job = r->job;
    rank_arrays *a = &r->arrays;
    ra_dtype dtype = job->problem.dtype;
    r->how = job->how;
    CLI_RETURN_ON_ERROR(devices_choose(job->options, r->rank, &r->how));
    ra_options forward_only = r->how;
    forward_only.backward = 0;
    CLI_RETURN_ON_ERROR(arrays_create(&job->problem, &forward_only, r->ranks, r->rank, NULL, a));
    CLI_RETURN_ON_ERROR(rows_read(r->comm, &job->q, a->positions_q, a->rows_q, dtype, a->q));
    CLI_RETURN_ON_ERROR(rows_read(r->comm, &job->k, a->positions_k, a->rows_k, dtype, a->k));
    CLI_RETURN_ON_ERROR(rows_read(r->comm, &job->v, a->positions_k, a->rows_k, dtype, a->v));
    if (!r->how.backend) return RA_OK;
    CLI_RETURN_ON_ERROR(arrays_create(&job->problem, &forward_only, r->ranks, r->rank, r->how.backend, &r->on_device));
    return arrays_copy_inputs(&r->on_device, a);
}

/* When the output is written: dq may take its place. */
static ra_status read_dout(run_rank *r) {
    const run_job *job = r->job;
    CLI_RETURN_ON_ERROR(arrays_add_gradients(&job->problem, &r->arrays));
    CLI_RETURN_ON_ERROR(
        rows_read(r->comm, &job->dout, r->arrays.positions_q, r->arrays.rows_q, job->problem.dtype, r->arrays.dout));
    if (!r->how.backend) return RA_OK;
    CLI_RETURN_ON_ERROR(arrays_add_gradients(&job->problem, &r->on_device));
    return arrays_copy_inputs(&r->on_device, &r->arrays);
}

/* The ranks start each pass together, so that its time is its own. */
static ra_status compute_forward(run_rank *r) {
    ra_options how = r->how;
    how.layout = r->arrays.layout;
    double begin = timing_wall();
    CLI_RETURN_ON_ERROR(ra_plan_create(r->comm, &r->job->problem, &how, &r->plan));
    r->seconds[0] = timing_wall() - begin;

    phase(r, "forward");
    CLI_RETURN_ON_ERROR(agree(r, RA_OK));
    begin = timing_wall();
    ra_tensors tensors = arrays_tensors(worked_on(r));
    CLI_RETURN_ON_ERROR(ra_plan_forward(r->plan, &tensors, worked_on(r)->stream));
    CLI_RETURN_ON_ERROR(ra_plan_wait(r->plan, worked_on(r)->stream));
    r->seconds[1] = timing_wall() - begin;
    return r->how.backend ? arrays_copy_outputs(&r->arrays, &r->on_device) : RA_OK;
}

static ra_status compute_backward(run_rank *r) {
    phase(r, "backward");
    CLI_RETURN_ON_ERROR(agree(r, RA_OK));
    double begin = timing_wall();
    ra_gradients gradients = arrays_gradients(worked_on(r));
    CLI_RETURN_ON_ERROR(ra_plan_backward(r->plan, &gradients, worked_on(r)->stream));
    CLI_RETURN_ON_ERROR(ra_plan_wait(r->plan, worked_on(r)->stream));
    r->seconds[2] = timing_wall() - begin;
    return r->how.backend ? arrays_copy_outputs(&r->arrays, &r->on_device) : RA_OK;
}

/* Rank 0 makes the files, whose names every process learns before there are any: should it die, the others remove them.
 * Ranks of one process share its descriptors. */
static ra_status open_outputs(run_rank *r) {
    run_job *job = r->job;
    int first = r->rank == 0 || job->crew->processes; /* the first rank of its process */
    char token[OUTPUT_TOKEN_BYTES] = "";
    char *tokens = malloc((size_t)r->ranks * sizeof token);
    ra_status status = agree(r, tokens ? RA_OK : ra_fail(RA_ERR_MEMORY, "no memory for %d names", r->ranks));
    outputs_token(token);
    if (status == RA_OK) status = ra_comm_allgather(r->comm, token, sizeof token, tokens, job->crew->timeout_seconds);
    if (status == RA_OK) status = agree(r, first ? outputs_name(&job->outputs, tokens) : RA_OK);
    if (status == RA_OK) status = agree(r, r->rank == 0 ? outputs_create(&job->outputs) : RA_OK);
    if (status == RA_OK) status = agree(r, first && r->rank > 0 ? outputs_attach(&job->outputs) : RA_OK);
    free(tokens);
    return status;
}

static ra_status write_rows(ra_comm *comm, const output_file *file, const int64_t *positions, int64_t rows,
                            const void *data) {
    if (!file) return RA_OK;
    size_t row_bytes = (size_t)(file->shape[2] * file->shape[3]) * ra_dtype_bytes(file->dtype);
    return rows_write(comm, file->what, file->fd, file->data_offset, file->shape[0], file->shape[1], row_bytes,
                      positions, rows, data);
}

static ra_status write_gradients(const run_rank *r) {
    const run_job *job = r->job;
    const rank_arrays *a = &r->arrays;
    CLI_RETURN_ON_ERROR(write_rows(r->comm, job->dq, a->positions_q, a->rows_q, a->dq));
    CLI_RETURN_ON_ERROR(write_rows(r->comm, job->dk, a->positions_k, a->rows_k, a->dk));
    return write_rows(r->comm, job->dv, a->positions_k, a->rows_k, a->dv);
}

static ra_status write_outputs(const run_rank *r) {
    const run_job *job = r->job;
    const rank_arrays *a = &r->arrays;
    CLI_RETURN_ON_ERROR(write_rows(r->comm, job->out, a->positions_q, a->rows_q, a->o));
    const output_file *lse = job->lse;
    if (!lse) return RA_OK;
    return rows_write(r->comm, lse->what, lse->fd, lse->data_offset, lse->shape[0] * lse->shape[1], lse->shape[2],
                      ra_dtype_bytes(lse->dtype), a->positions_q, a->rows_q, a->lse);
}

static ra_status write_report(const output_file *file, const run_report *report) {
    int fd = dup(file->fd);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "w");
    if (!stream) {
        if (fd >= 0) close(fd);
        return ra_fail(CLI_FAILED, "--report: cannot write %s", file->path);
    }
    report_write(stream, report);
    int failed = ferror(stream);
    failed |= fclose(stream) != 0;
    return failed ? ra_fail(CLI_FAILED, "--report: writing %s failed", file->path) : RA_OK;
}

/* Between rows of a check, which may take longer than the deadline: the other ranks are told now and then. */
static ra_status say_at_work(void *user) {
    run_rank *r = user;
    double timeout = r->job->crew->timeout_seconds;
    if (timing_wall() < r->said_at + timeout / 4) return RA_OK;
    ra_status status = crew_at_work(r->comm, timeout);
    r->said_at = timing_wall();
    return status;
}

static ra_status check_sample(run_rank *r, int64_t rows, deviation *sum) {
    const run_job *job = r->job;
    r->said_at = timing_wall();
    CLI_RETURN_ON_ERROR(check_rows(&job->problem, &job->q, &job->k, &job->v, job->out, rows, say_at_work, r, sum));
    if (!deviation_within(sum, job->problem.dtype, 0))
        return ra_fail(CLI_FAILED, "--check: the output is off by %.3g (relative %.3g), out of tolerance for %s",
                       sum->max_abs, deviation_relative(sum), ra_dtype_name(job->problem.dtype));
    printf("checked %lld elements against fp64: max abs error %.3g, relative %.3g\n", (long long)sum->count,
           sum->max_abs, deviation_relative(sum));
    return fflush(stdout) == 0
               ? RA_OK
               : ra_fail(CLI_FAILED, "--check: standard output could not be written: %s", strerror(errno));
}

/* Rank 0, when every row of every file is written. */
static ra_status conclude(run_rank *r, const ra_plan_info *info, const rank_report *ranks) {
    run_job *job = r->job;
    deviation checked;
    run_report report = {.kernel = info->kernel,
                         .transport = ra_comm_transport(r->comm),
                         .device = info->device,
                         .strategy = info->strategy,
                         .layout = info->layout,
                         .dtype = job->problem.dtype,
                         .ranks = r->ranks,
                         .rank = ranks};
    int64_t rows = 0; /* the most that a rank was asked to check */
    for (int i = 0; i < r->ranks; ++i)
        if (ranks[i].check_rows > rows) rows = ranks[i].check_rows;
    if (rows) {
        phase(r, "checking");
        CLI_RETURN_ON_ERROR(check_sample(r, rows, &checked));
        report.checked = &checked;
    }
    if (job->report) CLI_RETURN_ON_ERROR(write_report(job->report, &report));
    return outputs_commit(&job->outputs);
}

/* The other processes stay until rank 0 has concluded: should it die meanwhile, they remove the files. */
static ra_status gather_and_conclude(run_rank *r) {
    ra_plan_info info;
    rank_report *ranks = malloc((size_t)r->ranks * sizeof *ranks);
    ra_status status = agree(r, ranks ? RA_OK : ra_fail(RA_ERR_MEMORY, "no memory for a report"));
    rank_report mine = {.array_bytes = r->arrays.bytes,
                        .check_rows = cli_list_at(r->job->options->check, 0, 0),
                        .seconds_plan = r->seconds[0],
                        .seconds_forward = r->seconds[1],
                        .seconds_backward = r->seconds[2]};
    if (status == RA_OK) status = report_gather(r->comm, r->plan, &mine, r->job->crew->timeout_seconds, ranks, &info);
    if (status == RA_OK && r->rank == 0) status = conclude(r, &info, ranks);
    free(ranks);
    return agree(r, status);
}

static ra_status run_stages(run_rank *r) {
    phase(r, "reading");
    CLI_RETURN_ON_ERROR(agree(r, read_arrays(r)));
    CLI_RETURN_ON_ERROR(agree(r, compute_forward(r)));
    phase(r, "writing");
    CLI_RETURN_ON_ERROR(open_outputs(r));
    CLI_RETURN_ON_ERROR(agree(r, write_outputs(r)));
    if (r->job->options->dout) {
        CLI_RETURN_ON_ERROR(agree(r, read_dout(r)));
        CLI_RETURN_ON_ERROR(agree(r, compute_backward(r)));
        phase(r, "writing");
        CLI_RETURN_ON_ERROR(agree(r, write_gradients(r)));
    }
    return gather_and_conclude(r);
}

static ra_status run_body(ra_comm *comm, void *user) {
    run_rank r = {.job = user, .comm = comm, .rank = ra_comm_rank(comm), .ranks = ra_comm_ranks(comm)};
    ra_status opened = r.job->opened;
    if (opened != RA_OK) ra_fail(opened, "%s", r.job->opened_error);
    ra_status status = request_agree(comm, r.job->options, opened, r.job->crew->timeout_seconds);
    if (status == RA_OK) status = run_stages(&r);
    ra_plan_destroy(r.plan);
    arrays_free(&r.on_device);
    arrays_free(&r.arrays);
    return status;
}

ra_status cli_run(const cli_options *options, cli_crew *crew) {
    run_job job = {.options = options, .crew = crew};
    job.opened = open_job(&job);
    ra_status status = job.opened;
    if (status != RA_OK) snprintf(job.opened_error, sizeof job.opened_error, "%s", ra_last_error());
    /* Another process may have opened its files: tell it, rather than leave it waiting. */
    if (status == RA_OK || crew->processes) {
        if (crew->process == 0) progress_begin("starting");
        status = crew_run(crew, job.one.ranks ? job.one.ranks : 1, run_body, &job);
        progress_end();
    }
    close_job(&job);
    return status;
}
