/* Both passes of a problem of gpu_nonfinite.cu, and what they put out. */
#include "nonfinite_problems.h"

#include <algorithm>
#include <cmath>

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
    int64_t first = first_row_of(p, rank), heads = p.shape.heads_q, dim_v = p.shape.dim_v;
    ra_query_rows x = {};
    x.q = rows_from(p.q.view(), first, p.shape.dtype);
    x.rows = first_row_of(p, rank + 1) - first;
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

results run_problem(const problem &p) {
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
