/* Rows that see thousands of keys, which kernels go through in many blocks, of which some rows of a unit see nothing.
 * Against fp64, forward, some rows of each problem.
 *
 * Two heads share their keys. A problem is one call or two, the second of which adds to what the first has left; a
 * call's tiles each have a band of their own. Their keys are rows behind one another of one part, where tiles are
 * merged, or of PARTS parts in turn.
 */
#include "check_device.h"
#include "check_errors.h"
#include "kernel_checks.h"

#include <algorithm>
#include <cmath>

enum { HEADS = 2, PARTS = 3, EVERY = 37 }; /* EVERY: of so many rows one is looked at */

/* Some of the keys: row a sees key b of them where lo <= b - a <= hi. */
struct long_tile {
    int64_t keys, lo, hi;
};

struct long_problem {
    const char *name;
    int64_t queries;
    std::vector<std::vector<long_tile>> calls;
};

static const int64_t FAR = 100000;

/* Units are of 128 or 192 rows, blocks of 128 or 80 keys. Rows see 3,000 keys or more on average in every call. */
static const std::vector<long_problem> problems = {
    {"all keys, rows end inside a block", 300, {{{3200, -FAR, FAR}}}},
    {"a window", 512, {{{4224, 100, 3200}}}},
    {"two calls", 256, {{{3100, -FAR, FAR}}, {{3600, -FAR, 3100}}}},
    {"whole tiles", 300, {{{1024, -FAR, FAR}, {1024, -FAR, FAR}, {77, -FAR, FAR}, {1024, -FAR, FAR}}}},
    {"whole tiles, then a diagonal", 384, {{{1504, -FAR, FAR}, {1600, -FAR, FAR}, {1200, -FAR, 300}}}},
    {"a diagonal between whole tiles", 384, {{{1504, -FAR, FAR}, {1200, -FAR, -1}, {1600, -FAR, FAR}}}},
    {"three tiles with bands", 400, {{{1900, -300, FAR}, {1000, -FAR, 200}, {2100, -600, 1900}}}},
    {"tiles that some rows see nothing of",
     384,
     {{{300, -FAR, -130}, {1504, -FAR, FAR}, {700, -FAR, -200}, {900, -FAR, FAR}, {700, 500, FAR}, {1600, -FAR, FAR}}}},
    {"first and last tiles that few rows see", 320, {{{200, 0, FAR}, {3000, -FAR, FAR}, {90, -FAR, -250}}}},
};

/* How the kernel is told where keys are. */
enum key_places { OWN_ROWS, SLOTS, WITH_CALLS };

struct long_values {
    int64_t dim, keys;
    double scale;
    std::vector<double> q, k, v; /* [queries, HEADS, dim] and [keys, dim], as the type has them */
};

static std::vector<double> random_values(rng *r, ra_dtype dtype, int64_t count) {
    std::vector<double> x((size_t)count);
    std::vector<unsigned char> narrow((size_t)count * ra_dtype_bytes(dtype));
    for (double &element : x) element = 1.7 * rng_real(r);
    ra_convert(dtype, narrow.data(), RA_F64, x.data(), count);
    ra_convert(RA_F64, x.data(), dtype, narrow.data(), count);
    return x;
}

static long_values make_values(const long_problem &p, unsigned seed, ra_dtype dtype, int64_t dim) {
    rng r = {seed};
    long_values x = {dim, 0, 1 / std::sqrt((double)dim), {}, {}, {}};
    for (const std::vector<long_tile> &call : p.calls)
        for (const long_tile &t : call) x.keys += t.keys;
    x.q = random_values(&r, dtype, p.queries * HEADS * dim);
    x.k = random_values(&r, dtype, x.keys * dim);
    x.v = random_values(&r, dtype, x.keys * dim);
    return x;
}

static ra_view values_on_device(ra_dtype dtype, const std::vector<double> &x, int64_t heads, int64_t dim) {
    std::vector<unsigned char> narrow(x.size() * ra_dtype_bytes(dtype));
    ra_convert(dtype, narrow.data(), RA_F64, x.data(), (int64_t)x.size());
    return {take_copy(narrow.data(), narrow.size()), 0, heads * dim, dim, 1};
}

/* The part of a call's i-th tile. */
static int part_of(key_places places, size_t i) {
    return places == OWN_ROWS ? 0 : (int)(i % PARTS);
}

/* The keys of the call's tiles from key `first` on, part by part. */
static std::vector<ra_kv_rows> parts_on_device(const std::vector<long_tile> &tiles, int64_t first, key_places places,
                                               const long_values &x, ra_dtype dtype) {
    std::vector<double> k[PARTS], v[PARTS];
    for (size_t i = 0; i < tiles.size(); i++) {
        int64_t from = first * x.dim, to = from + tiles[i].keys * x.dim;
        int part = part_of(places, i);
        k[part].insert(k[part].end(), x.k.begin() + from, x.k.begin() + to);
        v[part].insert(v[part].end(), x.v.begin() + from, x.v.begin() + to);
        first += tiles[i].keys;
    }
    std::vector<ra_kv_rows> parts;
    for (int i = 0; i < (places == OWN_ROWS ? 1 : PARTS); i++)
        parts.push_back(
            {values_on_device(dtype, k[i], 1, x.dim), values_on_device(dtype, v[i], 1, x.dim), {}, {}, {0, 1, 1}});
    return parts;
}

/* The keys that row a sees, numbered through all tiles. */
static std::vector<int64_t> keys_of_row(const long_problem &p, int64_t a) {
    std::vector<int64_t> seen;
    int64_t first = 0;
    for (const std::vector<long_tile> &call : p.calls)
        for (const long_tile &t : call) {
            for (int64_t b = std::max((int64_t)0, a + t.lo); b < t.keys && b <= a + t.hi; b++)
                seen.push_back(first + b);
            first += t.keys;
        }
    return seen;
}

/* o [dim] of one query; returns its lse. */
static double attend(const long_problem &p, const long_values &x, int64_t a, int64_t head, double *o) {
    std::vector<int64_t> seen = keys_of_row(p, a);
    std::vector<double> score;
    for (int64_t key : seen) {
        double sum = 0;
        for (int64_t d = 0; d < x.dim; d++)
            sum += x.q[(size_t)((a * HEADS + head) * x.dim + d)] * x.k[(size_t)(key * x.dim + d)];
        score.push_back(x.scale * sum);
    }
    double m = *std::max_element(score.begin(), score.end()), l = 0;
    for (double &s : score) l += s = std::exp(s - m);
    std::fill(o, o + x.dim, 0);
    for (size_t i = 0; i < seen.size(); i++)
        for (int64_t d = 0; d < x.dim; d++) o[d] += score[i] / l * x.v[(size_t)(seen[i] * x.dim + d)];
    return m + std::log(l);
}

/* What prepare is told of the parts. */
static ra_prepared *prepare_call(const ra_shape &shape, const ra_tile_list &list, std::vector<ra_kv_rows> parts,
                                 key_places places) {
    if (places == OWN_ROWS) return prepared_of(shape, list, NULL, 1, RA_FORWARD);
    if (places == WITH_CALLS)
        for (ra_kv_rows &part : parts) part.k.data = part.v.data = NULL;
    return prepared_of(shape, list, parts.data(), PARTS, RA_FORWARD);
}

/* One call of the kernel. */
static void run_call(const ra_shape &shape, const std::vector<long_tile> &tiles, const std::vector<ra_kv_rows> &parts,
                     key_places places, ra_view q, ra_state state) {
    std::vector<ra_tile> list_tiles;
    int64_t used[PARTS] = {};
    for (size_t i = 0; i < tiles.size(); i++) {
        ra_tile tile = {};
        tile.part = part_of(places, i);
        tile.q_rows = {0, 1, shape.rows_q};
        tile.k_rows = {used[tile.part], 1, tiles[i].keys};
        tile.heads = {0, 1, HEADS};
        tile.lo = std::max(tiles[i].lo, -shape.rows_q);
        tile.hi = std::min(tiles[i].hi, tiles[i].keys);
        list_tiles.push_back(tile);
        used[tile.part] += tiles[i].keys;
    }
    ra_tile_group group = {0, (int64_t)list_tiles.size()};
    ra_tile_round round = {0, 1, 0};
    ra_tile_list list = {list_tiles.data(), &group, &round, (int64_t)list_tiles.size(), 1, 1};
    ra_context context = {};
    context.threads = 1;
    ra_prepared *prepared = prepare_call(shape, list, parts, places);
    ra_forward_call call = {&shape, q, parts.data(), list, state, context, prepared};
    kernel->forward(&call);
    CHECK(cudaDeviceSynchronize());
    kernel->discard(prepared);
}

/* The rows that are looked at, as they should be: of each o [dim], then lse. */
static std::vector<double> right_rows(const long_problem &p, const long_values &x, unsigned seed) {
    std::vector<double> rows;
    for (int64_t a = seed % EVERY; a < p.queries; a += EVERY) {
        std::vector<double> o((size_t)x.dim);
        double lse = attend(p, x, a, a % HEADS, o.data());
        rows.insert(rows.end(), o.begin(), o.end());
        rows.push_back(lse);
    }
    return rows;
}

static void compare(const long_problem &p, int64_t dim, unsigned seed, ra_dtype dtype, key_places places,
                    const std::vector<double> &right, const std::vector<double> &o, const std::vector<double> &lse) {
    double off = 0, size = 0, lse_off = 0;
    const double *row = right.data();
    for (int64_t a = seed % EVERY; a < p.queries; a += EVERY, row += dim + 1) {
        int64_t head = a % HEADS;
        double want = row[dim], got = lse[(size_t)(head * p.queries + a)];
        lse_off = std::isfinite(got) ? std::fmax(lse_off, std::fabs(got - want) / (1 + std::fabs(want))) : INFINITY;
        for (int64_t d = 0; d < dim; d++) {
            double by = o[(size_t)((a * HEADS + head) * dim + d)] - row[d];
            off += by * by;
            size += row[d] * row[d];
        }
    }
    double limit = dtype == RA_BF16 ? 1e-2 : 2e-3;
    if (std::sqrt(off / size) <= limit && lse_off <= 1e-5) return;
    fprintf(stderr, "%s, seed %u, dim %d, %s, keys %d: o off by %g, lse by %g\n", ra_dtype_name(dtype), seed, (int)dim,
            p.name, (int)places, std::sqrt(off / size), lse_off);
    failures++;
}

static void check_one(const long_problem &p, const long_values &x, unsigned seed, ra_dtype dtype, key_places places,
                      const std::vector<double> &right) {
    int64_t dim = x.dim, first = 0;
    size_t rows = (size_t)(p.queries * HEADS), bytes = rows * (size_t)dim * sizeof(float);
    ra_shape shape = {1, HEADS, 1, dim, dim, p.queries, 1, x.scale, 1, dtype, RA_F32};
    ra_view q = values_on_device(dtype, x.q, HEADS, dim);
    ra_state state = {{take(bytes), 0, HEADS * dim, dim, 1}, 0, take(rows * sizeof(float)), take(rows * sizeof(float))};
    ra_view out = {take(bytes), 0, HEADS * dim, dim, 1};
    void *lse = take(rows * sizeof(float));
    ra_context context = {};
    context.threads = 1;
    kernel->begin(&shape, state, &context);
    for (const std::vector<long_tile> &call : p.calls) {
        run_call(shape, call, parts_on_device(call, first, places, x, dtype), places, q, state);
        for (const long_tile &t : call) first += t.keys;
    }
    kernel->finish(&shape, state, out, ra_array_view(&shape, lse), &context);
    CHECK(cudaDeviceSynchronize());
    compare(p, dim, seed, dtype, places, right, doubles_from(RA_F32, out.data, (int64_t)rows * dim),
            doubles_from(RA_F32, lse, (int64_t)rows));
    give_all_back();
}

void check_long(unsigned seed, ra_dtype dtype) {
    if (dtype != RA_BF16 && dtype != RA_F16) return;
    for (const long_problem &p : problems)
        for (int64_t dim : {128, 256}) {
            long_values x = make_values(p, seed, dtype, dim);
            std::vector<double> right = right_rows(p, x, seed);
            for (key_places places : {OWN_ROWS, SLOTS, WITH_CALLS}) check_one(p, x, seed, dtype, places, right);
        }
}
