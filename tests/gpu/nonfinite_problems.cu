/* Random problems of gpu_nonfinite.cu, on the device. */
#include "nonfinite_problems.h"

extern "C" {
#include "support/rng.h"
}

#include <algorithm>
#include <cmath>

int64_t first_row_of(const problem &p, int rank) {
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
            int64_t first = first_row_of(*p, i);
            ra_tile *t = &p->rank_tiles[c][i];
            *t = p->tiles[c];
            t->q_rows = {0, 1, first_row_of(*p, i + 1) - first};
            t->lo = std::clamp(t->lo + first, -t->q_rows.count, t->k_rows.count);
            t->hi = std::clamp(t->hi + first, -t->q_rows.count, t->k_rows.count);
            t->queries = i;
        }
    }
}

void make_problem(problem *p, ra_dtype dtype, unsigned seed) {
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
