#include "check_device.h"

std::vector<unsigned char> bytes_from(const void *device, size_t bytes) {
    std::vector<unsigned char> host(bytes + 1);
    CHECK(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost));
    return host;
}

std::vector<double> doubles_from(ra_dtype dtype, const void *device, int64_t count) {
    std::vector<unsigned char> raw = bytes_from(device, (size_t)count * ra_dtype_bytes(dtype));
    std::vector<double> x((size_t)count);
    ra_convert(RA_F64, x.data(), dtype, raw.data(), count);
    return x;
}

ra_view on_device(const test_tensor &x) {
    ra_view view = x.view;
    view.data = take_copy(x.memory, (size_t)x.elements * ra_dtype_bytes(x.dtype));
    return view;
}

ra_view filled(const test_tensor &x, double value) {
    std::vector<double> wide((size_t)x.elements, value);
    std::vector<unsigned char> narrow((size_t)x.elements * ra_dtype_bytes(x.dtype));
    ra_convert(x.dtype, narrow.data(), RA_F64, wide.data(), x.elements);
    ra_view view = x.view;
    view.data = take_copy(narrow.data(), narrow.size());
    return view;
}

void *acc_on_device(ra_dtype acc, const double *from, int64_t count) {
    std::vector<unsigned char> narrow((size_t)count * ra_dtype_bytes(acc) + 1);
    ra_convert(acc, narrow.data(), RA_F64, from, count);
    return take_copy(narrow.data(), (size_t)count * ra_dtype_bytes(acc));
}

void copy_parts(const tile_case &c, ra_kv_rows *parts, double start) {
    for (int i = 0; i < TEST_PARTS; i++)
        parts[i] = {on_device(c.k[i]), on_device(c.v[i]), filled(c.dk[i], start), filled(c.dv[i], start),
                    c.parts[i].heads};
}

int64_t rows_of(const ra_shape &shape) {
    return shape.batch * shape.heads_q * shape.rows_q;
}

void accumulate_calls(const tile_case &c, const ra_kv_rows *parts, ra_view q, ra_state state, ra_context context) {
    kernel->begin(&c.shape, state, &context);
    for (int i = 0; i < TEST_CALLS; i++) {
        ra_prepared *prepared = prepared_of(c.shape, c.calls[i].list, parts, TEST_PARTS, RA_FORWARD);
        ra_forward_call call = {&c.shape, q, parts, c.calls[i].list, state, context, prepared};
        kernel->forward(&call);
        CHECK(cudaDeviceSynchronize());
        kernel->discard(prepared);
    }
}

void backward_calls(const tile_case &c, const ra_kv_rows *parts, ra_view q, ra_view dout, const void *lse,
                    const void *delta, ra_view dq, ra_context context) {
    for (int i = 0; i < TEST_CALLS; i++) {
        ra_prepared *prepared = prepared_of(c.shape, c.calls[i].list, parts, TEST_PARTS, RA_BACKWARD);
        ra_backward_call call = {&c.shape, q, dout, lse, delta, parts, c.calls[i].list, dq, context, prepared};
        kernel->backward(&call);
        CHECK(cudaDeviceSynchronize());
        kernel->discard(prepared);
    }
}
