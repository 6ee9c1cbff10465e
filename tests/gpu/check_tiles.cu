/* Random tiles, forward and backward, against the definition of a tile; and the bits of repeats. */
#include "check_device.h"
#include "check_errors.h"
#include "kernel_checks.h"

#include <algorithm>

static std::vector<double> gather_o(const tile_case &c, const std::vector<double> &all, ra_view view) {
    const ra_shape &s = c.shape;
    std::vector<double> o((size_t)(rows_of(s) * s.dim_v));
    for (int64_t i = 0; i < (int64_t)o.size(); i++) {
        int64_t d = i % s.dim_v, row = i / s.dim_v % s.rows_q, h = i / s.dim_v / s.rows_q % s.heads_q;
        o[(size_t)i] = all[(size_t)test_index(view, i / s.dim_v / s.rows_q / s.heads_q, row, h, d)];
    }
    return o;
}

/* How many of the elements between those of the states' o were written to. */
static int64_t written_gaps(const tile_case &c, const std::vector<unsigned char> &raw) {
    const ra_shape &s = c.shape;
    size_t each = ra_dtype_bytes(c.acc);
    std::vector<bool> ours((size_t)c.state_o.elements);
    for (int64_t i = 0; i < s.states * rows_of(s) * s.dim_v; i++) {
        int64_t d = i % s.dim_v, row = i / s.dim_v % s.rows_q, band = i / s.dim_v / s.rows_q, h = band % s.heads_q;
        int64_t b = band / s.heads_q % s.batch, state = band / s.heads_q / s.batch;
        ours[(size_t)(state * c.o_state + test_index(c.state_o.view, b, row, h, d))] = true;
    }
    int64_t found = 0;
    for (size_t i = 0; i < ours.size(); i++)
        found +=
            !ours[i] && !std::all_of(raw.begin() + (ptrdiff_t)(i * each), raw.begin() + (ptrdiff_t)((i + 1) * each),
                                     [](unsigned char x) { return x == 0xff; });
    return found;
}

static void check_forward(const tile_case &c) {
    const ra_shape &s = c.shape;
    int64_t rows = rows_of(s), all = s.states * rows;
    size_t acc = ra_dtype_bytes(c.acc);
    ra_context context = {};
    context.threads = 1;
    ra_kv_rows parts[TEST_PARTS];
    copy_parts(c, parts, 0);
    ra_state state = {c.state_o.view, c.o_state, take((size_t)all * acc), take((size_t)all * acc)};
    state.o.data = take((size_t)c.state_o.elements * acc);
    ra_view out = c.out.view, dout = on_device(c.dout);
    out.data = take((size_t)c.out.elements * ra_dtype_bytes(s.out_dtype));
    if (c.in_place) out = state.o;
    void *lse = take((size_t)rows * acc), *state_lse = take((size_t)all * acc), *delta = take((size_t)all * acc);
    accumulate_calls(c, parts, on_device(c.q), state, context);
    kernel->carry(&s, state, dout, state_lse, delta, &context);
    kernel->finish(&s, state, out, ra_array_view(&s, lse), &context);
    CHECK(cudaDeviceSynchronize());
    int64_t elements = c.in_place ? c.state_o.elements : c.out.elements;
    std::vector<double> o = gather_o(c, doubles_from(s.out_dtype, out.data, elements), out);
    note(c, OF_O, error_of(o.data(), c.o, (int64_t)o.size(), 0, 0));
    note(c, OF_LSE, error_of(doubles_from(c.acc, lse, rows).data(), c.lse, rows, 0, 0));
    note(c, OF_LSE, error_of(doubles_from(c.acc, state_lse, all).data(), c.state_lse, all, 0, 0));
    note(c, OF_DELTA, error_of(doubles_from(c.acc, delta, all).data(), c.state_delta, all, 0, 1));
    auto raw = bytes_from(state.o.data, (size_t)c.state_o.elements * acc);
    expect(written_gaps(c, raw) == 0, "what was written between the rows of o", c.seed, s.dtype);
    give_all_back();
}

/* Gradients of the case as bytes, for comparing bits. */
static std::vector<unsigned char> run_backward(const tile_case &c, double start, int errors) {
    const ra_shape &s = c.shape;
    int64_t all = s.states * rows_of(s);
    ra_context context = {};
    context.threads = 1;
    ra_kv_rows parts[TEST_PARTS];
    copy_parts(c, parts, start);
    ra_view q = on_device(c.q), dout = on_device(c.dout), dq = filled(c.dq, start);
    void *lse = acc_on_device(c.acc, c.state_lse, all), *delta = acc_on_device(c.acc, c.state_delta, all);
    backward_calls(c, parts, q, dout, lse, delta, dq, context);
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

void check_random(unsigned first, unsigned seeds) {
    static const int64_t limits[] = {40, 64, 128, 256};
    for (unsigned seed = first; seed < first + seeds; seed++)
        for (ra_dtype dtype : types)
            for (int kind = 0; kind < 4 && kernel_takes(dtype); kind++) {
                tile_case *c = new tile_case;
                if (kind / 2)
                    tile_case_make_counted(c, kind % 2, seed, dtype, limits[seed % 4]);
                else
                    (kind ? tile_case_make_plain : tile_case_make)(c, seed, dtype, limits[seed % 4]);
                check_forward(*c);
                run_backward(*c, seed % 2, 1);
                tile_case_free(c);
                delete c;
            }
}

void check_repeats(int repeats) {
    for (unsigned seed = 300; repeats && seed < 304; seed++)
        for (ra_dtype dtype : types) {
            if (!kernel_takes(dtype)) continue;
            tile_case *c = new tile_case;
            (seed % 2 ? tile_case_make_plain : tile_case_make)(c, seed, dtype, 128);
            std::vector<unsigned char> once = run_backward(*c, 0, 0);
            for (int i = 1; i < repeats; i++)
                expect(run_backward(*c, 0, 0) == once, "a repeat of the backward pass", seed, dtype);
            tile_case_free(c);
            delete c;
        }
}
