/* The row operations pack, add_rows, add, store, fill, merge and delta, against those of the CPU. All but merge and
 * delta are one rounding for each element, so the bits must be the same. */
#include "check_device.h"
#include "check_errors.h"
#include "kernel_checks.h"

extern "C" {
#include "kernel/rows.h"
}

#include <cstring>

static int same_bytes(const void *host, const void *device, size_t bytes) {
    return memcmp(host, bytes_from(device, bytes).data(), bytes) == 0;
}

/* A state of so many rows, in one array for each of o, m and l; some rows have seen nothing. */
struct row_state {
    test_tensor o, m, l;
};

static row_state make_row_state(rng *r, const ra_shape &s, ra_dtype acc, int64_t rows) {
    int64_t each = s.states * s.batch * s.heads_q * rows;
    row_state x = {test_tensor_make(r, acc, 1, 1, 1, each * s.dim_v), test_tensor_make(r, acc, 1, 1, 1, each),
                   test_tensor_make(r, acc, 1, 1, 1, each)};
    for (int64_t i = 0; i < each; i++)
        if (rng_one_in(r, 4)) {
            double none = -INFINITY, nothing = 0;
            ra_convert(acc, (char *)x.m.memory + i * (int64_t)ra_dtype_bytes(acc), RA_F64, &none, 1);
            ra_convert(acc, (char *)x.l.memory + i * (int64_t)ra_dtype_bytes(acc), RA_F64, &nothing, 1);
        }
    return x;
}

static ra_state state_of(const ra_shape &s, void *o, void *m, void *l, int64_t rows) {
    ra_state state = {};
    state.o = {o, s.heads_q * rows * s.dim_v, s.dim_v, rows * s.dim_v, 1};
    state.o_state = s.batch * s.heads_q * rows * s.dim_v;
    state.m = m;
    state.l = l;
    return state;
}

/* Exponentials differ in their last bit between libraries. */
static int nearly_same(ra_dtype acc, const test_tensor &host, const void *device) {
    std::vector<double> got = doubles_from(acc, device, host.elements), want((size_t)host.elements);
    ra_convert(RA_F64, want.data(), acc, host.memory, host.elements);
    for (int64_t i = 0; i < host.elements; i++) {
        double x = got[(size_t)i], y = want[(size_t)i];
        if (x != y && !(fabs(x - y) <= 3e-7 * (fabs(x) + fabs(y)))) return 0;
    }
    return 1;
}

static void check_merge(rng *r, ra_shape s, ra_dtype acc, unsigned seed, const ra_context *context) {
    s.states = rng_between(r, 1, 3);
    ra_span rows = {rng_between(r, 0, s.rows_q - 1), 1, 0};
    rows.count = rng_between(r, 1, s.rows_q - rows.first);
    row_state to = make_row_state(r, s, acc, s.rows_q), from = make_row_state(r, s, acc, rows.count);
    void *o = on_device(to.o).data, *m = on_device(to.m).data, *l = on_device(to.l).data;
    kernel->merge(&s, state_of(s, o, m, l, s.rows_q), rows,
                  state_of(s, on_device(from.o).data, on_device(from.m).data, on_device(from.l).data, rows.count),
                  context);
    ra_rows_merge(&s, state_of(s, to.o.memory, to.m.memory, to.l.memory, s.rows_q), rows,
                  state_of(s, from.o.memory, from.m.memory, from.l.memory, rows.count), context);
    expect(nearly_same(acc, to.m, m), "m of merge", seed, s.dtype);
    expect(nearly_same(acc, to.l, l), "l of merge", seed, s.dtype);
    expect(nearly_same(acc, to.o, o), "o of merge", seed, s.dtype);
    for (test_tensor *x : {&to.o, &to.m, &to.l, &from.o, &from.m, &from.l}) test_tensor_free(x);
}

void check_rows(unsigned seed, ra_dtype dtype) {
    rng r = {seed};
    ra_shape s = {};
    s.batch = rng_between(&r, 1, 3);
    s.heads_kv = rng_between(&r, 1, 3);
    s.heads_q = s.heads_kv * rng_between(&r, 1, 2);
    s.dim = rng_between(&r, 1, 9) * (rng_one_in(&r, 2) ? 8 : 5);
    s.dim_v = rng_between(&r, 1, 9) * 8;
    s.rows_q =
        rng_one_in(&r, 6) ? rng_between(&r, 2000, 3000) : rng_between(&r, 1, 300); /* more than there are warps */
    s.states = 1;
    s.scale = 1;
    s.weight = test_weight(&r);
    s.dtype = s.out_dtype = dtype;
    if (dtype != RA_F64 && rng_one_in(&r, 2)) s.out_dtype = RA_F32;
    ra_dtype acc = dtype == RA_F64 ? RA_F64 : RA_F32;
    int64_t rows = s.rows_q, each = s.dim + s.dim_v;
    ra_context context = {};
    context.threads = 1;

    test_tensor k = test_tensor_make(&r, dtype, s.batch, rows, s.heads_kv, s.dim);
    test_tensor v = test_tensor_make(&r, dtype, s.batch, rows, s.heads_kv, s.dim_v);
    ra_span some = {rng_between(&r, 0, rows - 1), rng_between(&r, 1, 3), 0}, heads = {0, 1, s.heads_kv};
    some.count = 1 + (rows - 1 - some.first) / some.stride;
    int64_t count = heads.count * some.count * s.batch * each;
    std::vector<unsigned char> records((size_t)count * 8);
    void *to = take((size_t)count * 8);
    ra_rows_pack(&s, records.data(), k.view, v.view, some, heads, &context);
    kernel->pack(&s, to, on_device(k), on_device(v), some, heads, &context);
    expect(same_bytes(records.data(), to, (size_t)count * ra_dtype_bytes(dtype)), "pack", seed, dtype);

    test_tensor dk = test_tensor_make(&r, acc, s.batch, rows, s.heads_kv, s.dim);
    test_tensor dv = test_tensor_make(&r, acc, s.batch, rows, s.heads_kv, s.dim_v);
    test_tensor from = test_tensor_make(&r, acc, 1, 1, 1, count), sum = test_tensor_make(&r, acc, 1, 1, 1, count);
    ra_view gpu_dk = on_device(dk), gpu_dv = on_device(dv), gpu_from = on_device(from), gpu_sum = on_device(sum);
    kernel->add_rows(&s, gpu_dk, gpu_dv, gpu_from.data, some, heads, &context);
    ra_rows_add_rows(&s, dk.view, dv.view, from.memory, some, heads, &context);
    size_t acc_bytes = ra_dtype_bytes(acc);
    expect(same_bytes(dk.memory, gpu_dk.data, (size_t)dk.elements * acc_bytes), "dk of add_rows", seed, dtype);
    expect(same_bytes(dv.memory, gpu_dv.data, (size_t)dv.elements * acc_bytes), "dv of add_rows", seed, dtype);
    kernel->add(&s, gpu_sum.data, gpu_from.data, count, &context);
    ra_rows_add(&s, sum.memory, from.memory, count, &context);
    expect(same_bytes(sum.memory, gpu_sum.data, (size_t)count * acc_bytes), "add", seed, dtype);

    test_tensor out = test_tensor_make(&r, s.out_dtype, s.batch, rows, s.heads_kv, s.dim);
    ra_view gpu_out = on_device(out);
    size_t out_bytes = (size_t)out.elements * ra_dtype_bytes(s.out_dtype);
    kernel->store(&s, gpu_out, gpu_dk, rows, s.heads_kv, s.dim, &context);
    ra_rows_store(&s, out.view, dk.view, rows, s.heads_kv, s.dim, &context);
    expect(same_bytes(out.memory, gpu_out.data, out_bytes), "store", seed, dtype);
    kernel->fill(&s, gpu_out, rows, s.heads_kv, s.dim, 0.3, &context);
    ra_rows_fill(&s, out.view, rows, s.heads_kv, s.dim, 0.3, &context);
    expect(same_bytes(out.memory, gpu_out.data, out_bytes), "fill", seed, dtype);

    check_merge(&r, s, acc, seed, &context);
    test_tensor dout = test_tensor_make(&r, dtype, s.batch, rows, s.heads_q, s.dim_v);
    test_tensor o = test_tensor_make(&r, s.out_dtype, s.batch, rows, s.heads_q, s.dim_v);
    std::vector<unsigned char> delta((size_t)rows_of(s) * acc_bytes);
    void *gpu_delta = take(delta.size());
    kernel->delta(&s, on_device(dout), on_device(o), gpu_delta, &context);
    ra_rows_delta(&s, dout.view, o.view, delta.data(), &context);
    std::vector<double> got = doubles_from(acc, gpu_delta, rows_of(s)), want((size_t)rows_of(s));
    ra_convert(RA_F64, want.data(), acc, delta.data(), rows_of(s));
    expect(error_of(got.data(), want.data(), rows_of(s), 0, 0) < 1e-6, "delta", seed, dtype);
    for (test_tensor *x : {&k, &v, &dk, &dv, &from, &sum, &out, &dout, &o}) test_tensor_free(x);
    give_all_back();
}
