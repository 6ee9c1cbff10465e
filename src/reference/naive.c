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
    int64_t h;
    const ra_problem *problem; /* every default filled in */
    const double *k, *v;       /* first row of this batch and of the key/value head that h reads */
    int64_t i;
    ra_document document; /* that i stands in */
    int64_t from, to;  /* the document's keys that the mask, without dilation, lets it see: others are not looked at */
    const double *row; /* [dim] */
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

/* The first document that ends behind query i. */
static ra_document document_of(const ra_problem *problem, int64_t i) {
    int64_t first = 0, last = problem->documents - 1;
    while (first < last) {
        int64_t middle = first + (last - first) / 2;
        if (ra_problem_document(problem, middle).q1 <= i)
            first = middle + 1;
        else
            last = middle;
    }
    return ra_problem_document(problem, first);
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

/* The keys for which sees() holds are the run [from, to), so that a window costs what it shows and not the document. */
static void find_run(query *row) {
    const ra_problem *problem = row->problem;
    const ra_document *document = &row->document;
    int64_t keys = document->k1 - document->k0, aligned = row->i - document->q1 + keys;
    int64_t first = 0, end = keys;
    if (problem->window_left >= 0 && problem->window_left < aligned) first = aligned - problem->window_left;
    if (problem->window_right >= 0 && problem->window_right < end - 1 - aligned)
        end = aligned + problem->window_right + 1;
    if (problem->causal && aligned < end - 1) end = aligned + 1;
    row->from = document->k0 + first;
    row->to = document->k0 + end;
}

/* The branch whose group of heads h is in: the first heads % branches groups have one more. */
static int64_t branch_of(const ra_problem *problem, int64_t h) {
    int64_t base = problem->heads_q / problem->branches, extra = problem->heads_q % problem->branches, start = 0;
    for (int64_t b = 0; b < problem->branches; b++) {
        start += base + (b < extra);
        if (h < start) return b;
    }
    return problem->branches;
}

static int64_t offset_of(const ra_problem *problem, int64_t h, int64_t b, int64_t rate) {
    if (problem->dilated_offset == RA_DILATED_HEAD) return h % rate;
    if (problem->dilated_offset == RA_DILATED_BLOCK) return h / ((problem->heads_q + rate - 1) / rate);
    return b % rate;
}

/* Whether branch b of a dilated problem keeps the pair, whatever the mask says: t and u, counted from the document's
 * first key, in one segment and both kept. */
static int branch_keeps(const query *row, int64_t b, int64_t j) {
    const ra_problem *problem = row->problem;
    int64_t w = problem->dilated[b].segment, r = problem->dilated[b].rate;
    int64_t o = offset_of(problem, row->h, b, r);
    int64_t t = row->i - row->document.q1 + row->document.k1 - row->document.k0, u = j - row->document.k0;
    if (problem->dilated_heads == RA_DILATED_GROUPS && branch_of(problem, row->h) != b) return 0;
    return t >= 0 && t / w == u / w && t % w % r == o && u % w % r == o;
}

/* The first key from j on that a branch keeps, or row->to. In a dense problem that is j. */
static int64_t key_from(const query *row, int64_t j) {
    const ra_problem *problem = row->problem;
    int64_t nearest = row->to, t = row->i - row->document.q1 + row->document.k1 - row->document.k0;
    if (problem->branches == 0) return j;
    for (int64_t b = 0; b < problem->branches && t >= 0; b++) {
        int64_t w = problem->dilated[b].segment, r = problem->dilated[b].rate;
        int64_t start = row->document.k0 + t / w * w, key = start + offset_of(problem, row->h, b, r);
        if (j > key) key += (j - key + r - 1) / r * r;
        if (key < nearest && key < row->to && branch_keeps(row, b, key)) nearest = key;
    }
    return nearest;
}

/* How many times a pair counts: once in a dense problem, else in each of the branches [from, to) that keeps it. */
static int64_t count_of(const query *row, int64_t from, int64_t to, int64_t j) {
    int64_t count = 0;
    if (!sees(row, j)) return 0;
    if (row->problem->branches == 0) return 1;
    for (int64_t b = from; b < to; b++) count += branch_keeps(row, b, j);
    return count;
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

/* s [seq_k] = the row's scores plus the logarithm of how often each counts in branches [from, to), -inf where never;
 * only keys that some branch keeps are written. Returns their lse: -inf where there is no score above it, NaN where one
 * is NaN or +inf. */
static double scores(const query *row, int64_t from, int64_t to, double *s) {
    const ra_problem *problem = row->problem;
    double most = -INFINITY, sum = 0;
    for (int64_t j = key_from(row, row->from); j < row->to; j = key_from(row, j + 1)) {
        int64_t count = count_of(row, from, to, j);
        s[j] = -INFINITY;
        if (count) s[j] = problem->scale * dot(row->row, row->k + j * key_stride(problem), problem->dim);
        if (count > 1) s[j] += log((double)count);
        most = s[j] > most ? s[j] : most;
    }
    double base = most == -INFINITY ? 0 : most;
    for (int64_t j = key_from(row, row->from); j < row->to; j = key_from(row, j + 1)) sum += exp(s[j] - base);
    return sum == 0 ? -INFINITY : log(sum) + base;
}

/* Stands for the p of a key that takes no part: one that is not seen, or whose score is -inf. */
#define NO_PART (-1.0)

/* s becomes p; o [dim_v] += weight times the output of one softmax, which is left in own [dim_v]. */
static void soften(const query *row, double lse, double weight, double *s, double *own, double *o) {
    const ra_problem *problem = row->problem;
    memset(own, 0, (size_t)problem->dim_v * sizeof *own);
    for (int64_t j = key_from(row, row->from); j < row->to; j = key_from(row, j + 1)) {
        s[j] = s[j] == -INFINITY ? NO_PART : exp(s[j] - lse);
        if (s[j] != NO_PART) add_times(own, s[j], row->v + j * value_stride(problem), problem->dim_v);
    }
    add_times(o, weight, own, problem->dim_v);
}

/* What one softmax of a row adds to the gradients. p [seq_k]; dout, own [dim_v]; dq [dim]; dk, dv: as k and v. */
static void differentiate(const query *row, const double *p, double weight, const double *dout, const double *own,
                          double *dq, double *dk, double *dv) {
    const ra_problem *problem = row->problem;
    double delta = dot(dout, own, problem->dim_v);
    for (int64_t j = key_from(row, row->from); j < row->to; j = key_from(row, j + 1)) {
        if (p[j] == NO_PART) continue;
        double ds = weight * p[j] * (dot(dout, row->v + j * value_stride(problem), problem->dim_v) - delta);
        add_times(dv + j * value_stride(problem), weight * p[j], dout, problem->dim_v);
        add_times(dq, problem->scale * ds, row->k + j * key_stride(problem), problem->dim);
        add_times(dk + j * key_stride(problem), problem->scale * ds, row->row, problem->dim);
    }
}

/* Where a row's gradients go; dout NULL: none are wanted. */
typedef struct gradients {
    const double *dout;
    double *dq, *dk, *dv;
} gradients;

/* One row: a softmax over everything, or each branch its own and then their mean. */
static void attend(const query *row, double *s, double *o_out, double *lse_out, gradients g) {
    const ra_problem *problem = row->problem;
    int mean = problem->branches > 0 && problem->dilated_combine == RA_DILATED_MEAN;
    int64_t softmaxes = mean ? problem->branches : 1;
    double own[RA_MAX_DIM], weight = mean ? 1 / (double)problem->branches : 1;
    memset(o_out, 0, (size_t)problem->dim_v * sizeof *o_out);
    *lse_out = scores(row, 0, problem->branches, s);
    for (int64_t i = 0; i < softmaxes; i++) {
        double lse = mean ? scores(row, i, i + 1, s) : *lse_out;
        soften(row, lse, weight, s, own, o_out);
        if (g.dout) differentiate(row, s, weight, g.dout, own, g.dq, g.dk, g.dv);
    }
}

static query query_at(const ra_problem *problem, const double *q, const double *k, const double *v, int64_t b,
                      int64_t h, int64_t i) {
    query row = {.problem = problem,
                 .h = h,
                 .k = k + key_offset(problem, b, h, problem->dim),
                 .v = v + key_offset(problem, b, h, problem->dim_v),
                 .i = i,
                 .document = document_of(problem, i),
                 .row = q + query_offset(problem, b, i, h, problem->dim)};
    find_run(&row);
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
    if (!q || !k || !v || !o_out || !lse_out)
        return ra_refuse("ra_reference_row needs q, k, v, o_out and lse_out, not NULL");
    if (b < 0 || b >= normal.batch || h < 0 || h >= normal.heads_q || i < 0 || i >= normal.seq_q)
        return ra_refuse("ra_reference_row: there is no query %lld of head %lld of batch %lld in this problem",
                         (long long)i, (long long)h, (long long)b);
    RA_TRY(make_scores(&normal, &s));
    query row = query_at(&normal, q, k, v, b, h, i);
    attend(&row, s, o_out, lse_out, (gradients){0});
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
    if (!q || !k || !v || !o_out || !lse_out)
        return ra_refuse("ra_reference needs q, k, v, o_out and lse_out, not NULL");
    if (dout && (!dq_out || !dk_out || !dv_out))
        return ra_refuse("ra_reference: dout is given, so dq_out, dk_out and dv_out must not be NULL");
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
        gradients g = {0};
        if (dout)
            g = (gradients){dout + at_o, dq_out + query_offset(&p, b, i, h, p.dim),
                            dk_out + key_offset(&p, b, h, p.dim), dv_out + key_offset(&p, b, h, p.dim_v)};
        attend(&row, s, o_out + at_o, &lse_out[index], g);
    }
    free(s);
    return RA_OK;
}
