/* Scores that rise, or fall, from one key to the next: what P is relative to has to follow them, however far they go
 * from one block of keys to the next. Against fp64, forward. */
#include "check_device.h"
#include "check_errors.h"
#include "kernel_checks.h"

#include <algorithm>
#include <cmath>

enum { QUERIES = 70, KEYS = 700 };

struct rising_problem {
    int64_t dim;
    double scale;
    std::vector<double> q, k, v; /* [QUERIES or KEYS, dim], as the type has them */
};

static std::vector<double> random_elements(rng *r, ra_dtype dtype, int64_t rows, int64_t dim, double first,
                                           double rise) {
    std::vector<double> x((size_t)(rows * dim));
    std::vector<unsigned char> narrow(x.size() * ra_dtype_bytes(dtype));
    for (size_t i = 0; i < x.size(); i++) x[i] = rng_normal(r);
    for (int64_t row = 0; row < rows; row++)
        if (first != 0 || rise != 0) x[(size_t)(row * dim)] = first + rise * (double)row;
    ra_convert(dtype, narrow.data(), RA_F64, x.data(), (int64_t)x.size());
    ra_convert(RA_F64, x.data(), dtype, narrow.data(), (int64_t)x.size());
    return x;
}

/* Element 0 of every query is 8, and of the keys such that scores rise by `rise` from the first key to the last. */
static rising_problem make_rising(unsigned seed, ra_dtype dtype, int64_t dim, double rise) {
    rng r = {seed};
    rising_problem p = {dim, 1 / std::sqrt((double)dim), {}, {}, {}};
    p.q = random_elements(&r, dtype, QUERIES, dim, 8, 0);
    p.k = random_elements(&r, dtype, KEYS, dim, 0, rise / (8 * p.scale * KEYS));
    p.v = random_elements(&r, dtype, KEYS, dim, 0, 0);
    return p;
}

static ra_view rows_on_device(ra_dtype dtype, const std::vector<double> &x, int64_t dim) {
    std::vector<unsigned char> narrow(x.size() * ra_dtype_bytes(dtype));
    ra_convert(dtype, narrow.data(), RA_F64, x.data(), (int64_t)x.size());
    return {take_copy(narrow.data(), narrow.size()), 0, dim, dim, 1};
}

/* o [dim] of one query; returns its lse. */
static double attend(const rising_problem &p, int64_t a, double *o) {
    std::vector<double> score(KEYS);
    for (int64_t b = 0; b < KEYS; b++)
        for (int64_t d = 0; d < p.dim; d++)
            score[(size_t)b] += p.scale * p.q[(size_t)(a * p.dim + d)] * p.k[(size_t)(b * p.dim + d)];
    double m = *std::max_element(score.begin(), score.end()), l = 0;
    std::fill(o, o + p.dim, 0);
    for (double s : score) l += std::exp(s - m);
    for (int64_t b = 0; b < KEYS; b++)
        for (int64_t d = 0; d < p.dim; d++) o[d] += std::exp(score[(size_t)b] - m) / l * p.v[(size_t)(b * p.dim + d)];
    return m + std::log(l);
}

/* How far o, in norm, and lse may be off, relatively. Scores are as large as their rise: with keys of 11 bits a score
 * is off by 2^-12 of it, which is exponentiated. */
struct rising_limits {
    double o, lse;
};

static rising_limits limits_of(ra_dtype dtype, double rise) {
    if (multiplies_as_tf32(dtype)) return {2e-3 + std::fabs(rise) / 4096, 5e-4};
    return {(dtype == RA_BF16 ? 1e-2 : dtype == RA_F16 ? 2e-3 : 1e-4) + 2e-6 * std::fabs(rise), 1e-5};
}

static void check_one(unsigned seed, ra_dtype dtype, int64_t dim, double rise) {
    rising_problem p = make_rising(seed, dtype, dim, rise);
    ra_dtype acc = dtype == RA_F64 ? RA_F64 : RA_F32;
    size_t bytes = ra_dtype_bytes(acc);
    ra_shape shape = {1, 1, 1, dim, dim, QUERIES, 1, p.scale, 1, dtype, acc};
    ra_kv_rows keys = {rows_on_device(dtype, p.k, dim), rows_on_device(dtype, p.v, dim), {}, {}, {0, 1, 1}};
    ra_tile tile = {};
    tile.q_rows = {0, 1, QUERIES};
    tile.k_rows = {0, 1, KEYS};
    tile.heads = {0, 1, 1};
    tile.lo = -QUERIES;
    tile.hi = KEYS;
    ra_tile_group group = {0, 1};
    ra_tile_round round = {0, 1, 0};
    ra_tile_list list = {&tile, &group, &round, 1, 1, 1};
    ra_context context = {};
    context.threads = 1;
    ra_state state = {
        {take(QUERIES * (size_t)dim * bytes), 0, dim, dim, 1}, 0, take(QUERIES * bytes), take(QUERIES * bytes)};
    ra_view out = {take(QUERIES * (size_t)dim * bytes), 0, dim, dim, 1};
    void *lse = take(QUERIES * bytes);
    ra_prepared *prepared = prepared_of(shape, list, NULL, 1, RA_FORWARD);
    ra_forward_call call = {&shape, rows_on_device(dtype, p.q, dim), &keys, list, state, context, prepared};
    kernel->begin(&shape, state, &context);
    kernel->forward(&call);
    kernel->finish(&shape, state, out, ra_array_view(&shape, lse), &context);
    CHECK(cudaDeviceSynchronize());
    std::vector<double> o = doubles_from(acc, out.data, QUERIES * dim), sums = doubles_from(acc, lse, QUERIES);
    std::vector<double> right((size_t)dim);
    double off = 0, size = 0, lse_off = 0;
    for (int64_t a = 0; a < QUERIES; a++) {
        double want = attend(p, a, right.data());
        lse_off = std::fmax(lse_off, std::fabs(sums[(size_t)a] - want) / (1 + std::fabs(want)));
        for (int64_t d = 0; d < dim; d++) {
            double x = o[(size_t)(a * dim + d)] - right[(size_t)d];
            off += x * x;
            size += right[(size_t)d] * right[(size_t)d];
        }
        lse_off = std::isfinite(sums[(size_t)a]) ? lse_off : INFINITY;
    }
    rising_limits limits = limits_of(dtype, rise);
    if (!(std::sqrt(off / size) <= limits.o) || !(lse_off <= limits.lse)) {
        fprintf(stderr, "%s, seed %u, dim %d, scores that rise by %g: o off by %g, lse by %g\n", ra_dtype_name(dtype),
                seed, (int)dim, rise, std::sqrt(off / size), lse_off);
        failures++;
    }
    kernel->discard(prepared);
    give_all_back();
}

void check_rising(unsigned seed, ra_dtype dtype) {
    for (int64_t dim : {64, 96, 128, 256})
        /* 316, 475 and 760: by 86 to 88 from one block of 192, 128 and 80 keys to the next, where P of f32 just holds
         */
        for (double rise : {-100.0, 30.0, 100.0, 300.0, 316.0, 475.0, 760.0, 1000.0, 3000.0})
            check_one(seed, dtype, dim, rise);
}
