/* Inputs with infinities and NaN, and rows that saw nothing: by the ref kernel and on the device. */
#include "check_device.h"
#include "check_errors.h"
#include "kernel_checks.h"

extern "C" {
#include "kernel/ref/ref.h"
#include "kernel/rows.h"
}

#include <cmath>
#include <cstring>

/* Puts an infinity or a NaN into a few elements, in memory. */
static void spoil(rng *r, test_tensor *x) {
    static const double nonfinite[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        int64_t at = rng_between(r, 0, x->elements - 1);
        ra_convert(x->dtype, (char *)x->memory + at * (int64_t)ra_dtype_bytes(x->dtype), RA_F64, &nonfinite[i], 1);
    }
}

/* Elements that the ref kernel has finite are finite here too, and close; and the other way round. Of delta only what
 * is finite is compared: where a key's score is -inf and its value is not finite o may be NaN (gpu_nonfinite.cu). */
static void expect_tame(const tile_case &c, const char *what, ra_dtype dtype, const void *want, const void *device,
                        int64_t count) {
    std::vector<double> got = doubles_from(dtype, device, count), right((size_t)count);
    ra_convert(RA_F64, right.data(), dtype, want, count);
    double off = 0, size = 1;
    int64_t leaks = 0, lost = 0;
    for (size_t i = 0; i < (size_t)count; i++) {
        leaks += std::isfinite(right[i]) && !std::isfinite(got[i]);
        lost += !std::isfinite(right[i]) && std::isfinite(got[i]);
        if (!std::isfinite(right[i]) || !std::isfinite(got[i])) continue;
        off += (got[i] - right[i]) * (got[i] - right[i]);
        size += right[i] * right[i];
    }
    if (strcmp(what, "delta") == 0) leaks = lost = 0;
    if (leaks == 0 && lost == 0 && std::sqrt(off / size) <= 2e-2) return;
    fprintf(stderr, "%s, seed %u, nonfinite inputs: %s: %lld leaks, %lld lost, off by %g\n",
            ra_dtype_name(c.shape.dtype), c.seed, what, (long long)leaks, (long long)lost, std::sqrt(off / size));
    failures++;
}

/* What goes into the backward pass, and what the ref kernel gives, in the accumulation type. */
struct nonfinite_want {
    std::vector<unsigned char> in_lse, in_delta;
    std::vector<unsigned char> lse, delta, dq, dk[TEST_PARTS], dv[TEST_PARTS];
};

static nonfinite_want run_ref(const tile_case &c, ra_context context) {
    const ra_shape &s = c.shape;
    size_t acc = ra_dtype_bytes(c.acc), all = (size_t)(s.states * rows_of(s));
    std::vector<unsigned char> m(all * acc), l(all * acc), o((size_t)c.state_o.elements * acc);
    nonfinite_want want;
    for (auto *x : {&want.in_lse, &want.in_delta}) x->resize(all * acc + 1);
    for (auto *x : {&want.lse, &want.delta}) x->resize(all * acc);
    want.dq.resize((size_t)c.dq.elements * acc);
    ra_state state = {c.state_o.view, c.o_state, m.data(), l.data()};
    state.o.data = o.data();
    ra_rows_begin(&s, state, &context);
    ra_convert(c.acc, want.in_lse.data(), RA_F64, c.state_lse, (int64_t)all);
    ra_convert(c.acc, want.in_delta.data(), RA_F64, c.state_delta, (int64_t)all);
    ra_view dq = c.dq.view;
    dq.data = want.dq.data();
    ra_kv_rows parts[TEST_PARTS];
    for (int i = 0; i < TEST_PARTS; i++) {
        want.dk[i].resize((size_t)c.dk[i].elements * acc);
        want.dv[i].resize((size_t)c.dv[i].elements * acc);
        parts[i] = c.parts[i];
        parts[i].dk.data = want.dk[i].data();
        parts[i].dv.data = want.dv[i].data();
    }
    for (int i = 0; i < TEST_CALLS; i++) {
        ra_forward_call forward = {&s, c.q.view, parts, c.calls[i].list, state, context, NULL};
        ra_ref_forward(&forward);
        const void *lse = want.in_lse.data(), *delta = want.in_delta.data();
        ra_backward_call backward = {&s, c.q.view, c.dout.view, lse, delta, parts, c.calls[i].list, dq, context, NULL};
        ra_ref_backward(&backward);
    }
    ra_rows_carry(&s, state, c.dout.view, want.lse.data(), want.delta.data(), &context);
    return want;
}

static void expect_like_ref(const tile_case &c, const nonfinite_want &want, ra_context context) {
    const ra_shape &s = c.shape;
    int64_t all = s.states * rows_of(s);
    size_t bytes = (size_t)all * ra_dtype_bytes(c.acc);
    ra_kv_rows parts[TEST_PARTS];
    copy_parts(c, parts, 0);
    ra_state state = {c.state_o.view, c.o_state, take(bytes), take(bytes)};
    state.o.data = take((size_t)c.state_o.elements * ra_dtype_bytes(c.acc));
    ra_view q = on_device(c.q), dout = on_device(c.dout), dq = filled(c.dq, 0);
    void *lse = take(bytes), *delta = take(bytes);
    void *in_lse = take_copy(want.in_lse.data(), bytes), *in_delta = take_copy(want.in_delta.data(), bytes);
    accumulate_calls(c, parts, q, state, context);
    kernel->carry(&s, state, dout, lse, delta, &context);
    backward_calls(c, parts, q, dout, in_lse, in_delta, dq, context);
    CHECK(cudaDeviceSynchronize());
    expect_tame(c, "lse", c.acc, want.lse.data(), lse, all);
    expect_tame(c, "delta", c.acc, want.delta.data(), delta, all);
    expect_tame(c, "dq", c.acc, want.dq.data(), dq.data, c.dq.elements);
    for (int i = 0; i < TEST_PARTS; i++) {
        expect_tame(c, "dk", c.acc, want.dk[i].data(), parts[i].dk.data, c.dk[i].elements);
        expect_tame(c, "dv", c.acc, want.dv[i].data(), parts[i].dv.data, c.dv[i].elements);
    }
    give_all_back();
}

static void check_one(unsigned seed, ra_dtype dtype, int plain) {
    tile_case *c = new tile_case;
    (plain ? tile_case_make_plain : tile_case_make)(c, seed, dtype, 72);
    rng r = {seed};
    spoil(&r, &c->q);
    spoil(&r, &c->dout);
    for (int i = 0; i < TEST_PARTS; i++) {
        spoil(&r, &c->k[i]);
        spoil(&r, &c->v[i]);
    }
    for (int64_t i = 0; i < c->shape.states * rows_of(c->shape); i += 5) c->state_lse[i] = -INFINITY;
    ra_context context = {};
    context.threads = 1;
    expect_like_ref(*c, run_ref(*c, context), context);
    tile_case_free(c);
    delete c;
}

void check_nonfinite(unsigned seed, ra_dtype dtype) {
    for (int plain = 0; plain < 2; plain++) check_one(seed, dtype, plain);
}
