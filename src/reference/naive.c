/* The definition of what is computed, in doubles, for checking everything else: no blocks, no running maximum, no
 * spans. It shares nothing with the planner or the kernels, not even the arithmetic of the masks.
 *
 *   q [batch, seq_q, heads_q, dim]   k [batch, seq_k, heads_kv, dim]   v [batch, seq_k, heads_kv, dim_v]
 */
#include "base/status.h"
#include "core/problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One query row, and the keys and values of its batch and head. */
typedef struct query {
    const ra_problem *problem; /* every default filled in */
    const double *k, *v;       /* first row of this batch and of the key/value head that h reads */
    int64_t i;
    ra_document document; /* that i stands in */
    const double *row;    /* [dim] */
} query;

static int64_t key_stride(const ra_problem *problem) {
    return problem->heads_kv * problem->dim;
}

static int64_t value_stride(const ra_problem *problem) {
    return problem->heads_kv * problem->dim_v;
}

/* Where row i of head h of batch b starts in [batch, seq_q, heads_q, dim]. */
static int64_t query_offset(const ra_problem *problem, int64_t b, int64_t i, int64_t h, int64_t dim) {
    return ((b * problem->seq_q + i) * problem->heads_q + h) * dim;
}

/* Where head h's key/value head starts in [batch, seq_k, heads_kv, dim]. */
static int64_t key_offset(const ra_problem *problem, int64_t b, int64_t h, int64_t dim) {
    int64_t group = h / (problem->heads_q / problem->heads_kv);
    return (b * problem->seq_k * problem->heads_kv + group) * dim;
}

static ra_document document_of(const ra_problem *problem, int64_t i) {
    int64_t d = 0;
    while (ra_problem_document(problem, d).q1 <= i) d++;
    return ra_problem_document(problem, d);
}

/* Both counted from the start of their document; the last query is aligned with the last key. */
static int sees(const query *row, int64_t j) {
    const ra_problem *problem = row->problem;
    const ra_document *document = &row->document;
    int64_t queries = document->q1 - document->q0, keys = document->k1 - document->k0;
    int64_t aligned = row->i - document->q0 + keys - queries;
    int64_t ahead = j - document->k0 - aligned;
    if (problem->causal && ahead > 0) return 0;
    if (problem->window_left >= 0 && ahead < -problem->window_left) return 0;
    if (problem->window_right >= 0 && ahead > problem->window_right) return 0;
    return 1;
}

/* Four sums side by side: one would wait for itself at every step. */
static double dot(const double *x, const double *y, int64_t count) {
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (int lane = 0; lane < 4; lane++) sum[lane] += x[i + lane] * y[i + lane];
    for (; i < count; i++) sum[0] += x[i] * y[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void add_times(double *to, double by, const double *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += by * x[i];
}

/* s [seq_k] = the row's scores, -inf where it does not see; only its document's keys are written. Returns their lse. */
static double scores(const query *row, double *s) {
    const ra_problem *problem = row->problem;
    double most = -INFINITY, sum = 0;
    for (int64_t j = row->document.k0; j < row->document.k1; j++) {
        s[j] = -INFINITY;
        if (sees(row, j)) s[j] = problem->scale * dot(row->row, row->k + j * key_stride(problem), problem->dim);
        most = s[j] > most ? s[j] : most;
    }
    double base = isfinite(most) ? most : 0;
    for (int64_t j = row->document.k0; j < row->document.k1; j++) sum += exp(s[j] - base);
    return log(sum) + base;
}

/* s becomes p; o [dim_v] and lse of the row. */
static void attend(const query *row, double *s, double *o_out, double *lse_out) {
    const ra_problem *problem = row->problem;
    double lse = scores(row, s);
    memset(o_out, 0, (size_t)problem->dim_v * sizeof *o_out);
    for (int64_t j = row->document.k0; j < row->document.k1; j++) {
        s[j] = isfinite(lse) && s[j] > -INFINITY ? exp(s[j] - lse) : 0;
        if (s[j] != 0) add_times(o_out, s[j], row->v + j * value_stride(problem), problem->dim_v);
    }
    *lse_out = lse;
}

/* What one row adds to the gradients. p [seq_k]; dout, o [dim_v]; dq [dim]; dk, dv: as k and v in the query. */
static void differentiate(const query *row, const double *p, const double *dout, const double *o, double *dq,
                          double *dk, double *dv) {
    const ra_problem *problem = row->problem;
    double delta = dot(dout, o, problem->dim_v);
    for (int64_t j = row->document.k0; j < row->document.k1; j++) {
        if (p[j] == 0) continue;
        double ds = p[j] * (dot(dout, row->v + j * value_stride(problem), problem->dim_v) - delta);
        add_times(dv + j * value_stride(problem), p[j], dout, problem->dim_v);
        add_times(dq, problem->scale * ds, row->k + j * key_stride(problem), problem->dim);
        add_times(dk + j * key_stride(problem), problem->scale * ds, row->row, problem->dim);
    }
}

static query query_at(const ra_problem *problem, const double *q, const double *k, const double *v, int64_t b,
                      int64_t h, int64_t i) {
    query row = {.problem = problem,
                 .k = k + key_offset(problem, b, h, problem->dim),
                 .v = v + key_offset(problem, b, h, problem->dim_v),
                 .i = i,
                 .document = document_of(problem, i),
                 .row = q + query_offset(problem, b, i, h, problem->dim)};
    return row;
}

static ra_status make_scores(const ra_problem *problem, double **s_out) {
    *s_out = malloc((size_t)problem->seq_k * sizeof **s_out);
    if (!*s_out) return ra_fail(RA_ERR_MEMORY, "no memory for a row of %lld scores", (long long)problem->seq_k);
    return RA_OK;
}

ra_status ra_reference_row(const ra_problem *problem, const double *q, const double *k, const double *v, int64_t b,
                           int64_t h, int64_t i, double *o_out, double *lse_out) {
    ra_problem normal;
    double *s;
    RA_TRY(ra_problem_normalise(problem, &normal));
    if (!q || !k || !v || !o_out || !lse_out) RA_REFUSE("ra_reference_row needs q, k, v, o_out and lse_out, not NULL");
    if (b < 0 || b >= normal.batch || h < 0 || h >= normal.heads_q || i < 0 || i >= normal.seq_q)
        RA_REFUSE("ra_reference_row: there is no query %lld of head %lld of batch %lld in this problem", (long long)i,
                  (long long)h, (long long)b);
    RA_TRY(make_scores(&normal, &s));
    query row = query_at(&normal, q, k, v, b, h, i);
    attend(&row, s, o_out, lse_out);
    free(s);
    return RA_OK;
}

static void clear(double *x, int64_t batch, int64_t rows, int64_t heads, int64_t dim) {
    memset(x, 0, (size_t)(batch * rows * heads * dim) * sizeof *x);
}

ra_status ra_reference(const ra_problem *problem, const double *q, const double *k, const double *v, const double *dout,
                       double *o_out, double *lse_out, double *dq_out, double *dk_out, double *dv_out) {
    ra_problem p;
    double *s;
    RA_TRY(ra_problem_normalise(problem, &p));
    if (!q || !k || !v || !o_out || !lse_out) RA_REFUSE("ra_reference needs q, k, v, o_out and lse_out, not NULL");
    if (dout && (!dq_out || !dk_out || !dv_out))
        RA_REFUSE("ra_reference: dout is given, so dq_out, dk_out and dv_out must not be NULL");
    RA_TRY(make_scores(&p, &s));
    if (dout) {
        clear(dq_out, p.batch, p.seq_q, p.heads_q, p.dim);
        clear(dk_out, p.batch, p.seq_k, p.heads_kv, p.dim);
        clear(dv_out, p.batch, p.seq_k, p.heads_kv, p.dim_v);
    }
    for (int64_t index = 0; index < p.batch * p.heads_q * p.seq_q; index++) {
        int64_t i = index % p.seq_q, h = index / p.seq_q % p.heads_q, b = index / p.seq_q / p.heads_q;
        int64_t at_o = query_offset(&p, b, i, h, p.dim_v);
        query row = query_at(&p, q, k, v, b, h, i);
        attend(&row, s, o_out + at_o, &lse_out[index]);
        if (dout)
            differentiate(&row, s, dout + at_o, o_out + at_o, dq_out + query_offset(&p, b, i, h, p.dim),
                          dk_out + key_offset(&p, b, h, p.dim), dv_out + key_offset(&p, b, h, p.dim_v));
    }
    free(s);
    return RA_OK;
}
