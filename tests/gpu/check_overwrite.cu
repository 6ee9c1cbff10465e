/* dQ, dK and dV that a backward call overwrites: whatever was there, the bits are those of zeros that were added to.
 * And those that it finishes: the bits are those of what store makes of the others. */
#include "check_device.h"
#include "check_errors.h"
#include "kernel_checks.h"

#include <cmath>
#include <cstring>

enum { ROWS = 300, HEADS = 4, SHARE = 2 };

struct overwrite_case {
    ra_shape shape;
    ra_tile tiles[2];
    ra_tile_group groups[2];
    ra_tile_round rounds[2];
    ra_tile_list list;
    std::vector<double> q, k, v, dout, lse, delta;
};

static ra_view rows_on_device(ra_dtype dtype, const std::vector<double> &x, int64_t heads, int64_t dim) {
    std::vector<unsigned char> narrow(x.size() * ra_dtype_bytes(dtype));
    ra_convert(dtype, narrow.data(), RA_F64, x.data(), (int64_t)x.size());
    return {take_copy(narrow.data(), narrow.size()), 0, heads * dim, dim, 1};
}

static std::vector<double> random_numbers(rng *r, int64_t count) {
    std::vector<double> x((size_t)count);
    for (double &one : x) one = rng_normal(r);
    return x;
}

/* nonfinite: an infinity in one query, which the step that has it must not spread. rounds: 1, or 2, the second of which
 * has every second row and adds to what the first has made. */
static void make_case(overwrite_case *c, ra_dtype dtype, int64_t dim, int nonfinite, int rounds, unsigned seed) {
    rng r = {seed};
    ra_dtype acc = dtype == RA_F64 ? RA_F64 : RA_F32;
    c->shape = {1, HEADS, HEADS / SHARE, dim, dim, ROWS, 1, 1 / std::sqrt((double)dim), 1, dtype, acc};
    for (int i = 0; i < rounds; i++) {
        ra_tile &t = c->tiles[i];
        t = {};
        t.q_rows = t.k_rows = {0, 1 + i, ROWS / (1 + i)};
        t.heads = {0, 1, HEADS};
        t.lo = -ROWS;
        c->groups[i] = {i, 1};
        c->rounds[i] = {i, 1, 0};
    }
    c->list = {c->tiles, c->groups, c->rounds, rounds, rounds, rounds};
    c->q = random_numbers(&r, ROWS * HEADS * dim);
    c->dout = random_numbers(&r, ROWS * HEADS * dim);
    c->k = random_numbers(&r, ROWS * HEADS / SHARE * dim);
    c->v = random_numbers(&r, ROWS * HEADS / SHARE * dim);
    c->lse.assign(ROWS * HEADS, 6);
    c->delta = random_numbers(&r, ROWS * HEADS);
    if (nonfinite) c->q[(size_t)(ROWS / 2 * HEADS * dim)] = INFINITY;
}

/* Whether it is Hopper's kernel for rows of up to 128 elements, which overwrites dq and finishes dk and dv. */
static bool has_hopper_kernel(ra_dtype dtype, int64_t dim) {
    return !strncmp(kernel->name, "cuda_sm90", 9) && ra_dtype_bytes(dtype) == 2 && dim <= 128;
}

/* The bytes of dk, dv and dq, sums. */
static std::vector<unsigned char> run(const overwrite_case &c, int overwrite, unsigned seed) {
    const ra_shape &s = c.shape;
    int64_t heads = s.heads_kv, each = ROWS * heads * s.dim;
    ra_dtype acc = s.out_dtype;
    size_t bytes = (size_t)each * ra_dtype_bytes(acc);
    std::vector<double> zeros((size_t)(ROWS * HEADS * s.dim));
    ra_view q = rows_on_device(s.dtype, c.q, HEADS, s.dim), dout = rows_on_device(s.dtype, c.dout, HEADS, s.dim);
    ra_view dq = rows_on_device(acc, zeros, HEADS, s.dim);
    ra_kv_rows part = {rows_on_device(s.dtype, c.k, heads, s.dim),
                       rows_on_device(s.dtype, c.v, heads, s.dim),
                       {take(bytes), 0, heads * s.dim, s.dim, 1},
                       {take(bytes), 0, heads * s.dim, s.dim, 1},
                       {0, 1, heads}};
    size_t dq_bytes = (size_t)(ROWS * HEADS * s.dim) * ra_dtype_bytes(acc);
    if (!overwrite) {
        CHECK(cudaMemset(part.dk.data, 0, bytes));
        CHECK(cudaMemset(part.dv.data, 0, bytes));
    }
    ra_context context = {};
    context.threads = 1;
    void *lse = acc_on_device(acc, c.lse.data(), ROWS * HEADS),
         *delta = acc_on_device(acc, c.delta.data(), ROWS * HEADS);
    ra_prepared *prepared = prepared_of(s, c.list, NULL, 1, RA_BACKWARD);
    expect(kernel->overwrites(prepared) == ROWS * heads, "the number of rows that a call overwrites", seed, s.dtype);
    ra_backward_call call = {&s, q, dout, lse, delta, &part, c.list, dq, context, prepared, overwrite};
    bool writes_queries = kernel->overwrites_queries(prepared) == ROWS * HEADS;
    expect(writes_queries == has_hopper_kernel(s.dtype, s.dim), "whether a call overwrites dq", seed, s.dtype);
    call.overwrite_queries = overwrite && writes_queries;
    if (call.overwrite_queries) CHECK(cudaMemset(dq.data, 0x41, dq_bytes));
    kernel->backward(&call);
    CHECK(cudaDeviceSynchronize());
    std::vector<unsigned char> both = bytes_from(part.dk.data, bytes), dv = bytes_from(part.dv.data, bytes);
    std::vector<unsigned char> queries = bytes_from(dq.data, dq_bytes);
    both.insert(both.end(), dv.begin(), dv.end());
    both.insert(both.end(), queries.begin(), queries.end());
    kernel->discard(prepared);
    give_all_back();
    return both;
}

/* Those of the outputs dk, dv and dq, of the inputs' type, their elements `step` apart: by a call that finishes them,
 * or stored. */
static std::vector<unsigned char> run_to_outputs(const overwrite_case &c, int finish, int64_t step) {
    ra_shape s = c.shape;
    int64_t heads = s.heads_kv, each = ROWS * heads * s.dim;
    size_t bytes = (size_t)(each * step) * ra_dtype_bytes(s.dtype), sum_bytes = (size_t)each * sizeof(float);
    std::vector<double> zeros((size_t)(ROWS * HEADS * s.dim));
    s.out_dtype = s.dtype;
    ra_view q = rows_on_device(s.dtype, c.q, HEADS, s.dim), dout = rows_on_device(s.dtype, c.dout, HEADS, s.dim);
    ra_view dq = rows_on_device(RA_F32, zeros, HEADS, s.dim);
    size_t dq_bytes = (size_t)(ROWS * HEADS * s.dim * step) * ra_dtype_bytes(s.dtype);
    ra_view dq_out = {take(dq_bytes), 0, HEADS * s.dim * step, s.dim * step, step};
    CHECK(cudaMemset(dq_out.data, 0, dq_bytes));
    ra_view outputs[2], sums[2];
    for (int i = 0; i < 2; i++) {
        outputs[i] = {take(bytes), 0, heads * s.dim * step, s.dim * step, step};
        sums[i] = {take(sum_bytes), 0, heads * s.dim, s.dim, 1};
        CHECK(cudaMemset(outputs[i].data, 0, bytes));
    }
    ra_kv_rows part = {rows_on_device(s.dtype, c.k, heads, s.dim),
                       rows_on_device(s.dtype, c.v, heads, s.dim),
                       finish ? outputs[0] : sums[0],
                       finish ? outputs[1] : sums[1],
                       {0, 1, heads}};
    ra_context context = {};
    context.threads = 1;
    void *lse = acc_on_device(RA_F32, c.lse.data(), ROWS * HEADS),
         *delta = acc_on_device(RA_F32, c.delta.data(), ROWS * HEADS);
    ra_prepared *prepared = prepared_of(s, c.list, NULL, 1, RA_BACKWARD);
    ra_backward_call call = {&s, q, dout, lse, delta, &part, c.list, dq, context, prepared, 1};
    call.finish = call.finish_queries = call.overwrite_queries = finish;
    call.dq_out = dq_out;
    expect(kernel->finishes(prepared), "a call that can finish dk and dv", 0, s.dtype);
    expect(kernel->finishes_queries(prepared), "a call that can finish dq", 0, s.dtype);
    if (finish) CHECK(cudaMemset(dq.data, 0x41, zeros.size() * sizeof(float)));
    kernel->backward(&call);
    for (int i = 0; i < 2 && !finish; i++) kernel->store(&s, outputs[i], sums[i], ROWS, heads, s.dim, &context);
    if (!finish) kernel->store(&s, dq_out, dq, ROWS, HEADS, s.dim, &context);
    CHECK(cudaDeviceSynchronize());
    std::vector<unsigned char> all = bytes_from(outputs[0].data, bytes), dv = bytes_from(outputs[1].data, bytes);
    std::vector<unsigned char> queries = bytes_from(dq_out.data, dq_bytes);
    all.insert(all.end(), dv.begin(), dv.end());
    all.insert(all.end(), queries.begin(), queries.end());
    kernel->discard(prepared);
    give_all_back();
    return all;
}

void check_overwrite(unsigned seed, ra_dtype dtype) {
    static const int64_t dims[] = {40, 64, 128, 200};
    for (int i = 0; i < 4; i++) {
        int nonfinite = i % 2, rounds = 1 + i / 2;
        overwrite_case c;
        make_case(&c, dtype, dims[seed % 4], nonfinite, rounds, seed);
        const char *what = nonfinite ? "overwritten gradients, with an infinity" : "overwritten gradients";
        expect(run(c, 1, seed) == run(c, 0, seed), what, seed, dtype);
        if (rounds == 2) continue; /* dk and dv are not whole with the first */
        for (int64_t step = 1; step <= 2 && has_hopper_kernel(dtype, dims[seed % 4]); step++)
            expect(run_to_outputs(c, 1, step) == run_to_outputs(c, 0, step), "finished dk, dv or dq", seed, dtype);
    }
}
