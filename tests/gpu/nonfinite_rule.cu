/* The rule of gpu_nonfinite.cu, pair by pair in doubles, and whether outputs are as it says. */
#include "nonfinite_problems.h"

#include <algorithm>
#include <cmath>
#include <cstring>

/* ---- what is wanted ---------------------------------------------------------------------------------------------- */

/* An element of an output: a sum of terms. */
struct wanted {
    double sum, size, least; /* size: sum of the terms' sizes; least: what each may lose in a narrow type */
    bool spoiled;            /* a term is not finite */
    bool rough;              /* terms are known to be finite, and no more */
    bool open;               /* it may be anything */
};

struct tolerances {
    double term;  /* relative error of a term */
    double score; /* of a score, relative to the sizes of its terms */
    double least; /* weights and dS below this may be lost */
    double most;  /* above this dS may overflow */
};

static tolerances tolerances_of(const problem &p) {
    bool tf32 = p.shape.dtype == RA_F32 && strcmp(kernel->name, "cuda_tf32") == 0;
    switch (p.shape.dtype) {
    case RA_F64:
        return {1e-10, 1e-14, 1e-300, 1e300};
    case RA_BF16:
        return {1.2e-2, 1e-6, 1e-36, 1e36};
    case RA_F16:
        return {2e-3, 1e-6, 1.2e-7, 3e4};
    default:
        return {tf32 ? 6e-3 : 4e-5, tf32 ? 2e-3 : 1e-6, 1e-36, 1e36};
    }
}

static double dot(const tensor &x, int64_t i, int64_t h, const tensor &y, int64_t j, int64_t g, double *size_out) {
    double sum = 0, size = 0;
    for (int64_t d = 0; d < x.dim; d++) {
        double term = x.at(i, h, d) * y.at(j, g, d);
        sum += term;
        size += std::fabs(term);
    }
    *size_out = size;
    return sum;
}

static void add(wanted *to, double weight, double x, double size, const tolerances &t, bool rough, bool overflows) {
    double term = weight * x;
    to->spoiled |= !std::isfinite(term);
    to->rough |= rough;
    to->open |= overflows;
    if (!std::isfinite(term)) return;
    to->sum += term;
    to->size += size * std::fabs(x);
    to->least += t.least * std::fabs(x);
}

struct score {
    double s;     /* as it is rounded */
    double error; /* what it may be off by */
    double times; /* the pair counts so often */
    bool visible, part, overflows;
};

static score score_of(const problem &p, int64_t i, int64_t h, int64_t j, const tolerances &t) {
    score x = {};
    double size;
    x.visible = j - i >= p.lo && j - i <= p.hi;
    if (!x.visible) return x;
    double scale = p.shape.scale;
    double exact = scale * dot(p.q, i, h, p.k, j, h / (p.shape.heads_q / p.shape.heads_kv), &size);
    x.s = p.acc == RA_F64 ? exact : (double)(float)exact;
    x.overflows = p.acc != RA_F64 && std::isfinite(size) && std::max(size, size * std::fabs(scale)) > 1e37;
    x.error = std::isfinite(size) && !p.whole_scores ? size * std::fabs(scale) * t.score : 0;
    x.part = x.s != -INFINITY;
    x.times = 1 + p.tiles[p.calls > 1 && j >= p.split].extra;
    return x;
}

/* Everything about one query row of one head. */
struct row_case {
    std::vector<score> scores;
    double most, sum, lse, error; /* sum: of e^{s - most} */
    bool nothing, spoiled, open;
};

static row_case row_of(const problem &p, int64_t i, int64_t h, const tolerances &t) {
    row_case row = {{}, -INFINITY, 0, -INFINITY, 0, true, false, false};
    for (int64_t j = 0; j < p.keys; j++) {
        score x = score_of(p, i, h, j, t);
        row.scores.push_back(x);
        if (!x.visible) continue;
        row.open |= x.overflows;
        if (!x.part) continue;
        row.nothing = false;
        row.spoiled |= !std::isfinite(x.s);
        row.most = std::max(row.most, x.s);
        row.error = std::max(row.error, x.error);
    }
    for (const score &x : row.scores)
        if (x.visible && x.part) row.sum += x.times * std::exp(x.s - row.most);
    if (row.spoiled)
        row.lse = NAN;
    else if (!row.nothing)
        row.lse = row.most + std::log(row.sum);
    return row;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static int told;

static int wrong(const problem &p, const char *what, int64_t row, int64_t h, int64_t d, double got, const wanted &w) {
    if (told++ < 20)
        fprintf(stderr,
                "%s %s, seed %u, dim %d, %d, rows %d, keys %d: %s [%d, %d, %d] is %g, not %s (%g of terms of %g)\n",
                kernel->name, ra_dtype_name(p.shape.dtype), p.seed, (int)p.shape.dim, (int)p.shape.dim_v,
                (int)p.shape.rows_q, (int)p.keys, what, (int)row, (int)h, (int)d, got,
                w.spoiled ? "NaN or infinite"
                : w.rough ? "finite"
                          : "right",
                w.sum, w.size);
    return 1;
}

static int compare(const problem &p, const char *what, int64_t row, int64_t h, int64_t d, double got, const wanted &w,
                   double relative) {
    if (w.open || w.size > 1e37) return 0;
    bool good = w.spoiled ? !std::isfinite(got)
                : w.rough ? std::isfinite(got)
                          : std::fabs(got - w.sum) <= relative * w.size + w.least;
    return good ? 0 : wrong(p, what, row, h, d, got, w);
}

/* The forward pass of a row: lse, o, delta. */
static int check_row(const problem &p, const results &got, const row_case &row, int64_t i, int64_t h,
                     const tolerances &t) {
    const ra_shape &s = p.shape;
    int64_t g = h / (s.heads_q / s.heads_kv);
    double lse = got.lse[(size_t)(h * s.rows_q + i)];
    wanted l = {row.lse, std::fabs(row.lse), 0, row.spoiled, false, row.open};
    if (row.open) return 0;
    if (row.nothing ? lse != -INFINITY : row.spoiled ? !std::isnan(lse) : false)
        return wrong(p, "lse", i, h, 0, lse, l);
    if (row.nothing || row.spoiled) l.open = true;
    l.least = 5e-6 + row.error;
    int bad = compare(p, "lse", i, h, 0, lse, l, t.term < 1e-9 ? 1e-13 : 4e-7);
    wanted delta = {};
    for (int64_t d = 0; d < s.dim_v; d++) {
        wanted o = {};
        double most = 0;
        for (int64_t j = 0; j < p.keys; j++) {
            const score &x = row.scores[(size_t)j];
            double v = p.v.at(j, g, d);
            if (!x.visible) continue;
            o.open |= !x.part && !std::isfinite(v);
            double weight = row.spoiled ? NAN : x.times * std::exp(x.s - row.most) / row.sum;
            if (x.part) add(&o, weight, v, weight, t, row.error > 0.02, false);
            most = std::max(most, std::fabs(v));
        }
        double x = got.o[(size_t)((i * s.heads_q + h) * s.dim_v + d)], dout = p.dout.at(i, h, d);
        double allowed = t.term + 4 * row.error + 1e-6 * std::min(256.0, std::fabs(row.lse));
        if (row.spoiled && !row.nothing) o.spoiled = true, o.open = false;
        bad += compare(p, "o", i, h, d, x, o, allowed);
        if (o.rough && !o.spoiled && !o.open && std::fabs(x) > most * (1 + t.term)) bad += wrong(p, "o", i, h, d, x, o);
        delta.open |= o.open;
        add(&delta, dout, x, std::fabs(dout), t, false, false);
    }
    if (row.nothing) delta.open = true;
    return bad + compare(p, "delta", i, h, 0, got.delta[(size_t)(h * s.rows_q + i)], delta, 1e-6);
}

/* The terms that a pair adds to the gradients, by the lse and delta of the device. */
static void add_pair(const problem &p, const results &got, const row_case &row, int64_t i, int64_t h, int64_t j,
                     const tolerances &t, std::vector<wanted> &dq, std::vector<wanted> &dk, std::vector<wanted> &dv) {
    const ra_shape &s = p.shape;
    const score &x = row.scores[(size_t)j];
    int64_t g = h / (s.heads_q / s.heads_kv);
    double lse = got.lse[(size_t)(h * s.rows_q + i)], delta = got.delta[(size_t)(h * s.rows_q + i)], size;
    double weight = row.spoiled ? NAN : x.times * std::min(1.0, std::exp(x.s - lse));
    double dp = dot(p.dout, i, h, p.v, j, g, &size), ds = weight * (dp - delta);
    bool rough = row.error > 0.02;
    double share = rough ? x.times : weight; /* what the weight may be */
    size = share * (size + std::fabs(delta));
    bool overflows = row.open || size > t.most;
    for (int64_t d = 0; d < s.dim; d++) {
        double k = s.scale * p.k.at(j, g, d), q = s.scale * p.q.at(i, h, d);
        add(&dq[(size_t)((i * s.heads_q + h) * s.dim + d)], ds, k, size, t, rough, overflows);
        add(&dk[(size_t)((j * s.heads_kv + g) * s.dim + d)], ds, q, size, t, rough, overflows);
    }
    for (int64_t d = 0; d < s.dim_v; d++)
        add(&dv[(size_t)((j * s.heads_kv + g) * s.dim_v + d)], weight, p.dout.at(i, h, d), share, t, rough, row.open);
}

static int compare_all(const problem &p, const char *what, const std::vector<double> &got,
                       const std::vector<wanted> &want, int64_t heads, int64_t dim, double relative) {
    int bad = 0;
    for (size_t n = 0; n < got.size(); n++)
        bad += compare(p, what, (int64_t)n / dim / heads, (int64_t)n / dim % heads, (int64_t)n % dim, got[n], want[n],
                       relative);
    return bad;
}

int count_wrong(const problem &p, const results &got) {
    const ra_shape &s = p.shape;
    tolerances t = tolerances_of(p);
    std::vector<wanted> dq(got.dq.size()), dk(got.dk.size()), dv(got.dv.size());
    double error = 0, largest = 0;
    int bad = !got.same;
    if (!got.same)
        fprintf(stderr, "%s %s, seed %u: o is another without lse\n", kernel->name, ra_dtype_name(s.dtype), p.seed);
    for (int64_t h = 0; h < s.heads_q; h++)
        for (int64_t i = 0; i < s.rows_q; i++) {
            row_case row = row_of(p, i, h, t);
            bad += check_row(p, got, row, i, h, t);
            if (row.error <= 0.02) error = std::max(error, row.error);
            if (std::isfinite(row.lse)) largest = std::max(largest, std::fabs(row.lse));
            for (int64_t j = 0; j < p.keys; j++)
                if (row.scores[(size_t)j].visible && row.scores[(size_t)j].part)
                    add_pair(p, got, row, i, h, j, t, dq, dk, dv);
        }
    double allowed = t.term + 4 * error + 1e-6 * std::min(256.0, largest);
    bad += compare_all(p, "dq", got.dq, dq, s.heads_q, s.dim, allowed);
    bad += compare_all(p, "dk", got.dk, dk, s.heads_kv, s.dim, allowed);
    return bad + compare_all(p, "dv", got.dv, dv, s.heads_kv, s.dim_v, allowed);
}
