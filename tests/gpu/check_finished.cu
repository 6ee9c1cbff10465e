/* Outputs that a forward call finishes, of the inputs' type: those that the row operations make of its state, also
 * where values that some rows do not see are infinities or NaNs, and where scores of single rows run away. */
#include "check_device.h"
#include "check_errors.h"
#include "kernel_checks.h"

#include <cmath>

/* Units of 64, 128 and 192 rows end inside the tile, and 16 rows of a warp do. Query a sees keys up to a + LATER. */
enum { QUERIES = 203, KEYS = 263, LATER = KEYS - QUERIES, HEADS = 2, GAP = 8 };

/* An element that is not random: of each head. */
struct placed {
    int64_t row, column;
    double value;
};

/* Of the values, by key. */
static const std::vector<placed> odd_values = {{150, 3, NAN}, {201, 5, INFINITY}, {262, 0, -INFINITY}};

/* A score of 128 or more in two rows, of a key that no first block of keys has: what P is relative to in a row is then
 * too small for it by more than kernels follow. One is the first and one the second of a thread's two rows on tensor
 * cores, and no other row of their blocks of 64 says that something is wrong. */
static const std::vector<placed> far_queries = {{93, 0, 64}, {147, 0, 64}}, far_keys = {{140, 0, 32}};

static bool sees_odd(int64_t query, int64_t column) {
    for (const auto &x : odd_values)
        if (x.column == column && x.row <= query + LATER) return true;
    return false;
}

static ra_view random_rows(rng *r, ra_dtype dtype, int64_t rows, int64_t dim, const std::vector<placed> &given) {
    std::vector<double> x((size_t)(rows * HEADS * dim));
    std::vector<unsigned char> narrow(x.size() * ra_dtype_bytes(dtype));
    for (double &y : x) y = rng_normal(r);
    for (const placed &y : given)
        for (int64_t h = 0; h < HEADS; h++) x[(size_t)((y.row * HEADS + h) * dim + y.column)] = y.value;
    ra_convert(dtype, narrow.data(), RA_F64, x.data(), (int64_t)x.size());
    return {take_copy(narrow.data(), narrow.size()), 0, HEADS * dim, dim, 1};
}

/* With a gap behind each row. */
static ra_view output_rows(ra_dtype dtype, int64_t dim) {
    int64_t row = HEADS * dim + GAP;
    return {take((size_t)(QUERIES * row) * ra_dtype_bytes(dtype)), 0, row, dim, 1};
}

/* How many elements are wrong, given what they are where all values are finite. Rows with an infinity or a NaN are done
 * again by another kernel, which rounds its P relative to another m. A row sees 61 keys or more, so the standard
 * deviation of what that changes is a twentieth of `ulp`, and one element in a million was seen to be off by 4.5 of
 * them: 8 are allowed. */
static int64_t wrong_elements(ra_dtype dtype, int64_t dim, bool odd, const std::vector<double> &got,
                              const std::vector<double> &clean) {
    int64_t row = HEADS * dim + GAP, wrong = 0;
    double ulp = dtype == RA_BF16 ? 0x1p-7 : dtype == RA_F16 ? 0x1p-10 : dtype == RA_F32 ? 1e-5 : 1e-12;
    for (int64_t i = 0; i < QUERIES * row; i++) {
        double x = got[(size_t)i], y = clean[(size_t)i];
        if (i % row >= HEADS * dim)
            wrong += !std::isnan(x); /* as `take` left it */
        else if (odd && sees_odd(i / row, i % row % dim))
            wrong += std::isfinite(x);
        else
            wrong += !(std::fabs(x - y) <= 2 * ulp * (std::fabs(y) + 0.2));
    }
    return wrong;
}

static void check_one(unsigned seed, ra_dtype dtype, int64_t dim) {
    rng r = {seed};
    ra_dtype acc = dtype == RA_F64 ? RA_F64 : RA_F32;
    size_t bytes = ra_dtype_bytes(acc), rows = QUERIES * HEADS;
    ra_shape shape = {1, HEADS, HEADS, dim, dim, QUERIES, 1, 1 / std::sqrt((double)dim), 1, dtype, dtype};
    ra_view q = random_rows(&r, dtype, QUERIES, dim, far_queries), k = random_rows(&r, dtype, KEYS, dim, far_keys);
    rng values = r;
    ra_view v = random_rows(&r, dtype, KEYS, dim, {}), odd_v = random_rows(&values, dtype, KEYS, dim, odd_values);
    ra_kv_rows keys = {k, v, {}, {}, {0, 1, HEADS}};
    ra_tile tile = {};
    tile.q_rows = {0, 1, QUERIES};
    tile.k_rows = {0, 1, KEYS};
    tile.heads = {0, 1, HEADS};
    tile.lo = -QUERIES;
    tile.hi = LATER;
    ra_tile_group group = {0, 1};
    ra_tile_round round = {0, 1, 0};
    ra_tile_list list = {&tile, &group, &round, 1, 1, 1};
    ra_context context = {};
    context.threads = 1;
    ra_state state = {
        {take(rows * (size_t)dim * bytes), 0, HEADS * dim, dim, 1}, 0, take(rows * bytes), take(rows * bytes)};
    ra_view out = output_rows(dtype, dim), lse = ra_array_view(&shape, take(rows * bytes));
    ra_prepared *prepared = prepared_of(shape, list, NULL, 1, RA_FORWARD);
    ra_forward_call call = {&shape, q, &keys, list, state, context, prepared};
    kernel->begin(&shape, state, &context);
    kernel->forward(&call);
    kernel->finish(&shape, state, out, lse, &context);
    CHECK(cudaDeviceSynchronize());
    std::vector<double> clean = doubles_from(dtype, out.data, QUERIES * out.row);
    std::vector<double> sums = doubles_from(acc, lse.data, (int64_t)rows);
    for (int way = 0; way < 4 && kernel->finishes && kernel->finishes(prepared); way++) {
        int begins = way & 1, odd = way >> 1;
        ra_view to = output_rows(dtype, dim), lse_to = ra_array_view(&shape, take(rows * bytes));
        ra_forward_results results = {to, lse_to, begins};
        keys.v = odd ? odd_v : v;
        call.results = &results;
        if (!begins) kernel->begin(&shape, state, &context);
        kernel->forward(&call);
        CHECK(cudaDeviceSynchronize());
        int64_t wrong = wrong_elements(dtype, dim, odd, doubles_from(dtype, to.data, QUERIES * to.row), clean), off = 0;
        std::vector<double> lse_got = doubles_from(acc, lse_to.data, (int64_t)rows);
        for (size_t i = 0; i < rows; i++) off += !(std::fabs(lse_got[i] - sums[i]) <= 1e-4 * (1 + std::fabs(sums[i])));
        if (!wrong && !off) continue;
        fprintf(stderr, "%s, seed %u, dim %d%s, finished by the call%s: %lld elements of o and %lld lse are wrong\n",
                ra_dtype_name(dtype), seed, (int)dim, odd ? ", values not finite" : "",
                begins ? ", which begins them" : "", (long long)wrong, (long long)off);
        failures++;
    }
    kernel->discard(prepared);
    give_all_back();
}

void check_finished(unsigned seed, ra_dtype dtype) {
    for (int64_t dim : {64, 72, 128, 256}) check_one(seed, dtype, dim);
}
