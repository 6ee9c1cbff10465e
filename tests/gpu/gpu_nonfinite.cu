/* Infinities, NaN and huge scores at random places in q, k, v and dout: both passes of every CUDA kernel and type
 * against the rule, worked out in doubles pair by pair.
 *
 *   gpu_nonfinite [--kernel NAME] [--seeds N] [--seed FIRST]
 *
 * A seed is a problem of each type that a kernel has code of its own for, sixteen on Hopper. In some the queries are
 * those of several ranks, in some the pairs of a call count several times.
 *
 * The rule. A pair takes part when it is visible and its score is not -inf. A row that has a part in a score of +inf or
 * NaN has o, lse and dq NaN, and makes NaN of dk and dv of its keys; a value or gradient that is not finite makes
 * whatever is multiplied by it not finite, a weight of 0 included; and nothing reaches what has no part in it. One
 * thing is left open: o where the score is -inf and the value is not finite.
 *
 * What is finite is compared, element by element, with a tolerance relative to the sum of the terms' sizes. Scores
 * whose own rounding would show (huge ones that f32 cannot hold) must still give finite results, with o between the
 * values.
 */
#include "kernel_setup.h"

extern "C" {
#include "support/rng.h"
}

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

enum { CALLS = 2 }; /* keys mostly come in two calls, so that states are merged */
enum { RANKS = 3 }; /* at most: queries are sometimes those of several, in the forward pass */

/* ---- problems ---------------------------------------------------------------------------------------------------- */

/* [rows, heads, dim] with gaps between rows, in the type and as doubles. */
struct tensor {
    int64_t rows, heads, dim, pitch;
    std::vector<double> exact;
    void *device;
    double at(int64_t row, int64_t h, int64_t d) const {
        return exact[(size_t)(row * pitch + h * dim + d)];
    }
    double &at(int64_t row, int64_t h, int64_t d) {
        return exact[(size_t)(row * pitch + h * dim + d)];
    }
    ra_view view(void) const {
        return {device, 0, pitch, dim, 1};
    }
};

struct problem {
    unsigned seed;
    ra_shape shape;
    ra_dtype acc;
    int64_t keys, split; /* keys [0, split) in the first call */
    int calls;           /* 1: all keys in one */
    int begins;          /* the only call begins the state itself, where it can */
    int64_t o_gap;       /* elements between the rows of o */
    int64_t lo, hi;      /* key - query of those visible */
    bool whole_scores;   /* small integers times powers of 2: scores are exact in every type */
    tensor q, dout, k, v;
    ra_tile tiles[CALLS];
    ra_tile_group groups[CALLS];
    ra_tile_round rounds[CALLS];
    ra_tile_list lists[CALLS];
    int ranks; /* whose queries they are in the forward pass, an even share each */
    ra_tile rank_tiles[CALLS][RANKS];
    ra_tile_group rank_groups[RANKS];
    ra_tile_round rank_round;
};

/* The first row of a rank. */
static int64_t first_of(const problem &p, int rank) {
    return p.shape.rows_q * rank / p.ranks;
}

static tensor make_tensor(rng *r, int64_t rows, int64_t heads, int64_t dim) {
    static const int64_t gaps[] = {0, 0, 1, 8};
    tensor x = {rows, heads, dim, heads * dim + gaps[rng_between(r, 0, 3)], {}, NULL};
    x.exact.resize((size_t)(rows * x.pitch));
    for (double &one : x.exact) one = rng_normal(r);
    return x;
}

static void make_whole(rng *r, tensor *x, int power) {
    for (double &one : x->exact) one = std::ldexp((double)rng_between(r, -4, 4), power);
}

/* 1 to 4 elements become infinities or NaN, or, kind 2, huge. */
static void spoil(rng *r, problem *p, int kind) {
    static const double odd[] = {INFINITY, -INFINITY, NAN};
    tensor *all[] = {&p->q, &p->k, &p->v, &p->dout};
    double huge = p->shape.dtype == RA_F16 ? 6e4 : 1e15;
    for (int64_t i = rng_between(r, 1, 4); i > 0; i--) {
        int which = (int)rng_between(r, 0, p->shape.dtype == RA_F16 && kind == 2 ? 1 : 3);
        tensor *x = all[which];
        double &to =
            x->at(rng_between(r, 0, x->rows - 1), rng_between(r, 0, x->heads - 1), rng_between(r, 0, x->dim - 1));
        to = kind == 2 ? huge * rng_real(r) : odd[rng_between(r, 0, 2)];
    }
}

/* What the type makes of the elements; and a copy on the device, of no more bytes than it has. */
static void upload(tensor *x, ra_dtype dtype) {
    std::vector<unsigned char> narrow(x->exact.size() * ra_dtype_bytes(dtype));
    ra_convert(dtype, narrow.data(), RA_F64, x->exact.data(), (int64_t)x->exact.size());
    ra_convert(RA_F64, x->exact.data(), dtype, narrow.data(), (int64_t)x->exact.size());
    x->device = take_copy(narrow.data(), narrow.size());
}

static void make_band(rng *r, problem *p) {
    int64_t rows = p->shape.rows_q, kind = rng_between(r, 0, 3);
    p->lo = kind & 1 ? rng_between(r, -rows, p->keys) : -rows;
    p->hi = kind & 2 ? std::max(p->lo, rng_between(r, -rows, p->keys)) : p->keys;
}

/* How the keys come, and where o goes to: in its own type or the wider one, with or without gaps. */
static void make_calls(rng *r, problem *p) {
    p->calls = rng_one_in(r, 3) ? 1 : CALLS;
    p->begins = p->calls == 1 && rng_one_in(r, 2);
    p->o_gap = rng_one_in(r, 2) ? 0 : rng_between(r, 1, 16);
    p->shape.out_dtype = rng_one_in(r, 2) ? p->shape.dtype : p->acc;
}

/* The same tiles, of the queries of each rank. */
static void make_ranks(rng *r, problem *p) {
    p->ranks = p->shape.rows_q < RANKS ? 1 : (int)rng_between(r, 1, RANKS);
    p->rank_round = {0, p->ranks, 0};
    for (int i = 0; i < p->ranks; i++) {
        p->rank_groups[i] = {i, 1};
        for (int c = 0; c < p->calls; c++) {
            int64_t first = first_of(*p, i);
            ra_tile *t = &p->rank_tiles[c][i];
            *t = p->tiles[c];
            t->q_rows = {0, 1, first_of(*p, i + 1) - first};
            t->lo = std::clamp(t->lo + first, -t->q_rows.count, t->k_rows.count);
            t->hi = std::clamp(t->hi + first, -t->q_rows.count, t->k_rows.count);
            t->queries = i;
        }
    }
}

static void make_problem(problem *p, ra_dtype dtype, unsigned seed) {
    static const int64_t widths[] = {3, 8, 16, 33, 40, 64, 64, 72, 100, 128, 128, 200};
    rng r = {seed * 16ull + (unsigned)dtype};
    int kind = (int)rng_between(&r, 0, 3);
    int64_t heads_kv = rng_between(&r, 1, 2), heads = heads_kv * rng_between(&r, 1, 2);
    int64_t dim = widths[rng_between(&r, 0, 11)], dim_v = rng_one_in(&r, 2) ? dim : widths[rng_between(&r, 0, 11)];
    p->seed = seed;
    p->acc = dtype == RA_F64 ? RA_F64 : RA_F32;
    double scale = (float)(1 / std::sqrt((double)dim)); /* as f32 holds it: the same rounded scores everywhere */
    p->shape = {1, heads, heads_kv, dim, dim_v, rng_between(&r, 1, 300), 1, scale, 1, dtype, p->acc};
    p->keys = rng_between(&r, 2, 500);
    p->split = rng_between(&r, 1, p->keys - 1);
    make_band(&r, p);
    p->q = make_tensor(&r, p->shape.rows_q, heads, dim);
    p->dout = make_tensor(&r, p->shape.rows_q, heads, dim_v);
    p->k = make_tensor(&r, p->keys, heads_kv, dim);
    p->v = make_tensor(&r, p->keys, heads_kv, dim_v);
    p->whole_scores = kind % 2;
    if (p->whole_scores) {
        int most = dtype == RA_F16 ? 12 : 40;
        make_whole(&r, &p->q, (int)rng_between(&r, -2, most));
        make_whole(&r, &p->k, (int)rng_between(&r, -2, most));
    }
    if (rng_one_in(&r, 4)) p->shape.scale *= -1;
    if (kind != 1) spoil(&r, p, kind);
    make_calls(&r, p);
    for (tensor *x : {&p->q, &p->k, &p->v, &p->dout}) upload(x, dtype);
    for (int c = 0; c < p->calls; c++) {
        int64_t from = c ? p->split : 0, to = c + 1 == p->calls ? p->keys : p->split;
        p->tiles[c] = {};
        p->tiles[c].q_rows = {0, 1, p->shape.rows_q};
        p->tiles[c].k_rows = {from, 1, to - from};
        p->tiles[c].heads = {0, 1, heads};
        p->tiles[c].lo = p->lo - from;
        p->tiles[c].hi = p->hi - from;
        p->tiles[c].extra = rng_one_in(&r, 3) ? (int)rng_between(&r, 1, 3) : 0;
        p->groups[c] = {0, 1};
        p->rounds[c] = {0, 1, 0};
        p->lists[c] = {&p->tiles[c], &p->groups[c], &p->rounds[c], 1, 1, 1};
    }
    make_ranks(&r, p);
}

/* ---- on the device ----------------------------------------------------------------------------------------------- */

struct results {
    std::vector<double> o, lse, delta, dq, dk, dv; /* C-order; lse and delta [heads, rows] */
    bool same;                                     /* o is what it is when no lse is wanted */
};

static ra_view output(ra_dtype acc, int64_t rows, int64_t heads, int64_t dim, int64_t gap) {
    size_t bytes = (size_t)(rows * (heads * dim + gap)) * ra_dtype_bytes(acc);
    void *data = take(bytes);
    CHECK(cudaMemset(data, 0, bytes));
    return {data, 0, heads * dim + gap, dim, 1};
}

static std::vector<double> read_back(ra_dtype type, const void *device, int64_t count) {
    std::vector<unsigned char> raw((size_t)count * ra_dtype_bytes(type));
    std::vector<double> x((size_t)count);
    CHECK(cudaMemcpy(raw.data(), device, raw.size(), cudaMemcpyDeviceToHost));
    ra_convert(RA_F64, x.data(), type, raw.data(), count);
    return x;
}

/* The o of a view with gaps, without them. */
static std::vector<double> read_o(const problem &p, ra_view o) {
    int64_t rows = p.shape.rows_q, width = p.shape.heads_q * p.shape.dim_v;
    std::vector<double> all = read_back(p.shape.out_dtype, o.data, rows * o.row), x;
    for (int64_t i = 0; i < rows; i++) x.insert(x.end(), all.begin() + i * o.row, all.begin() + i * o.row + width);
    return x;
}

/* Of a view, from that row on. */
static ra_view rows_from(ra_view view, int64_t row, ra_dtype dtype) {
    if (view.data) view.data = (char *)view.data + row * view.row * (int64_t)ra_dtype_bytes(dtype);
    return view;
}

/* A rank's share of the queries, with a state of its own. */
static ra_query_rows share_of(const problem &p, int rank, ra_view o, ra_view lse) {
    int64_t first = first_of(p, rank), heads = p.shape.heads_q, dim_v = p.shape.dim_v;
    ra_query_rows x = {};
    x.q = rows_from(p.q.view(), first, p.shape.dtype);
    x.rows = first_of(p, rank + 1) - first;
    x.o_out = rows_from(o, first, p.shape.out_dtype);
    x.lse_out = rows_from(lse, first, p.acc);
    size_t bytes = (size_t)(x.rows * heads) * ra_dtype_bytes(p.acc);
    x.state = {{take((size_t)dim_v * bytes), 0, heads * dim_v, dim_v, 1}, 0, take(bytes), take(bytes)};
    return x;
}

/* The forward pass: o, and lse, a view whose data may be NULL. */
static std::vector<double> forward(const problem &p, const ra_kv_rows &part, ra_view o, ra_view lse) {
    const ra_shape &s = p.shape;
    ra_context context = {};
    context.threads = 1;
    ra_query_rows shares[RANKS];
    ra_shape shapes[RANKS];
    for (int r = 0; r < p.ranks; r++) {
        shares[r] = share_of(p, r, o, lse);
        shapes[r] = s;
        shapes[r].rows_q = shares[r].rows;
    }
    bool finished = false, begun = false; /* by the kernel, where it can */
    for (int c = 0; c < p.calls; c++) {
        ra_tile_list list = {p.rank_tiles[c], p.rank_groups, &p.rank_round, p.ranks, p.ranks, 1};
        ra_prepared *prepared = prepared_of(s, list, NULL, 1, RA_FORWARD);
        ra_forward_call call = {&s, p.q.view(), &part, list, shares[0].state, context, prepared};
        finished = c + 1 == p.calls && kernel->finishes && kernel->finishes(prepared);
        ra_forward_results results = {o, lse, finished && p.begins};
        if (p.ranks > 1) call.queries = shares;
        if (finished) call.results = &results;
        for (int r = 0; r < p.ranks && !begun && !results.begins; r++)
            kernel->begin(&shapes[r], shares[r].state, &context);
        begun = true;
        kernel->forward(&call);
        CHECK(cudaDeviceSynchronize());
        kernel->discard(prepared);
    }
    for (int r = 0; r < p.ranks && !finished; r++)
        kernel->finish(&shapes[r], shares[r].state, shares[r].o_out, shares[r].lse_out, &context);
    return read_o(p, o);
}

/* Whether two arrays have the same elements, NaNs counting as one. */
static bool same(const std::vector<double> &a, const std::vector<double> &b) {
    return std::equal(a.begin(), a.end(), b.begin(),
                      [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

static results run(const problem &p) {
    const ra_shape &s = p.shape;
    int64_t rows = s.rows_q, heads = s.heads_q, all = rows * heads;
    size_t bytes = (size_t)all * ra_dtype_bytes(p.acc);
    ra_context context = {};
    context.threads = 1;
    ra_view dq = output(p.acc, rows, heads, s.dim, 0);
    ra_kv_rows part = {p.k.view(),
                       p.v.view(),
                       output(p.acc, p.keys, s.heads_kv, s.dim, 0),
                       output(p.acc, p.keys, s.heads_kv, s.dim_v, 0),
                       {0, 1, s.heads_kv}};
    ra_view o = output(s.out_dtype, rows, heads, s.dim_v, p.o_gap);
    void *lse = take(bytes), *delta = take(bytes);
    results got;
    got.o = forward(p, part, o, ra_array_view(&s, lse));
    got.same = same(got.o, forward(p, part, output(s.out_dtype, rows, heads, s.dim_v, p.o_gap), {}));
    kernel->delta(&s, p.dout.view(), o, delta, &context);
    for (int c = 0; c < p.calls; c++) {
        ra_prepared *prepared = prepared_of(s, p.lists[c], NULL, 1, RA_BACKWARD);
        ra_backward_call call = {&s,         p.q.view(), p.dout.view(), lse,      delta, &part,
                                 p.lists[c], dq,         context,       prepared, 0};
        kernel->backward(&call);
        CHECK(cudaDeviceSynchronize());
        kernel->discard(prepared);
    }
    got.lse = read_back(p.acc, lse, all);
    got.delta = read_back(p.acc, delta, all);
    got.dq = read_back(p.acc, dq.data, all * s.dim);
    got.dk = read_back(p.acc, part.dk.data, p.keys * s.heads_kv * s.dim);
    got.dv = read_back(p.acc, part.dv.data, p.keys * s.heads_kv * s.dim_v);
    return got;
}

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

static int check(const problem &p, const results &got) {
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

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* The types for which the kernel has code that those before it in the table have not. */
static std::vector<ra_dtype> types_of(const ra_kernel *of) {
    if (strcmp(of->name, "cuda_sm80") == 0) return {RA_F32, RA_F64, RA_BF16, RA_F16};
    if (strcmp(of->name, "cuda_sm75") == 0) return {RA_F32, RA_F16};
    if (strcmp(of->name, "cuda_sm86") == 0) return {RA_F32, RA_F64, RA_BF16, RA_F16};
    if (strncmp(of->name, "cuda_sm90", 9) == 0) return {RA_BF16, RA_F16};
    return {RA_F32};
}

int main(int argc, char **argv) {
    kernel_options options = {NULL, 1, 150, 0, 0};
    kernel_options_read(&options, "gpu_nonfinite", argc, argv);
    if (!kernel_choose(options.name)) return 0;
    int problems = 0, bad = 0;
    for (unsigned seed = options.first; seed < options.first + options.seeds; seed++)
        for (int n = 0; ra_cuda_kernel_at(n); n++) {
            kernel = ra_cuda_kernel_at(n);
            if (!kernel->usable() || (options.name && strcmp(options.name, kernel->name) != 0)) continue;
            for (ra_dtype dtype : types_of(kernel)) {
                problem p;
                make_problem(&p, dtype, seed);
                bad += check(p, run(p)) != 0;
                problems++;
                give_all_back();
            }
        }
    printf("%d problems, %d wrong\n", problems, bad);
    return bad != 0;
}
