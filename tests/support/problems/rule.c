#include "support/problems/rule.h"

#include "core/problem.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers of which it is known how sure they are -------------------------------------------------------------- */

/* In the order in which they prevail in a sum. ANYTHING: the arithmetic may have overflowed, or an infinity may or may
 * not have met a weight of 0. */
typedef enum verdict { FINITE, ANYTHING, NOT_FINITE, NOT_A_NUMBER } verdict;

typedef struct term {
    verdict is;
    double value;
    double size; /* the sum of the sizes of what it is the sum of */
    double off;  /* by how much the value may be wrong, beside a rounding of size */
    double peak; /* size with weights of 1: what sums that are not normalised may reach */
} term;

static const term NOTHING = {FINITE, 0, 0, 0, 0};

static term term_of(double x) {
    if (isnan(x)) return (term){.is = NOT_A_NUMBER};
    if (isinf(x)) return (term){.is = NOT_FINITE};
    return (term){FINITE, x, fabs(x), 0, fabs(x)};
}

static void add(term *sum, term x) {
    sum->is = x.is > sum->is ? x.is : sum->is;
    sum->value += x.value;
    sum->size += x.size;
    sum->off += x.off;
    sum->peak += x.peak;
}

static term times(term a, term b) {
    return (term){a.is > b.is ? a.is : b.is, a.value * b.value, a.size * b.size,
                  a.off * b.size + b.off * a.size + a.off * b.off, a.peak * b.peak};
}

static term scaled(term x, double by) {
    return times(x, term_of(by));
}

static void cast_doubt(term *x) {
    if (x->is < ANYTHING) x->is = ANYTHING;
}

/* ---- the problem ------------------------------------------------------------------------------------------------- */

typedef struct ruling {
    const sweep_data *d;
    const ra_problem *p;
    double eps, most, tolerance, tiny; /* of the arithmetic: rounding, largest number, error of a sum, least weight */
    term *dq, *dk, *dv;                /* as the tensors */
    double *s, *error, *count; /* [seq_k]: a row's scores, by how much they may be wrong, how often each counts */
    term *weight;              /* [seq_k] */
    unsigned char *role;       /* [seq_k] */
    int failed;
} ruling;

/* What a key is to a row. */
enum { UNSEEN, SEEN, WEIGHT_0 /* seen, but its score is -inf */ };

/* One query row. */
typedef struct place {
    int64_t b, h, i;
    ra_document document;
    const double *q, *dout;
} place;

static const double *row_of(const double *x, int64_t rows, int64_t heads, int64_t dim, int64_t b, int64_t row,
                            int64_t h) {
    return x + ((b * rows + row) * heads + h) * dim;
}

static int64_t kv_head(const ruling *r, int64_t h) {
    return h / (r->p->heads_q / r->p->heads_kv);
}

static const double *key_at(const ruling *r, const place *at, int64_t j) {
    return row_of(r->d->k, r->p->seq_k, r->p->heads_kv, r->p->dim, at->b, j, kv_head(r, at->h));
}

static const double *value_at(const ruling *r, const place *at, int64_t j) {
    return row_of(r->d->v, r->p->seq_k, r->p->heads_kv, r->p->dim_v, at->b, j, kv_head(r, at->h));
}

static int64_t branch_of_head(const ra_problem *p, int64_t h) {
    int64_t base = p->heads_q / p->branches, extra = p->heads_q % p->branches;
    return h < extra * (base + 1) ? h / (base + 1) : extra + (h - extra * (base + 1)) / base;
}

static int keeps(const ra_problem *p, int64_t h, int64_t branch, int64_t t, int64_t u) {
    int64_t w = p->dilated[branch].segment, r = p->dilated[branch].rate, offset = branch % r;
    if (p->dilated_heads == RA_DILATED_GROUPS && branch_of_head(p, h) != branch) return 0;
    if (p->dilated_offset == RA_DILATED_HEAD) offset = h % r;
    if (p->dilated_offset == RA_DILATED_BLOCK) offset = h / ((p->heads_q + r - 1) / r);
    return t >= 0 && t / w == u / w && t % w % r == offset && u % w % r == offset;
}

/* How often key j counts in branches [from, to); in a dense problem, once where it is seen. */
static int64_t count_of(const ra_problem *p, const place *at, int64_t from, int64_t to, int64_t j) {
    const ra_document *d = &at->document;
    int64_t t = at->i - d->q1 + d->k1 - d->k0, u = j - d->k0, count = 0;
    if (p->causal && u > t) return 0;
    if (p->window_left >= 0 && u < t - p->window_left) return 0;
    if (p->window_right >= 0 && u > t + p->window_right) return 0;
    if (p->branches == 0) return 1;
    for (int64_t b = from; b < to; b++) count += keeps(p, at->h, b, t, u);
    return count;
}

/* ---- one softmax ------------------------------------------------------------------------------------------------- */

typedef struct softmax {
    verdict is; /* ANYTHING: a score may have overflowed */
    int empty;  /* no score above -inf */
    double lse;
    double error; /* of the score that is least known */
    int winner;   /* one key's weight is 1 and that of all others 0 */
} softmax;

/* s and error of one pair; returns whether the arithmetic may overflow on the way. */
static int score(const ruling *r, const place *at, int64_t j, int64_t count) {
    const double *k = key_at(r, at, j);
    double sum = 0, size = 0, scale = r->p->scale, largest = 0;
    for (int64_t d = 0; d < r->p->dim; d++) {
        double x = fabs(at->q[d] * k[d]);
        sum += at->q[d] * k[d];
        if (isfinite(x)) size += x;
        if (isfinite(at->q[d]) && fabs(at->q[d] * scale) > largest) largest = fabs(at->q[d] * scale);
    }
    r->s[j] = scale * sum + log((double)count);
    r->error[j] = fabs(scale) * size * (double)(r->p->dim + 4) * r->eps;
    return size > r->most || size * fabs(scale) > r->most || largest > r->most;
}

/* Whether the largest score, of key top, is so far above the others that no rounding matters. */
static int wins(const ruling *r, const place *at, int64_t top) {
    double far = -log(r->tiny) + 60;
    for (int64_t j = at->document.k0; j < at->document.k1; j++) {
        if (r->role[j] != SEEN) continue;
        if (j == top && r->count[j] > 1) return 0;
        if (j != top && !(r->s[j] + r->error[j] < r->s[top] - r->error[top] - far)) return 0;
    }
    return 1;
}

static softmax softmax_of(const ruling *r, const place *at, int64_t from, int64_t to) {
    softmax sm = {.empty = 1};
    int64_t top = -1;
    double sum = 0;
    for (int64_t j = at->document.k0; j < at->document.k1; j++) {
        int64_t count = count_of(r->p, at, from, to, j);
        r->role[j] = count ? SEEN : UNSEEN;
        r->count[j] = (double)count;
        if (!count) continue;
        int doubtful = score(r, at, j, count);
        if (isnan(r->s[j]) || (!doubtful && r->s[j] == INFINITY)) sm.is = NOT_A_NUMBER;
        if (doubtful && sm.is < ANYTHING) sm.is = ANYTHING;
        if (!doubtful && r->s[j] == -INFINITY) r->role[j] = WEIGHT_0;
        if (r->role[j] != SEEN) continue;
        sm.empty = 0;
        if (top < 0 || r->s[j] > r->s[top]) top = j;
        if (r->error[j] > sm.error) sm.error = r->error[j];
    }
    sm.lse = -INFINITY;
    if (sm.empty || sm.is != FINITE) return sm;
    for (int64_t j = at->document.k0; j < at->document.k1; j++)
        if (r->role[j] == SEEN) sum += exp(r->s[j] - r->s[top]);
    sm.lse = r->s[top] + log(sum);
    sm.winner = wins(r, at, top);
    return sm;
}

/* r->weight of every key that takes part. */
static void weigh(const ruling *r, const place *at, const softmax *sm) {
    double error = sm->winner ? 0 : 4 * (sm->error + fabs(sm->lse) * r->eps);
    for (int64_t j = at->document.k0; j < at->document.k1; j++) {
        if (r->role[j] == UNSEEN) continue;
        double p = sm->is == FINITE && r->role[j] == SEEN ? exp(r->s[j] - sm->lse) : 0;
        if (sm->winner) p = p > 0.5;
        double off = p > r->tiny ? p * error : p * (1 + error); /* what is least may be taken for 0 */
        r->weight[j] = (term){sm->is, p, p, off, r->count[j]};
        if (error > 0.05) r->weight[j].size = r->weight[j].off = r->count[j]; /* an lse cannot hold log(count) */
        if (r->role[j] == WEIGHT_0) r->weight[j] = (term){sm->is == FINITE ? FINITE : ANYTHING, 0, 0, 0, 0};
    }
}

/* Weight times x, where a weight that may be 0 leaves open whether what is not finite shows. */
static term weighted(const ruling *r, term weight, term x) {
    term product = times(weight, x);
    int sure = weight.is == FINITE && weight.off < 0.5 && weight.value > r->tiny;
    if (weight.is != NOT_A_NUMBER && x.is != FINITE && !sure) product.is = ANYTHING;
    if (product.peak > r->most) cast_doubt(&product);
    return product;
}

static term dot(const ruling *r, const double *x, const term *y, int64_t count) {
    term sum = NOTHING;
    for (int64_t d = 0; d < count; d++) add(&sum, times(term_of(x[d]), y[d]));
    if (sum.peak > r->most) cast_doubt(&sum);
    return sum;
}

/* own [dim_v] = the output of the softmax. */
static void output(const ruling *r, const place *at, const softmax *sm, term *own) {
    for (int64_t d = 0; d < r->p->dim_v; d++) {
        own[d] = NOTHING;
        if (sm->empty) continue;
        for (int64_t j = at->document.k0; j < at->document.k1; j++)
            if (r->role[j] != UNSEEN) add(&own[d], weighted(r, r->weight[j], term_of(value_at(r, at, j)[d])));
        if (own[d].peak > r->most) cast_doubt(&own[d]);
    }
}

/* sum += by * ds * x, where the factor may be applied last. An x that is not finite beside a ds that is not NaN comes
 * with a score of -inf: it may show or not. */
static void add_gradient(const ruling *r, term *sum, term ds, double x, double factor) {
    term product = times(ds, term_of(x));
    if (x - x != 0 && ds.is < NOT_FINITE) product.is = ANYTHING;
    if (product.peak > r->most || product.peak * fabs(factor) > r->most) cast_doubt(&product);
    add(sum, scaled(product, factor));
}

/* What one pair of a softmax adds to the gradients. */
static void differentiate(const ruling *r, const place *at, int64_t j, double fraction, term delta) {
    const ra_problem *p = r->p;
    const double *k = key_at(r, at, j), *v = value_at(r, at, j);
    int64_t row = (at->b * p->seq_k + j) * p->heads_kv + kv_head(r, at->h);
    term values[256], ds;
    for (int64_t d = 0; d < p->dim_v; d++) values[d] = term_of(v[d]);
    term difference = dot(r, at->dout, values, p->dim_v);
    add(&difference, scaled(delta, -1));
    ds = weighted(r, r->weight[j], difference);
    for (int64_t d = 0; d < p->dim_v; d++)
        add(&r->dv[row * p->dim_v + d], scaled(weighted(r, r->weight[j], term_of(at->dout[d])), fraction));
    term *dq = r->dq + ((at->b * p->seq_q + at->i) * p->heads_q + at->h) * p->dim;
    for (int64_t d = 0; d < p->dim; d++) {
        add_gradient(r, &dq[d], ds, k[d], fraction * p->scale);
        add_gradient(r, &r->dk[row * p->dim + d], ds, at->q[d], fraction * p->scale);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void put(const ruling *r, int out, int64_t i, term x) {
    if (x.peak > r->most) cast_doubt(&x);
    r->d->want[out][i] = x.is == NOT_A_NUMBER ? NAN : x.is == NOT_FINITE ? INFINITY : x.value;
    r->d->slack[out][i] = x.is == ANYTHING ? NAN : x.size * r->tolerance + x.off + r->tiny;
}

static void put_lse(const ruling *r, const place *at, const softmax *sm) {
    int64_t i = (at->b * r->p->heads_q + at->h) * r->p->seq_q + at->i;
    r->d->want[OUT_LSE][i] = sm->is == NOT_A_NUMBER ? NAN : sm->lse;
    r->d->slack[OUT_LSE][i] = sm->is == ANYTHING ? NAN
                              : sm->empty        ? 0
                                                 : 1e-5 + 2 * sm->error + 4 * fabs(sm->lse) * r->eps;
}

static void run_row(const ruling *r, const place *at) {
    const ra_problem *p = r->p;
    int mean = p->branches > 0 && p->dilated_combine == RA_DILATED_MEAN;
    int64_t softmaxes = mean ? p->branches : 1;
    double fraction = 1 / (double)softmaxes;
    term o[256], own[256];
    for (int64_t d = 0; d < p->dim_v; d++) o[d] = NOTHING;
    softmax all = softmax_of(r, at, 0, p->branches);
    put_lse(r, at, &all);
    for (int64_t n = 0; n < softmaxes; n++) {
        softmax sm = mean ? softmax_of(r, at, n, n + 1) : all;
        weigh(r, at, &sm);
        output(r, at, &sm, own);
        for (int64_t d = 0; d < p->dim_v; d++) add(&o[d], scaled(own[d], fraction));
        if (sm.empty) continue;
        term delta = dot(r, at->dout, own, p->dim_v);
        for (int64_t j = at->document.k0; j < at->document.k1; j++)
            if (r->role[j] != UNSEEN) differentiate(r, at, j, fraction, delta);
    }
    for (int64_t d = 0; d < p->dim_v; d++)
        put(r, OUT_O, ((at->b * p->seq_q + at->i) * p->heads_q + at->h) * p->dim_v + d, o[d]);
}

static void run_rows(const ruling *r) {
    const ra_problem *p = r->p;
    for (int64_t n = 0; n < p->documents; n++) {
        ra_document document = ra_problem_document(p, n);
        for (int64_t i = document.q0; i < document.q1; i++)
            for (int64_t bh = 0; bh < p->batch * p->heads_q; bh++) {
                int64_t b = bh / p->heads_q, h = bh % p->heads_q;
                place at = {b,
                            h,
                            i,
                            document,
                            row_of(r->d->q, p->seq_q, p->heads_q, p->dim, b, i, h),
                            row_of(r->d->dout, p->seq_q, p->heads_q, p->dim_v, b, i, h)};
                run_row(r, &at);
            }
    }
}

static void *allocate(ruling *r, int64_t count, size_t size) {
    void *memory = calloc((size_t)count + 1, size);
    r->failed |= !memory;
    return memory;
}

int rule_apply(sweep_data *d) {
    const ra_problem *p = &d->p;
    int is_double = p->dtype == RA_F64;
    ruling r = {.d = d, .p = p, .eps = is_double ? DBL_EPSILON : FLT_EPSILON};
    r.most = (is_double ? DBL_MAX : FLT_MAX) / 1e4;
    r.tiny = is_double ? 1e-290 : 1e-30;
    r.tolerance = is_double ? 1e-10 : p->dtype == RA_BF16 ? 0x1p-6 : 1e-4;
    int64_t rows_q = p->batch * p->seq_q * p->heads_q, rows_k = p->batch * p->seq_k * p->heads_kv;
    int64_t counts[OUT_COUNT] = {rows_q * p->dim_v, rows_q, rows_q * p->dim, rows_k * p->dim, rows_k * p->dim_v};
    for (int out = 0; out < OUT_COUNT; out++) d->slack[out] = allocate(&r, counts[out], sizeof(double));
    r.dq = allocate(&r, counts[OUT_DQ], sizeof(term));
    r.dk = allocate(&r, counts[OUT_DK], sizeof(term));
    r.dv = allocate(&r, counts[OUT_DV], sizeof(term));
    r.s = allocate(&r, p->seq_k, sizeof(double));
    r.error = allocate(&r, p->seq_k, sizeof(double));
    r.count = allocate(&r, p->seq_k, sizeof(double));
    r.weight = allocate(&r, p->seq_k, sizeof(term));
    r.role = allocate(&r, p->seq_k, 1);
    if (!r.failed) {
        run_rows(&r);
        for (int64_t i = 0; i < counts[OUT_DQ]; i++) put(&r, OUT_DQ, i, r.dq[i]);
        for (int64_t i = 0; i < counts[OUT_DK]; i++) put(&r, OUT_DK, i, r.dk[i]);
        for (int64_t i = 0; i < counts[OUT_DV]; i++) put(&r, OUT_DV, i, r.dv[i]);
    }
    void *all[] = {r.dq, r.dk, r.dv, r.s, r.error, r.count, r.weight, r.role};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    return !r.failed;
}
