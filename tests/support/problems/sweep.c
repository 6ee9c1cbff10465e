#include "support/problems/sweep.h"

#include "base/status.h"
#include "core/problem.h"
#include "support/rng.h"
#include "transport/comm_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- whole tensors ----------------------------------------------------------------------------------------------- */

static double *whole_tensor(const ra_problem *p, uint64_t seed, int64_t count, double size, int positive) {
    double *values = malloc((size_t)count * sizeof *values);
    unsigned char narrow[8];
    rng r = {seed};
    for (int64_t i = 0; values && i < count; i++) {
        double x = rng_normal(&r) * (size == 0 ? 1 : size);
        if (positive) x = fabs(x);
        ra_convert(p->dtype, narrow, RA_F64, &x, 1); /* what the kernels will see */
        ra_convert(RA_F64, &values[i], p->dtype, narrow, 1);
    }
    return values;
}

sweep_data *sweep_data_make(const test_case *c) {
    sweep_data *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->c = c;
    if (ra_problem_normalise(&c->problem, &d->p) != RA_OK) return free(d), NULL;
    const ra_problem *p = &d->p;
    int64_t rows_q = p->batch * p->seq_q * p->heads_q, rows_k = p->batch * p->seq_k * p->heads_kv;
    int64_t counts[OUT_COUNT] = {rows_q * p->dim_v, rows_q, rows_q * p->dim, rows_k * p->dim, rows_k * p->dim_v};
    d->q = whole_tensor(p, c->seed ^ 0x11, rows_q * p->dim, c->size_qk, c->positive);
    d->k = whole_tensor(p, c->seed ^ 0x2222, rows_k * p->dim, c->size_qk, c->positive);
    d->v = whole_tensor(p, c->seed ^ 0x333333, rows_k * p->dim_v, c->size_v, c->positive);
    d->dout = whole_tensor(p, c->seed ^ 0x44444444, rows_q * p->dim_v, c->size_v, c->positive);
    for (int i = 0; i < OUT_COUNT; i++) d->want[i] = calloc((size_t)counts[i], sizeof(double));
    ra_status status = ra_reference(p, d->q, d->k, d->v, d->dout, d->want[OUT_O], d->want[OUT_LSE], d->want[OUT_DQ],
                                    d->want[OUT_DK], d->want[OUT_DV]);
    if (status == RA_OK) return d;
    sweep_data_free(d);
    return NULL;
}

void sweep_data_free(sweep_data *d) {
    if (!d) return;
    free(d->q);
    free(d->k);
    free(d->v);
    free(d->dout);
    for (int i = 0; i < OUT_COUNT; i++) free(d->want[i]), free(d->slack[i]);
    free(d);
}

/* ---- one rank's tensors ------------------------------------------------------------------------------------------ */

/* A shard [batch, rows, heads, dim] in memory of its own, laid out as the case says. */
typedef struct shard_tensor {
    ra_tensor tensor;    /* in the backend's memory */
    unsigned char *host; /* what is filled and compared; the same memory on the CPU */
    ra_dtype dtype;
    int64_t batch, rows, heads, dim;
    size_t bytes;
} shard_tensor;

static ra_status shard_make(shard_tensor *t, const sweep_data *d, ra_dtype dtype, int64_t rows, int64_t heads,
                            int64_t dim) {
    *t = (shard_tensor){.dtype = dtype, .batch = d->p.batch, .rows = rows, .heads = heads, .dim = dim};
    int64_t *s = t->tensor.stride, elements = t->batch * rows * heads * dim;
    t->tensor.strided = d->c->strides != 0;
    if (d->c->strides == 1) {
        s[0] = heads * rows * dim, s[1] = dim, s[2] = rows * dim, s[3] = 1;
    } else if (d->c->strides == 2) { /* [batch, dim, rows, heads + 3] */
        s[1] = heads + 3, s[2] = 1, s[3] = rows * s[1], s[0] = dim * s[3];
        elements = t->batch * s[0];
    }
    t->bytes = (size_t)(elements + 1) * ra_dtype_bytes(dtype);
    t->host = malloc(t->bytes);
    if (!t->host) return ra_fail(RA_ERR_MEMORY, "no memory for a test tensor");
    memset(t->host, 0xff, t->bytes); /* NaN in every type: what is not written shows */
    t->tensor.data = t->host;
    return d->c->options.backend ? ra_backend_allocate(d->c->options.backend, t->bytes, &t->tensor.data) : RA_OK;
}

static ra_status shard_upload(const shard_tensor *t, const ra_backend *backend) {
    return backend ? ra_backend_copy(backend, t->tensor.data, t->host, t->bytes) : RA_OK;
}

static ra_status shard_download(const shard_tensor *t, const ra_backend *backend) {
    return backend ? ra_backend_copy(backend, t->host, t->tensor.data, t->bytes) : RA_OK;
}

static void shard_free(shard_tensor *t, const ra_backend *backend) {
    if (backend && t->tensor.data != t->host) ra_backend_release(backend, t->tensor.data);
    free(t->host);
}

static unsigned char *shard_at(const shard_tensor *t, int64_t b, int64_t row, int64_t h, int64_t x) {
    int64_t s[4];
    memcpy(s, t->tensor.stride, sizeof s);
    if (!t->tensor.strided) s[0] = t->rows * t->heads * t->dim, s[1] = t->heads * t->dim, s[2] = t->dim, s[3] = 1;
    return t->host + (b * s[0] + row * s[1] + h * s[2] + x * s[3]) * (int64_t)ra_dtype_bytes(t->dtype);
}

static void shard_fill(shard_tensor *t, const double *whole, int64_t n, const int64_t *positions) {
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t row = 0; row < t->rows; row++)
            for (int64_t h = 0; h < t->heads; h++)
                for (int64_t x = 0; x < t->dim; x++)
                    ra_convert(t->dtype, shard_at(t, b, row, h, x), RA_F64,
                               &whole[((b * n + positions[row]) * t->heads + h) * t->dim + x], 1);
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

typedef struct sums {
    double max_abs, difference, norm;
    int64_t wrong, count;
} sums;

static int breaks_rule(double got, double want, double slack) {
    if (isnan(slack)) return 0;
    if (isnan(want)) return !isnan(got);
    if (isinf(want)) return want < 0 ? got != want : isfinite(got);
    return !(fabs(got - want) <= slack);
}

static void compare(sums *s, const sweep_data *d, int out, int64_t i, double got) {
    double want = d->want[out][i];
    if (d->slack[out]) {
        int wrong = breaks_rule(got, want, d->slack[out][i]);
        if (wrong && !s->wrong)
            printf("output %d, element %lld: %g, wanted %g to %g\n", out, (long long)i, got, want, d->slack[out][i]);
        s->wrong += wrong;
        return;
    }
    if (isinf(want) || isnan(got) || isinf(got)) {
        s->wrong += !(got == want);
        return;
    }
    double e = fabs(got - want);
    if (e > s->max_abs) s->max_abs = e;
    s->difference += e * e;
    s->norm += want * want;
    s->count++;
}

static void compare_shard(sums *s, const shard_tensor *t, const sweep_data *d, int out, int64_t n,
                          const int64_t *positions) {
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t row = 0; row < t->rows; row++)
            for (int64_t h = 0; h < t->heads; h++)
                for (int64_t x = 0; x < t->dim; x++) {
                    double got;
                    ra_convert(RA_F64, &got, t->dtype, shard_at(t, b, row, h, x), 1);
                    compare(s, d, out, ((b * n + positions[row]) * t->heads + h) * t->dim + x, got);
                }
}

static uint64_t hash_bytes(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* ---- one rank ---------------------------------------------------------------------------------------------------- */

enum { T_Q, T_K, T_V, T_DOUT, T_O, T_DQ, T_DK, T_DV, T_LSE, T_COUNT };

typedef struct rank_run {
    const sweep_data *d;
    shard_tensor t[T_COUNT];
    const ra_backend *backend;
    void *stream;
    int64_t *positions_q, *positions_k;
    ra_plan_info info;
    ra_plan *plan;
} rank_run;

typedef struct rank_report {
    sums s[OUT_COUNT];
    int64_t traffic_differs;
    int64_t other_bits; /* the first repeat that gave others than the one before it; 0: none */
    uint64_t bits;
} rank_report;

static ra_status allocate(rank_run *r) {
    const ra_problem *p = &r->d->p;
    int64_t nq = r->info.rows_q, nk = r->info.rows_k;
    const struct {
        int64_t rows, heads, dim;
    } shape[T_COUNT] = {{nq, p->heads_q, p->dim},   {nk, p->heads_kv, p->dim},   {nk, p->heads_kv, p->dim_v},
                        {nq, p->heads_q, p->dim_v}, {nq, p->heads_q, p->dim_v},  {nq, p->heads_q, p->dim},
                        {nk, p->heads_kv, p->dim},  {nk, p->heads_kv, p->dim_v}, {0, 0, 0}};
    for (int i = 0; i < T_LSE; i++)
        RA_TRY(shard_make(&r->t[i], r->d, i >= T_O ? p->out_dtype : p->dtype, shape[i].rows, shape[i].heads,
                          shape[i].dim));
    RA_TRY(shard_make(&r->t[T_LSE], r->d, p->dtype == RA_F64 ? RA_F64 : RA_F32, nq, p->heads_q, 1));
    if (!r->d->c->strides) /* C-order of lse is [batch, heads, rows] */
        r->t[T_LSE].tensor = (ra_tensor){r->t[T_LSE].tensor.data, 1, {p->heads_q * nq, 1, nq, 1}};
    r->positions_q = malloc((size_t)(nq + 1) * 8);
    r->positions_k = malloc((size_t)(nk + 1) * 8);
    if (!r->positions_q || !r->positions_k) return ra_fail(RA_ERR_MEMORY, "no memory for a test");
    const int64_t *cu_k = p->cu_seqlens_k ? p->cu_seqlens_k : p->cu_seqlens_q;
    RA_TRY(ra_packed_positions(r->info.layout, p->seq_q, p->documents, p->cu_seqlens_q, r->info.ranks, r->info.rank,
                               r->positions_q));
    RA_TRY(
        ra_packed_positions(r->info.layout, p->seq_k, p->documents, cu_k, r->info.ranks, r->info.rank, r->positions_k));
    shard_fill(&r->t[T_Q], r->d->q, p->seq_q, r->positions_q);
    shard_fill(&r->t[T_K], r->d->k, p->seq_k, r->positions_k);
    shard_fill(&r->t[T_V], r->d->v, p->seq_k, r->positions_k);
    shard_fill(&r->t[T_DOUT], r->d->dout, p->seq_q, r->positions_q);
    for (int i = 0; i < T_COUNT; i++) RA_TRY(shard_upload(&r->t[i], r->backend));
    return RA_OK;
}

static ra_status run_once(rank_run *r) {
    ra_tensors t = RA_TENSORS_INIT;
    t.q = ra_as_input(r->t[T_Q].tensor), t.k = ra_as_input(r->t[T_K].tensor), t.v = ra_as_input(r->t[T_V].tensor);
    t.o = r->t[T_O].tensor;
    t.lse = r->t[T_LSE].tensor.data;
    if (r->d->c->strides) {
        const int64_t *s = r->t[T_LSE].tensor.stride;
        t.lse_strided = 1, t.lse_stride[0] = s[0], t.lse_stride[1] = s[2], t.lse_stride[2] = s[1];
    }
    RA_TRY(ra_plan_forward(r->plan, &t, r->stream));
    ra_gradients g = RA_GRADIENTS_INIT;
    g.q = t.q, g.k = t.k, g.v = t.v, g.o = ra_as_input(t.o);
    g.lse = t.lse, g.lse_strided = t.lse_strided, memcpy(g.lse_stride, t.lse_stride, sizeof g.lse_stride);
    g.dout = ra_as_input(r->t[T_DOUT].tensor);
    g.dq = r->t[T_DQ].tensor, g.dk = r->t[T_DK].tensor, g.dv = r->t[T_DV].tensor;
    RA_TRY(ra_plan_backward(r->plan, &g, r->stream));
    RA_TRY(ra_plan_wait(r->plan, r->stream));
    for (int i = T_O; i < T_COUNT; i++) RA_TRY(shard_download(&r->t[i], r->backend));
    return RA_OK;
}

static uint64_t hash_outputs(const rank_run *r) {
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = T_O; i < T_COUNT; i++) h = hash_bytes(h, r->t[i].host, r->t[i].bytes);
    return h;
}

static void measure(const rank_run *r, rank_report *report) {
    const sweep_data *d = r->d;
    const ra_problem *p = &d->p;
    compare_shard(&report->s[OUT_O], &r->t[T_O], d, OUT_O, p->seq_q, r->positions_q);
    compare_shard(&report->s[OUT_DQ], &r->t[T_DQ], d, OUT_DQ, p->seq_q, r->positions_q);
    compare_shard(&report->s[OUT_DK], &r->t[T_DK], d, OUT_DK, p->seq_k, r->positions_k);
    compare_shard(&report->s[OUT_DV], &r->t[T_DV], d, OUT_DV, p->seq_k, r->positions_k);
    for (int64_t bh = 0; bh < p->batch * p->heads_q; bh++)
        for (int64_t row = 0; row < r->info.rows_q; row++) {
            const shard_tensor *lse = &r->t[T_LSE];
            double got;
            ra_convert(RA_F64, &got, lse->dtype, shard_at(lse, bh / p->heads_q, row, bh % p->heads_q, 0), 1);
            compare(&report->s[OUT_LSE], d, OUT_LSE, bh * p->seq_q + r->positions_q[row], got);
        }
}

static int traffic_differs(const ra_traffic *t) {
    return t->bytes_sent != t->bytes_planned || t->messages_sent != t->messages_planned;
}

/* A rank that sees other bits goes on: the rest of the passes is collective, and the others would wait for it. */
static ra_status run_rank(rank_run *r, ra_comm *comm, int repeat, rank_report *report) {
    r->info = (ra_plan_info)RA_PLAN_INFO_INIT;
    RA_TRY(ra_backend_stream_create(r->backend, &r->stream));
    RA_TRY(ra_plan_create(comm, &r->d->c->problem, &r->d->c->options, &r->plan));
    RA_TRY(ra_plan_describe(r->plan, &r->info));
    RA_TRY(allocate(r));
    for (int i = 0; i < repeat; i++) {
        RA_TRY(run_once(r));
        uint64_t bits = hash_outputs(r);
        if (i > 0 && bits != report->bits && !report->other_bits) report->other_bits = i;
        report->bits = bits;
    }
    RA_TRY(ra_plan_describe(r->plan, &r->info));
    report->traffic_differs = traffic_differs(&r->info.forward) || traffic_differs(&r->info.backward);
    measure(r, report);
    return RA_OK;
}

static void free_run(rank_run *r) {
    ra_plan_destroy(r->plan);
    for (int i = 0; i < T_COUNT; i++) shard_free(&r->t[i], r->backend);
    ra_backend_stream_destroy(r->backend, r->stream);
    free(r->positions_q);
    free(r->positions_k);
}

static ra_status check_bits(const rank_report *all, int ranks) {
    for (int r = 0; r < ranks; r++)
        if (all[r].other_bits)
            return ra_fail(RA_ERR_INTERNAL, "repeat %d gave other bits on rank %d", (int)all[r].other_bits, r);
    return RA_OK;
}

static void add_reports(const rank_report *all, int ranks, sweep_result *result) {
    double difference[OUT_COUNT] = {0}, norm[OUT_COUNT] = {0}, count[OUT_COUNT] = {0};
    for (int r = 0; r < ranks; r++) {
        result->traffic_differs += (int)all[r].traffic_differs;
        result->bits = hash_bytes(result->bits, &all[r].bits, sizeof all[r].bits);
        for (int i = 0; i < OUT_COUNT; i++) {
            const sums *s = &all[r].s[i];
            if (s->max_abs > result->max_abs[i]) result->max_abs[i] = s->max_abs;
            result->wrong_infinities += (int)s->wrong;
            difference[i] += s->difference;
            norm[i] += s->norm;
            count[i] += (double)s->count;
        }
    }
    for (int i = 0; i < OUT_COUNT; i++) {
        result->relative[i] = norm[i] > 0 ? sqrt(difference[i] / norm[i]) : sqrt(difference[i]);
        result->size[i] = count[i] > 0 ? sqrt(norm[i] / count[i]) : 0;
    }
}

ra_status sweep_run(ra_comm *comm, const sweep_data *data, int repeat, sweep_result *result_out) {
    rank_run run = {.d = data, .backend = data->c->options.backend};
    rank_report mine = {0};
    int ranks = ra_comm_ranks(comm);
    ra_status status = run_rank(&run, comm, repeat, &mine);
    rank_report *all = calloc((size_t)ranks, sizeof *all);
    if (status == RA_OK && !all) status = ra_fail(RA_ERR_MEMORY, "no memory for a test");
    if (status == RA_OK) status = ra_comm_allgather(comm, &mine, sizeof mine, all, data->c->options.timeout_seconds);
    if (status == RA_OK) {
        *result_out = (sweep_result){.info = run.info};
        add_reports(all, ranks, result_out);
        status = check_bits(all, ranks);
    }
    free(all);
    free_run(&run);
    return status;
}

typedef struct thread_sweep {
    const sweep_data *data;
    int repeat, apart;
    sweep_result *result_out;
} thread_sweep;

static ra_status sweep_body(ra_comm *comm, void *user) {
    thread_sweep *sweep = user;
    sweep_result mine;
    if (sweep->apart) comm->memory_ops = NULL;
    RA_TRY(sweep_run(comm, sweep->data, sweep->repeat, &mine));
    if (ra_comm_rank(comm) == 0) *sweep->result_out = mine;
    return RA_OK;
}

ra_status sweep_threads(int ranks, const sweep_data *data, int repeat, sweep_result *result_out) {
    thread_sweep sweep = {data, repeat, 0, result_out};
    return ra_run_threads(ranks, sweep_body, &sweep);
}

ra_status sweep_threads_apart(int ranks, const sweep_data *data, int repeat, sweep_result *result_out) {
    thread_sweep sweep = {data, repeat, 1, result_out};
    return ra_run_threads(ranks, sweep_body, &sweep);
}

double sweep_worst_abs(const sweep_result *result) {
    double worst = 0;
    for (int i = 0; i < OUT_COUNT; i++)
        if (result->max_abs[i] > worst) worst = result->max_abs[i];
    return worst;
}

double sweep_worst_relative(const sweep_result *result) {
    double worst = 0;
    for (int i = 0; i < OUT_COUNT; i++)
        if (result->relative[i] > worst) worst = result->relative[i];
    return worst;
}
