/* The CUDA kernels against the definition of a tile and against the ref kernel; with --bench, how fast they are.
 *
 *   kernel_check [--kernel NAME] [--seeds N] [--seed FIRST] [--repeats N] [--bench]
 *
 * The kernel is the best one that this GPU can run, unless one is named.
 *
 * Builds without the rest of the project, from its root:
 *
 *   mkdir -p build/kernel_check && cd build/kernel_check
 *   INC="-I../../include -I../../src -I../../tests"
 *   gcc -std=gnu11 -O2 $INC -c ../../src/base/{status,dtype}.c ../../src/core/{span,tile}.c \
 *       ../../src/kernel/{rows,row_io,parallel}.c ../../src/kernel/ref/{ref,ref_forward,ref_backward}.c \
 *       ../../tests/support/tile_case.c
 *   find ../../src/kernel/cuda/sm90 -name "*.cu" |
 *       xargs -P 2 -n 1 nvcc -O3 -std=c++17 $INC -gencode arch=compute_90a,code=sm_90a -c
 *   find ../../src/kernel/cuda ../../tests/gpu/kernel_check.cu -name "*.cu" -not -path "*sm90*" |
 *       xargs -P 2 -n 1 nvcc -O3 -std=c++17 $INC -DRA_HAVE_SM90=1 -gencode arch=compute_80,code=sm_80 \
 *       -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90 -c
 *   nvcc *.o -o kernel_check -lpthread -lm
 *
 * Tolerances, ||got - want|| / ||want||: f64 and f32 leave what their arithmetic leaves. With bf16 and f16 inputs
 * everything but P and dS is exact products in f32; P and dS are rounded to 8 or 11 bits before they are multiplied,
 * half a unit each at random, and so may be the output: 2^-9 or 2^-12 twice, and more in gradients, where terms cancel.
 * cuda_tf32 rounds all that it multiplies to 11 bits, the inputs too: what a score is off by is exponentiated.
 */
#include "kernel/cuda/cuda_kernels.h"

extern "C" {
#include "kernel/ref/ref.h"
#include "kernel/rows.h"
#include "support/tile_case.h"
}

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <vector>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t check_error = (call);                                                                              \
        if (check_error != cudaSuccess) {                                                                              \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(check_error));                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const ra_dtype types[] = {RA_F64, RA_F32, RA_BF16, RA_F16};
static const ra_kernel *kernel;
static int failures;

/* ---- device memory --------------------------------------------------------------------------------------------------
 */

static std::vector<void *> taken;

static void *take(size_t bytes) {
    void *memory;
    CHECK(cudaMalloc(&memory, bytes + 256));
    CHECK(cudaMemset(memory, 0xff, bytes + 256)); /* a NaN in every type */
    taken.push_back(memory);
    return memory;
}

static void *take_copy(const void *from, size_t bytes) {
    void *memory = take(bytes);
    CHECK(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice));
    return memory;
}

static void give_all_back(void) {
    for (void *memory : taken) CHECK(cudaFree(memory));
    taken.clear();
}

static std::vector<unsigned char> bytes_from(const void *device, size_t bytes) {
    std::vector<unsigned char> host(bytes + 1);
    CHECK(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost));
    return host;
}

static std::vector<double> doubles_from(ra_dtype dtype, const void *device, int64_t count) {
    std::vector<unsigned char> raw = bytes_from(device, (size_t)count * ra_dtype_bytes(dtype));
    std::vector<double> x((size_t)count);
    ra_convert(RA_F64, x.data(), dtype, raw.data(), count);
    return x;
}

/* A copy of a tensor's memory, and the view of it. */
static ra_view on_device(const test_tensor &x) {
    ra_view view = x.view;
    view.data = take_copy(x.memory, (size_t)x.elements * ra_dtype_bytes(x.dtype));
    return view;
}

/* Memory for a tensor, all elements being one value. */
static ra_view filled(const test_tensor &x, double value) {
    std::vector<double> wide((size_t)x.elements, value);
    std::vector<unsigned char> narrow((size_t)x.elements * ra_dtype_bytes(x.dtype));
    ra_convert(x.dtype, narrow.data(), RA_F64, wide.data(), x.elements);
    ra_view view = x.view;
    view.data = take_copy(narrow.data(), narrow.size());
    return view;
}

static void *acc_on_device(ra_dtype acc, const double *from, int64_t count) {
    std::vector<unsigned char> narrow((size_t)count * ra_dtype_bytes(acc) + 1);
    ra_convert(acc, narrow.data(), RA_F64, from, count);
    return take_copy(narrow.data(), (size_t)count * ra_dtype_bytes(acc));
}

static ra_prepared *prepared_of(const ra_shape &shape, const ra_tile_list &list, const ra_kv_part *parts, int64_t count,
                                ra_pass pass) {
    ra_prepared *prepared = NULL;
    if (kernel->prepare(&shape, &list, parts, count, pass, &prepared) != RA_OK) {
        fprintf(stderr, "prepare: %s\n", ra_last_error());
        exit(1);
    }
    return prepared;
}

/* ---- what was found -------------------------------------------------------------------------------------------------
 */

struct worst_error {
    double error;
    unsigned seed;
};

enum { OF_O, OF_LSE, OF_DELTA, OF_DQ, OF_DK, OF_DV, OF_COUNT };
static const char *const error_names[OF_COUNT] = {"o", "lse", "delta", "dq", "dk", "dv"};
static worst_error worst[4][OF_COUNT];

static int multiplies_as_tf32(const ra_shape &shape) {
    return shape.dtype == RA_F32 && strcmp(kernel->name, "cuda_tf32") == 0;
}

static double limit_of(const ra_shape &shape, int of) {
    if (multiplies_as_tf32(shape)) return of == OF_LSE ? 5e-4 : of == OF_O || of == OF_DELTA ? 2e-3 : 4e-3;
    if (of == OF_LSE) return shape.dtype == RA_F64 ? 1e-13 : 5e-6;
    switch (shape.dtype) {
    case RA_F64:
        return 1e-12;
    case RA_F32:
        return 5e-6;
    case RA_BF16:
        return of == OF_O || of == OF_DELTA ? 1e-2 : 1.5e-2;
    default:
        return of == OF_O || of == OF_DELTA ? 1.5e-3 : 2e-3;
    }
}

/* NaN and infinities count as equal where both have them. Sizes below `least` for each element are not relative. */
static double error_of(const double *got, const double *want, int64_t count, double start, double least) {
    double off = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        double right = want[i] + start;
        if (!std::isfinite(got[i]) && !std::isfinite(right)) continue;
        off += (got[i] - right) * (got[i] - right);
        size += right * right;
    }
    return off == 0 ? 0 : std::sqrt(off / std::max(size, least * least * (double)count));
}

static void note(const tile_case &c, int of, double error) {
    int type = (int)(std::find(types, types + 4, c.shape.dtype) - types);
    worst_error &w = worst[type][of];
    if (!(error <= w.error)) w = {error, c.seed};
    if (error <= limit_of(c.shape, of)) return;
    fprintf(stderr, "%s, seed %u, dim %d, %d: %s is off by %g\n", ra_dtype_name(c.shape.dtype), c.seed,
            (int)c.shape.dim, (int)c.shape.dim_v, error_names[of], error);
    failures++;
}

static void expect(int holds, const char *what, unsigned seed, ra_dtype dtype) {
    if (holds) return;
    fprintf(stderr, "%s, seed %u: %s is wrong\n", ra_dtype_name(dtype), seed, what);
    failures++;
}

/* ---- random tiles ---------------------------------------------------------------------------------------------------
 */

static int64_t rows_of(const ra_shape &shape) {
    return shape.batch * shape.heads_q * shape.rows_q;
}

static std::vector<double> gather_o(const tile_case &c, const std::vector<double> &all, ra_view view) {
    const ra_shape &s = c.shape;
    std::vector<double> o((size_t)(rows_of(s) * s.dim_v));
    for (int64_t i = 0; i < (int64_t)o.size(); i++) {
        int64_t d = i % s.dim_v, row = i / s.dim_v % s.rows_q, h = i / s.dim_v / s.rows_q % s.heads_q;
        o[(size_t)i] = all[(size_t)test_index(view, i / s.dim_v / s.rows_q / s.heads_q, row, h, d)];
    }
    return o;
}

static void copy_parts(const tile_case &c, ra_kv_part *parts, double start) {
    for (int i = 0; i < TEST_PARTS; i++)
        parts[i] = {on_device(c.k[i]), on_device(c.v[i]), filled(c.dk[i], start), filled(c.dv[i], start),
                    c.parts[i].heads};
}

static int64_t unwritten(ra_dtype dtype, const std::vector<unsigned char> &raw, int64_t count) {
    size_t each = ra_dtype_bytes(dtype);
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++)
        found += std::all_of(raw.begin() + i * (int64_t)each, raw.begin() + (i + 1) * (int64_t)each,
                             [](unsigned char x) { return x == 0xff; });
    return found;
}

/* Runs the case's forward calls; state_out: on the device. */
static void fold_calls(const tile_case &c, const ra_kv_part *parts, ra_view q, ra_state state, ra_launch launch) {
    kernel->begin(&c.shape, state, &launch);
    for (int i = 0; i < TEST_CALLS; i++) {
        ra_prepared *prepared = prepared_of(c.shape, c.calls[i].list, parts, TEST_PARTS, RA_FORWARD);
        ra_forward_call call = {&c.shape, q, parts, c.calls[i].list, state, launch, prepared};
        kernel->forward(&call);
        CHECK(cudaDeviceSynchronize());
        kernel->discard(prepared);
    }
}

static void check_forward(const tile_case &c) {
    const ra_shape &s = c.shape;
    int64_t rows = rows_of(s), all = s.states * rows;
    size_t acc = ra_dtype_bytes(c.acc);
    ra_launch launch = {};
    launch.threads = 1;
    ra_kv_part parts[TEST_PARTS];
    copy_parts(c, parts, 0);
    ra_state state = {c.state_o.view, c.o_state, take((size_t)all * acc), take((size_t)all * acc)};
    state.o.data = take((size_t)c.state_o.elements * acc);
    ra_view out = c.out.view, dout = on_device(c.dout);
    out.data = take((size_t)c.out.elements * ra_dtype_bytes(s.out_dtype));
    if (c.in_place) out = state.o;
    void *lse = take((size_t)rows * acc), *state_lse = take((size_t)all * acc), *delta = take((size_t)all * acc);
    fold_calls(c, parts, on_device(c.q), state, launch);
    kernel->resume(&s, state, dout, state_lse, delta, &launch);
    kernel->finish(&s, state, out, lse, &launch);
    CHECK(cudaDeviceSynchronize());
    int64_t elements = c.in_place ? c.state_o.elements : c.out.elements;
    std::vector<double> o = gather_o(c, doubles_from(s.out_dtype, out.data, elements), out);
    note(c, OF_O, error_of(o.data(), c.o, (int64_t)o.size(), 0, 0));
    note(c, OF_LSE, error_of(doubles_from(c.acc, lse, rows).data(), c.lse, rows, 0, 0));
    note(c, OF_LSE, error_of(doubles_from(c.acc, state_lse, all).data(), c.state_lse, all, 0, 0));
    note(c, OF_DELTA, error_of(doubles_from(c.acc, delta, all).data(), c.state_delta, all, 0, 1));
    int64_t gaps = c.state_o.elements - all * s.dim_v;
    auto raw = bytes_from(state.o.data, (size_t)c.state_o.elements * acc);
    expect(unwritten(c.acc, raw, c.state_o.elements) == gaps, "what was written of o", c.seed, s.dtype);
    give_all_back();
}

/* Gradients of the case as bytes, for comparing bits. */
static std::vector<unsigned char> run_backward(const tile_case &c, double start, int errors) {
    const ra_shape &s = c.shape;
    int64_t all = s.states * rows_of(s);
    ra_launch launch = {};
    launch.threads = 1;
    ra_kv_part parts[TEST_PARTS];
    copy_parts(c, parts, start);
    ra_view q = on_device(c.q), dout = on_device(c.dout), dq = filled(c.dq, start);
    void *lse = acc_on_device(c.acc, c.state_lse, all), *delta = acc_on_device(c.acc, c.state_delta, all);
    for (int i = 0; i < TEST_CALLS; i++) {
        ra_prepared *prepared = prepared_of(s, c.calls[i].list, parts, TEST_PARTS, RA_BACKWARD);
        ra_backward_call call = {&s, q, dout, lse, delta, parts, c.calls[i].list, dq, launch, prepared};
        kernel->backward(&call);
        CHECK(cudaDeviceSynchronize());
        kernel->discard(prepared);
    }
    std::vector<unsigned char> raw = bytes_from(dq.data, (size_t)c.dq.elements * ra_dtype_bytes(c.acc));
    if (errors)
        note(c, OF_DQ,
             error_of(doubles_from(c.acc, dq.data, c.dq.elements).data(), c.dq_want, c.dq.elements, start, 1));
    for (int i = 0; i < TEST_PARTS; i++) {
        std::vector<double> dk = doubles_from(c.acc, parts[i].dk.data, c.dk[i].elements);
        std::vector<double> dv = doubles_from(c.acc, parts[i].dv.data, c.dv[i].elements);
        for (double x : dk) raw.insert(raw.end(), (unsigned char *)&x, (unsigned char *)(&x + 1));
        for (double x : dv) raw.insert(raw.end(), (unsigned char *)&x, (unsigned char *)(&x + 1));
        if (!errors) continue;
        note(c, OF_DK, error_of(dk.data(), c.dk_want[i], c.dk[i].elements, start, 1));
        note(c, OF_DV, error_of(dv.data(), c.dv_want[i], c.dv[i].elements, start, 1));
    }
    give_all_back();
    return raw;
}

static void check_random(unsigned first, unsigned seeds) {
    static const int64_t limits[] = {40, 64, 128, 256};
    for (unsigned seed = first; seed < first + seeds; seed++)
        for (ra_dtype dtype : types) {
            tile_case *c = new tile_case;
            tile_case_make(c, seed, dtype, limits[seed % 4]);
            check_forward(*c);
            run_backward(*c, seed % 2, 1);
            tile_case_free(c);
            delete c;
        }
}

static void check_repeats(int repeats) {
    for (unsigned seed = 300; repeats && seed < 304; seed++)
        for (ra_dtype dtype : types) {
            tile_case *c = new tile_case;
            tile_case_make(c, seed, dtype, 128);
            std::vector<unsigned char> once = run_backward(*c, 0, 0);
            for (int i = 1; i < repeats; i++)
                expect(run_backward(*c, 0, 0) == once, "a repeat of the backward pass", seed, dtype);
            tile_case_free(c);
            delete c;
        }
}

/* ---- things that are not numbers ------------------------------------------------------------------------------------
 */

/* Puts an infinity or a NaN into a few elements, in memory. */
static void spoil(rng *r, test_tensor *x) {
    static const double wild[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        int64_t at = rng_between(r, 0, x->elements - 1);
        ra_convert(x->dtype, (char *)x->memory + at * (int64_t)ra_dtype_bytes(x->dtype), RA_F64, &wild[i], 1);
    }
}

/* Elements that the ref kernel has finite are finite here too, and close; and the other way round, but where a row has
 * both infinite and NaN scores: which of them it ends with is a matter of order. */
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
    if (strcmp(what, "delta") == 0) lost = 0;
    if (leaks == 0 && lost == 0 && std::sqrt(off / size) <= 2e-2) return;
    fprintf(stderr, "%s, seed %u, wild inputs: %s: %lld leaks, %lld lost, off by %g\n", ra_dtype_name(c.shape.dtype),
            c.seed, what, (long long)leaks, (long long)lost, std::sqrt(off / size));
    failures++;
}

/* Forward and backward of a case with wild inputs, and rows that saw nothing, by the ref kernel and on the device. */
static void check_wild(unsigned seed, ra_dtype dtype) {
    tile_case *c = new tile_case;
    tile_case_make(c, seed, dtype, 72);
    rng r = {seed};
    spoil(&r, &c->q);
    spoil(&r, &c->dout);
    for (int i = 0; i < TEST_PARTS; i++) {
        spoil(&r, &c->k[i]);
        spoil(&r, &c->v[i]);
    }
    const ra_shape &s = c->shape;
    int64_t all = s.states * rows_of(s);
    size_t acc = ra_dtype_bytes(c->acc), o_bytes = (size_t)c->state_o.elements * acc;
    for (int64_t i = 0; i < all; i += 5) c->state_lse[i] = -INFINITY;
    ra_launch launch = {};
    launch.threads = 1;
    ra_kv_part parts[TEST_PARTS], host_parts[TEST_PARTS];
    copy_parts(*c, parts, 0);

    std::vector<unsigned char> m((size_t)all * acc), l((size_t)all * acc), o(o_bytes), lse((size_t)all * acc + 1),
        delta((size_t)all * acc + 1), dq((size_t)c->dq.elements * acc), dk[TEST_PARTS], dv[TEST_PARTS];
    ra_state host = {c->state_o.view, c->o_state, m.data(), l.data()};
    host.o.data = o.data();
    ra_rows_begin(&s, host, &launch);
    ra_convert(c->acc, lse.data(), RA_F64, c->state_lse, all);
    ra_convert(c->acc, delta.data(), RA_F64, c->state_delta, all);
    ra_view host_dq = c->dq.view;
    host_dq.data = dq.data();
    for (int i = 0; i < TEST_PARTS; i++) {
        dk[i].resize((size_t)c->dk[i].elements * acc);
        dv[i].resize((size_t)c->dv[i].elements * acc);
        host_parts[i] = c->parts[i];
        host_parts[i].dk.data = dk[i].data();
        host_parts[i].dv.data = dv[i].data();
    }
    for (int i = 0; i < TEST_CALLS; i++) {
        ra_forward_call forward = {&s, c->q.view, host_parts, c->calls[i].list, host, launch, NULL};
        ra_ref_forward(&forward);
        ra_backward_call backward = {&s,         c->q.view,        c->dout.view, lse.data(), delta.data(),
                                     host_parts, c->calls[i].list, host_dq,      launch,     NULL};
        ra_ref_backward(&backward);
    }
    std::vector<unsigned char> want_lse((size_t)all * acc), want_delta((size_t)all * acc);
    ra_rows_resume(&s, host, c->dout.view, want_lse.data(), want_delta.data(), &launch);

    ra_state state = {c->state_o.view, c->o_state, take((size_t)all * acc), take((size_t)all * acc)};
    state.o.data = take(o_bytes);
    ra_view q = on_device(c->q), dout = on_device(c->dout), to = filled(c->dq, 0);
    void *got_lse = take((size_t)all * acc), *got_delta = take((size_t)all * acc);
    void *in_lse = take_copy(lse.data(), (size_t)all * acc), *in_delta = take_copy(delta.data(), (size_t)all * acc);
    fold_calls(*c, parts, q, state, launch);
    kernel->resume(&s, state, dout, got_lse, got_delta, &launch);
    for (int i = 0; i < TEST_CALLS; i++) {
        ra_prepared *prepared = prepared_of(s, c->calls[i].list, parts, TEST_PARTS, RA_BACKWARD);
        ra_backward_call call = {&s, q, dout, in_lse, in_delta, parts, c->calls[i].list, to, launch, prepared};
        kernel->backward(&call);
        CHECK(cudaDeviceSynchronize());
        kernel->discard(prepared);
    }
    CHECK(cudaDeviceSynchronize());
    expect_tame(*c, "lse", c->acc, want_lse.data(), got_lse, all);
    expect_tame(*c, "delta", c->acc, want_delta.data(), got_delta, all);
    expect_tame(*c, "dq", c->acc, dq.data(), to.data, c->dq.elements);
    for (int i = 0; i < TEST_PARTS; i++) {
        expect_tame(*c, "dk", c->acc, dk[i].data(), parts[i].dk.data, c->dk[i].elements);
        expect_tame(*c, "dv", c->acc, dv[i].data(), parts[i].dv.data, c->dv[i].elements);
    }
    give_all_back();
    tile_case_free(c);
    delete c;
}

/* ---- row operations -------------------------------------------------------------------------------------------------
 */

static int same_bytes(const void *host, const void *device, size_t bytes) {
    return memcmp(host, bytes_from(device, bytes).data(), bytes) == 0;
}

/* pack, add_rows, add, store, fill and delta, against those of the CPU. All but delta are one rounding for each
 * element, so the bits must be the same. */
static void check_rows(unsigned seed, ra_dtype dtype) {
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

/* ---- speed ----------------------------------------------------------------------------------------------------------
 */

struct bench_problem {
    ra_shape shape;
    ra_view q, dout, dq;
    ra_kv_part part;
    ra_state state;
    void *lse, *delta;
    ra_tile tile;
    ra_tile_group group;
    ra_tile_pass pass;
    ra_tile_list list;
    ra_launch launch;
};

/* [1, rows, heads, dim] with random elements, repeated every 2^20 of them. */
static ra_view random_rows(rng *r, ra_dtype dtype, int64_t rows, int64_t heads, int64_t dim) {
    const int64_t period = 1 << 20, count = rows * heads * dim;
    size_t bytes = ra_dtype_bytes(dtype);
    std::vector<double> wide((size_t)period);
    std::vector<unsigned char> narrow((size_t)period * bytes);
    for (double &x : wide) x = rng_normal(r);
    ra_convert(dtype, narrow.data(), RA_F64, wide.data(), period);
    char *data = (char *)take((size_t)count * bytes);
    for (int64_t at = 0; at < count; at += period)
        CHECK(cudaMemcpy(data + (size_t)at * bytes, narrow.data(), (size_t)std::min(period, count - at) * bytes,
                         cudaMemcpyHostToDevice));
    return {data, 0, heads * dim, dim, 1};
}

static void make_bench(bench_problem *b, ra_dtype dtype, int64_t n, int64_t heads, int64_t dim, int causal) {
    rng r = {7};
    ra_dtype acc = dtype == RA_F64 ? RA_F64 : RA_F32;
    *b = {};
    b->shape = {1, heads, heads, dim, dim, n, 1, 1 / std::sqrt((double)dim), 1, dtype, acc};
    b->q = random_rows(&r, dtype, n, heads, dim);
    b->dout = random_rows(&r, dtype, n, heads, dim);
    b->dq = random_rows(&r, acc, n, heads, dim);
    b->part = {random_rows(&r, dtype, n, heads, dim),
               random_rows(&r, dtype, n, heads, dim),
               random_rows(&r, acc, n, heads, dim),
               random_rows(&r, acc, n, heads, dim),
               {0, 1, heads}};
    b->state.o = random_rows(&r, acc, n, heads, dim);
    b->state.m = take((size_t)(n * heads) * ra_dtype_bytes(acc));
    b->state.l = take((size_t)(n * heads) * ra_dtype_bytes(acc));
    b->lse = take((size_t)(n * heads) * ra_dtype_bytes(acc));
    b->delta = take((size_t)(n * heads) * ra_dtype_bytes(acc));
    b->tile.q_rows = b->tile.k_rows = {0, 1, n};
    b->tile.heads = {0, 1, heads};
    b->tile.lo = -n;
    b->tile.hi = causal ? 0 : n;
    b->group = {0, 1};
    b->pass = {0, 1, 0};
    b->list = {&b->tile, &b->group, &b->pass, 1, 1, 1};
    b->launch.threads = 1;
}

template <class RUN> static double median_ms(RUN run, int repeats) {
    cudaEvent_t from, to;
    std::vector<float> times;
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    for (int i = -2; i < repeats; i++) {
        float ms;
        CHECK(cudaEventRecord(from));
        run();
        CHECK(cudaEventRecord(to));
        CHECK(cudaEventSynchronize(to));
        CHECK(cudaEventElapsedTime(&ms, from, to));
        if (i >= 0) times.push_back(ms);
    }
    CHECK(cudaEventDestroy(from));
    CHECK(cudaEventDestroy(to));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

static void bench_one(ra_dtype dtype, int64_t n, int64_t heads, int64_t dim, int causal, int repeats) {
    static bench_problem b;
    make_bench(&b, dtype, n, heads, dim, causal);
    ra_prepared *forward = prepared_of(b.shape, b.list, NULL, 1, RA_FORWARD);
    ra_prepared *backward = prepared_of(b.shape, b.list, NULL, 1, RA_BACKWARD);
    ra_forward_call there = {&b.shape, b.q, &b.part, b.list, b.state, b.launch, forward};
    ra_backward_call back = {&b.shape, b.q, b.dout, b.lse, b.delta, &b.part, b.list, b.dq, b.launch, backward};
    kernel->begin(&b.shape, b.state, &b.launch);
    kernel->forward(&there);
    kernel->resume(&b.shape, b.state, b.dout, b.lse, b.delta, &b.launch);
    CHECK(cudaDeviceSynchronize());
    double begin = median_ms([&] { kernel->begin(&b.shape, b.state, &b.launch); }, repeats);
    double both = median_ms(
        [&] {
            kernel->begin(&b.shape, b.state, &b.launch);
            kernel->forward(&there);
        },
        repeats);
    double end = median_ms([&] { kernel->finish(&b.shape, b.state, b.state.o, b.lse, &b.launch); }, repeats);
    kernel->begin(&b.shape, b.state, &b.launch);
    kernel->forward(&there);
    kernel->resume(&b.shape, b.state, b.dout, b.lse, b.delta, &b.launch);
    double gradients = median_ms([&] { kernel->backward(&back); }, repeats);
    double flops = 4.0 * (double)ra_tile_pairs(&b.tile) * (double)(heads * dim);
    printf("%-5s n %-6d heads %-3d dim %-4d %-7s forward %8.3f ms %7.1f TFLOP/s   backward %8.3f ms %7.1f TFLOP/s   "
           "begin %.3f finish %.3f ms\n",
           ra_dtype_name(dtype), (int)n, (int)heads, (int)dim, causal ? "causal" : "full", both - begin,
           flops / (both - begin) * 1e-9, gradients, 2.5 * flops / gradients * 1e-9, begin, end);
    CHECK(cudaGetLastError());
    kernel->discard(forward);
    kernel->discard(backward);
    give_all_back();
}

static void bench(void) {
    for (int causal = 0; causal < 2; causal++) {
        bench_one(RA_BF16, 16384, 16, 128, causal, 9);
        bench_one(RA_F16, 16384, 16, 128, causal, 9);
        bench_one(RA_BF16, 16384, 16, 64, causal, 9);
        bench_one(RA_BF16, 16384, 8, 256, causal, 9);
        bench_one(RA_BF16, 65536, 1, 128, causal, 5);
        bench_one(RA_F32, 16384, 16, 128, causal, 3);
        bench_one(RA_F32, 16384, 16, 64, causal, 3);
    }
    bench_one(RA_F64, 4096, 16, 128, 0, 3);
}

static void report(void) {
    for (int t = 0; t < 4; t++) {
        printf("%-5s worst:", ra_dtype_name(types[t]));
        for (int of = 0; of < OF_COUNT; of++)
            printf("  %s %.2g (seed %u)", error_names[of], worst[t][of].error, worst[t][of].seed);
        printf("\n");
    }
}

/* The last, and so best, that can run and has that name; NULL: any. */
static const ra_kernel *find_kernel(const char *name) {
    const ra_kernel *found = NULL;
    for (int i = 0; ra_cuda_kernel_at(i); i++)
        if (ra_cuda_kernel_at(i)->usable() && (!name || strcmp(name, ra_cuda_kernel_at(i)->name) == 0))
            found = ra_cuda_kernel_at(i);
    return found;
}

int main(int argc, char **argv) {
    unsigned first = 1, seeds = 60;
    int timing = 0, repeats = 20, devices = 0;
    const char *name = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0)
            timing = 1;
        else if (strcmp(argv[i], "--kernel") == 0 && i + 1 < argc)
            name = argv[++i];
        else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc)
            seeds = (unsigned)atoi(argv[++i]);
        else if (strcmp(argv[i], "--repeats") == 0 && i + 1 < argc)
            repeats = atoi(argv[++i]);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            first = (unsigned)atoi(argv[++i]);
        else {
            fprintf(stderr, "usage: kernel_check [--kernel NAME] [--seeds N] [--seed FIRST] [--repeats N] [--bench]\n");
            return 2;
        }
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("no GPU, skipped\n");
        return 0;
    }
    kernel = find_kernel(name);
    if (!kernel) {
        printf("%s cannot run on this GPU, skipped\n", name ? name : "the CUDA kernels");
        return 0;
    }
    printf("%s\n", kernel->name);
    for (unsigned seed = first; seed < first + seeds / 5; seed++)
        for (ra_dtype dtype : types) check_rows(seed, dtype);
    check_random(first, seeds);
    for (unsigned seed = first; seed < first + seeds; seed++)
        for (ra_dtype dtype : types) check_wild(seed, dtype);
    check_repeats(repeats);
    report();
    if (timing) bench();
    printf("%d failures\n", failures);
    return failures ? 1 : 0;
}
