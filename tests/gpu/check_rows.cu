/* The row operations pack, add_rows, add, store, fill and delta, against those of the CPU. All but delta are one
 * rounding for each element, so the bits must be the same. */
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

void check_rows(unsigned seed, ra_dtype dtype) {
    rng r = {seed};
    ra_shape s = {};
    s.batch = rng_between(&r, 1, 3);
    s.heads_kv = rng_between(&r, 1, 3);
    s.heads_q = s.heads_kv * rng_between(&r, 1, 2);
    s.dim = rng_between(&r, 1, 9) * (rng_one_in(&r, 2) ? 8 : 5);
    s.dim_v = rng_between(&r, 1, 9) * 8;
    s.rows_q = rng_between(&r, 1, 300);
    s.states = 1;
    s.scale = 1;
    s.weight = test_weight(&r);
    s.dtype = s.out_dtype = dtype;
    if (dtype != RA_F64 && rng_one_in(&r, 2)) s.out_dtype = RA_F32;
    ra_dtype acc = dtype == RA_F64 ? RA_F64 : RA_F32;
    int64_t rows = s.rows_q, each = s.dim + s.dim_v;
    ra_launch launch = {};
    launch.threads = 1;

    test_tensor k = test_tensor_make(&r, dtype, s.batch, rows, s.heads_kv, s.dim);
    test_tensor v = test_tensor_make(&r, dtype, s.batch, rows, s.heads_kv, s.dim_v);
    ra_span some = {rng_between(&r, 0, rows - 1), rng_between(&r, 1, 3), 0}, heads = {0, 1, s.heads_kv};
    some.count = 1 + (rows - 1 - some.first) / some.stride;
    int64_t count = heads.count * some.count * s.batch * each;
    std::vector<unsigned char> records((size_t)count * 8);
    void *to = take((size_t)count * 8);
    ra_rows_pack(&s, records.data(), k.view, v.view, some, heads, &launch);
    kernel->pack(&s, to, on_device(k), on_device(v), some, heads, &launch);
    expect(same_bytes(records.data(), to, (size_t)count * ra_dtype_bytes(dtype)), "pack", seed, dtype);

    test_tensor dk = test_tensor_make(&r, acc, s.batch, rows, s.heads_kv, s.dim);
    test_tensor dv = test_tensor_make(&r, acc, s.batch, rows, s.heads_kv, s.dim_v);
    test_tensor from = test_tensor_make(&r, acc, 1, 1, 1, count), sum = test_tensor_make(&r, acc, 1, 1, 1, count);
    ra_view gpu_dk = on_device(dk), gpu_dv = on_device(dv), gpu_from = on_device(from), gpu_sum = on_device(sum);
    kernel->add_rows(&s, gpu_dk, gpu_dv, gpu_from.data, some, heads, &launch);
    ra_rows_add_rows(&s, dk.view, dv.view, from.memory, some, heads, &launch);
    size_t acc_bytes = ra_dtype_bytes(acc);
    expect(same_bytes(dk.memory, gpu_dk.data, (size_t)dk.elements * acc_bytes), "dk of add_rows", seed, dtype);
    expect(same_bytes(dv.memory, gpu_dv.data, (size_t)dv.elements * acc_bytes), "dv of add_rows", seed, dtype);
    kernel->add(&s, gpu_sum.data, gpu_from.data, count, &launch);
    ra_rows_add(&s, sum.memory, from.memory, count, &launch);
    expect(same_bytes(sum.memory, gpu_sum.data, (size_t)count * acc_bytes), "add", seed, dtype);

    test_tensor out = test_tensor_make(&r, s.out_dtype, s.batch, rows, s.heads_kv, s.dim);
    ra_view gpu_out = on_device(out);
    size_t out_bytes = (size_t)out.elements * ra_dtype_bytes(s.out_dtype);
    kernel->store(&s, gpu_out, gpu_dk, rows, s.heads_kv, s.dim, &launch);
    ra_rows_store(&s, out.view, dk.view, rows, s.heads_kv, s.dim, &launch);
    expect(same_bytes(out.memory, gpu_out.data, out_bytes), "store", seed, dtype);
    kernel->fill(&s, gpu_out, rows, s.heads_kv, s.dim, 0.3, &launch);
    ra_rows_fill(&s, out.view, rows, s.heads_kv, s.dim, 0.3, &launch);
    expect(same_bytes(out.memory, gpu_out.data, out_bytes), "fill", seed, dtype);

    test_tensor dout = test_tensor_make(&r, dtype, s.batch, rows, s.heads_q, s.dim_v);
    test_tensor o = test_tensor_make(&r, s.out_dtype, s.batch, rows, s.heads_q, s.dim_v);
    std::vector<unsigned char> delta((size_t)rows_of(s) * acc_bytes);
    void *gpu_delta = take(delta.size());
    kernel->delta(&s, on_device(dout), on_device(o), gpu_delta, &launch);
    ra_rows_delta(&s, dout.view, o.view, delta.data(), &launch);
    std::vector<double> got = doubles_from(acc, gpu_delta, rows_of(s)), want((size_t)rows_of(s));
    ra_convert(RA_F64, want.data(), acc, delta.data(), rows_of(s));
    expect(error_of(got.data(), want.data(), rows_of(s), 0, 0) < 1e-6, "delta", seed, dtype);
    for (test_tensor *x : {&k, &v, &dk, &dv, &from, &sum, &out, &dout, &o}) test_tensor_free(x);
    give_all_back();
}
