/* The row operations of every kernel: state, delta, records, adding, storing, through views of all kinds. */
#include "support/cmocka.h"
#include "support/scale.h"
#include "support/tile_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ra_dtype types[] = {RA_F64, RA_F32, RA_BF16, RA_F16};

static const ra_launch launches[] = {{.threads = 1}, {.threads = 3}};

enum { SEEDS = 12 };

/* What a test body is run for. */
typedef struct subject {
    const ra_kernel *kernel;
    ra_dtype dtype;
    unsigned seed;
    const ra_launch *launch;
} subject;

static void expect(const subject *s, int holds, const char *what) {
    if (!holds) fail_msg("%s, %s, seed %u: %s is wrong", s->kernel->name, ra_dtype_name(s->dtype), s->seed, what);
}

/* Runs body for every kernel, type and number of threads. */
static void for_all(void (*body)(const subject *)) {
    unsigned seeds = scaled_count(SEEDS);
    print_message("seeds 1 to %u, each with every type and kernel\n", seeds);
    for (int i = 0; ra_kernel_at(i); i++)
        for (int t = 0; ra_kernel_at(i)->usable() && t < 4; t++)
            for (unsigned seed = 1; seed <= seeds; seed++)
                body(&(subject){ra_kernel_at(i), types[t], seed, &launches[seed % 2]});
}

/* What a kernel has to round to: x through the type and back. */
static double rounded(ra_dtype dtype, double x) {
    char element[8];
    ra_convert(dtype, element, RA_F64, &x, 1);
    ra_convert(RA_F64, &x, dtype, element, 1);
    return x;
}

/* Whether x is a double within a few roundings of `want`, whose terms have that size, rounded once to the type. */
static int is_rounded(ra_dtype dtype, double x, double want, double size) {
    if (!isfinite(want)) return x == want;
    double slack = 64 * 0x1p-53 * size;
    return rounded(dtype, want - slack) <= x && x <= rounded(dtype, want + slack);
}

static ra_dtype acc_of(const ra_shape *shape) {
    return shape->dtype == RA_F64 ? RA_F64 : RA_F32;
}

static ra_shape random_shape(rng *r, ra_dtype dtype) {
    ra_shape shape = {.heads_kv = 1, .scale = 1, .dtype = dtype, .out_dtype = dtype};
    shape.batch = rng_between(r, 1, 3);
    shape.heads_q = rng_between(r, 1, 4);
    shape.dim = rng_between(r, 1, 40);
    shape.dim_v = rng_between(r, 1, 40);
    shape.rows_q = rng_between(r, 1, 600);
    shape.states = rng_between(r, 1, TEST_STATES);
    shape.weight = test_weight(r);
    if (dtype != RA_F64 && rng_one_in(r, 2)) shape.out_dtype = RA_F32;
    return shape;
}

/* All bits set: a NaN in every type. */
static void *unwritten(ra_dtype dtype, int64_t count) {
    void *array = malloc((size_t)count * ra_dtype_bytes(dtype) + 1);
    assert_non_null(array);
    memset(array, 0xff, (size_t)count * ra_dtype_bytes(dtype));
    return array;
}

static void put(ra_dtype dtype, void *array, int64_t i, double x) {
    ra_convert(dtype, (char *)array + i * (int64_t)ra_dtype_bytes(dtype), RA_F64, &x, 1);
}

/* The double of element [b, row, h, d] as it stands in memory. */
static double element(const test_tensor *x, int64_t b, int64_t row, int64_t h, int64_t d) {
    double value;
    int64_t at = test_index(x->view, b, row, h, d) * (int64_t)ra_dtype_bytes(x->dtype);
    ra_convert(RA_F64, &value, x->dtype, (char *)x->memory + at, 1);
    return value;
}

/* An element that a kernel has to change: whoever checks it takes it out of what has to stay as it is. */
static double *changed(test_tensor *x, int64_t b, int64_t row, int64_t h, int64_t d) {
    return &x->exact[test_index(x->view, b, row, h, d)];
}

/* Whether memory holds what `exact` says, gaps included. NaN in exact: anything. */
static int is_as_said(const test_tensor *x) {
    double *now = test_as_doubles(x->dtype, x->memory, x->elements);
    int same = 1;
    for (int64_t i = 0; i < x->elements; i++) same &= isnan(x->exact[i]) || now[i] == x->exact[i];
    free(now);
    return same;
}

/* A place among the query rows. */
typedef struct place {
    int64_t i; /* of [batch, heads_q, rows_q] */
    int64_t b, h, row;
} place;

static int64_t places(const ra_shape *shape) {
    return shape->batch * shape->heads_q * shape->rows_q;
}

static place place_at(const ra_shape *shape, int64_t i) {
    return (place){i, i / shape->rows_q / shape->heads_q, i / shape->rows_q % shape->heads_q, i % shape->rows_q};
}

/* ---- state ----------------------------------------------------------------------------------------------------------
 */

/* What state s has at the i-th place: a third of the places are unseen by all states, a quarter of the rest by that
 * state, and now and then a score has overflowed, which leaves l and o without meaning. */
typedef struct known_row {
    double m, l;
} known_row;

static known_row known(int64_t s, int64_t i) {
    if (i % 3 == 0 || (i + s) % 4 == 0) return (known_row){-INFINITY, 0};
    if ((i + 2 * s) % 13 == 0) return (known_row){INFINITY, NAN};
    double m = (double)((i + 41 * s) % 100);
    return (known_row){m, 1 + m};
}

static double known_o(int64_t s, int64_t i, int64_t d) {
    return (double)(d + s) - 2 * (double)(i % 100);
}

/* o / l of state s, 0 where it is not defined. */
static double known_share(int64_t s, int64_t i, int64_t d) {
    known_row at = known(s, i);
    return isinf(at.m) ? 0 : known_o(s, i, d) / at.l;
}

/* A state with that in it, through begin, and the memory of its o. Rows that no state has seen stay as begun. */
static ra_state make_state(const subject *on, const ra_shape *shape, rng *r, test_tensor *o_out) {
    ra_dtype acc = acc_of(shape);
    int64_t all = shape->states * places(shape);
    ra_state state = {.m = unwritten(acc, all), .l = unwritten(acc, all)};
    *o_out = test_state_o_make(r, shape, &state.o_state);
    state.o = o_out->view;
    on->kernel->begin(shape, state, on->launch);
    for (int64_t n = 0; n < all; n++) {
        int64_t s = n / places(shape);
        place at = place_at(shape, n % places(shape));
        known_row row = known(s, at.i);
        for (int64_t d = 0; d < shape->dim_v; d++) {
            int64_t to = s * state.o_state + test_index(state.o, at.b, at.row, at.h, d);
            o_out->exact[to] = row.m == -INFINITY ? 0 : isinf(row.m) ? NAN : known_o(s, at.i, d);
            if (row.m > -INFINITY) put(acc, o_out->memory, to, o_out->exact[to]);
        }
        if (row.m == -INFINITY) continue;
        put(acc, state.m, n, row.m);
        put(acc, state.l, n, row.l);
    }
    return state;
}

static void free_state(ra_state *state, test_tensor *o) {
    free(state->m);
    free(state->l);
    test_tensor_free(o);
}

static void begin_is_nothing_seen(const subject *on) {
    rng r = {on->seed};
    ra_shape shape = random_shape(&r, on->dtype);
    ra_dtype acc = acc_of(&shape);
    int64_t all = shape.states * places(&shape);
    ra_state state = {.m = unwritten(acc, all), .l = unwritten(acc, all)};
    test_tensor o = test_state_o_make(&r, &shape, &state.o_state);
    state.o = o.view;
    on->kernel->begin(&shape, state, on->launch);
    double *m = test_as_doubles(acc, state.m, all), *l = test_as_doubles(acc, state.l, all);
    for (int64_t n = 0; n < all; n++) {
        place at = place_at(&shape, n % places(&shape));
        expect(on, m[n] == -INFINITY && l[n] == 0, "m or l");
        for (int64_t d = 0; d < shape.dim_v; d++)
            o.exact[n / places(&shape) * state.o_state + test_index(o.view, at.b, at.row, at.h, d)] = 0;
    }
    expect(on, is_as_said(&o), "o");
    free(m);
    free(l);
    free_state(&state, &o);
}

/* o and lse of one place against the sums over the states; o is then taken out of what has to stay. */
static void check_finished(const subject *on, const ra_shape *shape, test_tensor *o, place at, double lse) {
    double sum = 0;
    for (int64_t s = 0; s < shape->states; s++) {
        known_row row = known(s, at.i);
        sum += isinf(row.m) ? (row.m > 0 ? INFINITY : 0) : row.l * exp(row.m);
    }
    expect(on, is_rounded(acc_of(shape), lse, log(sum), fmax(1, fabs(log(sum)))), "lse");
    for (int64_t d = 0; d < shape->dim_v; d++) {
        double want = 0, size = 0;
        for (int64_t s = 0; s < shape->states; s++) {
            want += shape->weight * known_share(s, at.i, d);
            size += shape->weight * fabs(known_share(s, at.i, d));
        }
        expect(on, is_rounded(shape->out_dtype, element(o, at.b, at.row, at.h, d), want, size), "o");
        *changed(o, at.b, at.row, at.h, d) = NAN;
    }
}

/* The states' o stay as they are, but for state 0's where that is the output. */
static void finish_sums_the_softmaxes(const subject *on) {
    rng r = {on->seed};
    ra_shape shape = random_shape(&r, on->dtype);
    ra_dtype acc = acc_of(&shape);
    test_tensor state_o, other;
    ra_state state = make_state(on, &shape, &r, &state_o);
    other = test_tensor_make(&r, shape.out_dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    test_tensor *o = shape.out_dtype == acc && on->seed % 3 ? &state_o : &other;
    void *lse = unwritten(acc, places(&shape));
    on->kernel->finish(&shape, state, o->view, lse, on->launch);
    double *got = test_as_doubles(acc, lse, places(&shape));
    for (int64_t i = 0; i < places(&shape); i++) check_finished(on, &shape, o, place_at(&shape, i), got[i]);
    expect(on, is_as_said(&state_o) && is_as_said(&other), "what finish has to leave alone");
    free(got);
    free(lse);
    free_state(&state, &state_o);
    test_tensor_free(&other);
}

static void finish_without_lse(const subject *on) {
    rng r = {on->seed};
    ra_shape shape = random_shape(&r, on->dtype);
    test_tensor state_o, with, without;
    ra_state state = make_state(on, &shape, &r, &state_o);
    rng again = r;
    with = test_tensor_make(&r, shape.out_dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    without = test_tensor_make(&again, shape.out_dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    void *lse = unwritten(acc_of(&shape), places(&shape));
    on->kernel->finish(&shape, state, with.view, lse, on->launch);
    on->kernel->finish(&shape, state, without.view, NULL, on->launch);
    size_t bytes = (size_t)with.elements * ra_dtype_bytes(with.dtype);
    expect(on, memcmp(with.memory, without.memory, bytes) == 0, "o without lse");
    free(lse);
    free_state(&state, &state_o);
    test_tensor_free(&with);
    test_tensor_free(&without);
}

/* ---- delta ----------------------------------------------------------------------------------------------------------
 */

static void delta_is_dout_times_o(const subject *on) {
    rng r = {on->seed};
    ra_shape shape = random_shape(&r, on->dtype);
    shape.states = 1;
    ra_dtype acc = acc_of(&shape);
    void *delta = unwritten(acc, places(&shape));
    test_tensor o = test_tensor_make(&r, shape.out_dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    test_tensor dout = test_tensor_make(&r, on->dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    on->kernel->delta(&shape, dout.view, o.view, delta, on->launch);
    double *got = test_as_doubles(acc, delta, places(&shape));
    for (int64_t i = 0; i < places(&shape); i++) {
        place at = place_at(&shape, i);
        double want = 0, size = 0;
        for (int64_t d = 0; d < shape.dim_v; d++) {
            double term = element(&o, at.b, at.row, at.h, d) * element(&dout, at.b, at.row, at.h, d) / shape.weight;
            want += term;
            size += fabs(term);
        }
        expect(on, fabs(got[i] - want) <= size * (acc == RA_F64 ? 1e-14 : 1e-6), "delta");
    }
    free(got);
    free(delta);
    test_tensor_free(&o);
    test_tensor_free(&dout);
}

/* Every state's own lse and delta, which the weight has no part in. */
static void resume_is_lse_and_delta(const subject *on) {
    rng r = {on->seed};
    ra_shape shape = random_shape(&r, on->dtype);
    ra_dtype acc = acc_of(&shape);
    int64_t all = shape.states * places(&shape);
    test_tensor o;
    ra_state state = make_state(on, &shape, &r, &o);
    test_tensor dout = test_tensor_make(&r, on->dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    void *lse = unwritten(acc, all), *delta = unwritten(acc, all);
    on->kernel->resume(&shape, state, dout.view, lse, delta, on->launch);
    double *got_lse = test_as_doubles(acc, lse, all), *got_delta = test_as_doubles(acc, delta, all);
    for (int64_t n = 0; n < all; n++) {
        int64_t s = n / places(&shape);
        place at = place_at(&shape, n % places(&shape));
        known_row row = known(s, at.i);
        double want = isinf(row.m) ? row.m : log(row.l * exp(row.m)), sum = 0, size = 0;
        expect(on, is_rounded(acc, got_lse[n], want, fmax(1, fabs(want))), "lse");
        for (int64_t d = 0; d < shape.dim_v; d++) {
            double term = known_share(s, at.i, d) * element(&dout, at.b, at.row, at.h, d);
            sum += term;
            size += fabs(term);
        }
        expect(on, is_rounded(acc, got_delta[n], sum, size), "delta");
    }
    expect(on, is_as_said(&o), "the state's o");
    free(got_lse);
    free(got_delta);
    free(lse);
    free(delta);
    free_state(&state, &o);
    test_tensor_free(&dout);
}

/* ---- records --------------------------------------------------------------------------------------------------------
 */

/* Some of `count` rows or heads. */
static ra_span random_span(rng *r, int64_t count) {
    ra_span span = {.first = rng_between(r, 0, count - 1)};
    span.stride = rng_between(r, 1, 3);
    span.count = 1 + rng_between(r, 0, (count - 1 - span.first) / span.stride);
    return span;
}

/* Keys and values, or their gradients, and the records of some of them. */
typedef struct record_case {
    ra_shape shape;
    test_tensor k, v;
    ra_span rows, heads;
    int64_t count; /* elements of the records */
} record_case;

static record_case make_records(const subject *on, rng *r, int of_gradients) {
    record_case c = {.shape = random_shape(r, on->dtype)};
    ra_dtype dtype = of_gradients ? acc_of(&c.shape) : on->dtype;
    int64_t batch = c.shape.batch, rows = c.shape.rows_q, heads = c.shape.heads_kv = rng_between(r, 1, 4);
    c.k = test_tensor_make(r, dtype, batch, rows, heads, c.shape.dim);
    c.v = test_tensor_make(r, dtype, batch, rows, heads, c.shape.dim_v);
    c.rows = random_span(r, rows);
    c.heads = random_span(r, heads);
    c.count = c.heads.count * c.rows.count * batch * (c.shape.dim + c.shape.dim_v);
    return c;
}

/* Where element i of the records comes from: an element of exact of k or v. */
static double *record_element(record_case *c, int64_t i) {
    int64_t width = c->shape.dim + c->shape.dim_v, d = i % width, b = i / width % c->shape.batch;
    int64_t row = ra_span_at(c->rows, i / width / c->shape.batch % c->rows.count);
    int64_t h = ra_span_at(c->heads, i / width / c->shape.batch / c->rows.count);
    return d < c->shape.dim ? changed(&c->k, b, row, h, d) : changed(&c->v, b, row, h, d - c->shape.dim);
}

static void pack_copies_rows(const subject *on) {
    rng r = {on->seed};
    record_case c = make_records(on, &r, 0);
    void *packed = unwritten(on->dtype, c.count + 1);
    on->kernel->pack(&c.shape, packed, c.k.view, c.v.view, c.rows, c.heads, on->launch);
    double *got = test_as_doubles(on->dtype, packed, c.count + 1);
    for (int64_t i = 0; i < c.count; i++) expect(on, got[i] == *record_element(&c, i), "a record");
    expect(on, isnan(got[c.count]), "what follows the records");
    expect(on, is_as_said(&c.k) && is_as_said(&c.v), "k or v");
    free(got);
    free(packed);
    test_tensor_free(&c.k);
    test_tensor_free(&c.v);
}

static void add_rows_adds_records(const subject *on) {
    rng r = {on->seed};
    record_case c = make_records(on, &r, 1);
    test_tensor from = test_tensor_make(&r, acc_of(&c.shape), 1, 1, 1, c.count);
    on->kernel->add_rows(&c.shape, c.k.view, c.v.view, from.memory, c.rows, c.heads, on->launch);
    for (int64_t i = 0; i < c.count; i++) {
        double *to = record_element(&c, i);
        *to = rounded(from.dtype, *to + from.exact[i]);
    }
    expect(on, is_as_said(&c.k), "dk");
    expect(on, is_as_said(&c.v), "dv");
    expect(on, is_as_said(&from), "a record");
    test_tensor_free(&c.k);
    test_tensor_free(&c.v);
    test_tensor_free(&from);
}

static void add_some(const subject *on, const ra_shape *shape, rng *r, int64_t count) {
    ra_dtype acc = acc_of(shape);
    test_tensor x = test_tensor_make(r, acc, 1, 1, 1, count + 1);
    test_tensor y = test_tensor_make(r, acc, 1, 1, 1, count + 1);
    on->kernel->add(shape, x.memory, y.memory, count, on->launch);
    for (int64_t i = 0; i < count; i++) x.exact[i] = rounded(acc, x.exact[i] + y.exact[i]);
    expect(on, is_as_said(&x), "the sum");
    expect(on, is_as_said(&y), "what is added");
    test_tensor_free(&x);
    test_tensor_free(&y);
}

static void add_is_element_by_element(const subject *on) {
    rng r = {on->seed};
    ra_shape shape = random_shape(&r, on->dtype);
    for (int64_t count = 0; count < 3000; count = 3 * count + rng_between(&r, 1, 2)) add_some(on, &shape, &r, count);
    add_some(on, &shape, &r, 200000 + rng_between(&r, 0, 9));
}

/* ---- outputs --------------------------------------------------------------------------------------------------------
 */

/* Any number of rows, heads and columns, which need not be the shape's. */
typedef struct output_case {
    ra_shape shape;
    int64_t rows, heads, width;
    test_tensor to;
} output_case;

static output_case make_output(const subject *on, rng *r) {
    output_case c = {.shape = random_shape(r, on->dtype)};
    c.rows = rng_between(r, 1, 600);
    c.heads = rng_between(r, 1, 5);
    c.width = rng_between(r, 1, 40);
    c.to = test_tensor_make(r, c.shape.out_dtype, c.shape.batch, c.rows, c.heads, c.width);
    return c;
}

/* In place where the types allow it, for most seeds. */
static void store_rounds_once(const subject *on) {
    rng r = {on->seed};
    output_case c = make_output(on, &r);
    test_tensor other = test_tensor_make(&r, acc_of(&c.shape), c.shape.batch, c.rows, c.heads, c.width);
    const test_tensor *from = c.to.dtype == other.dtype && on->seed % 3 ? &c.to : &other;
    on->kernel->store(&c.shape, c.to.view, from->view, c.rows, c.heads, c.width, on->launch);
    for (int64_t i = 0; i < c.shape.batch * c.rows * c.heads * c.width; i++) {
        int64_t d = i % c.width, h = i / c.width % c.heads, row = i / c.width / c.heads % c.rows;
        int64_t b = i / c.width / c.heads / c.rows;
        double x = from->exact[test_index(from->view, b, row, h, d)];
        *changed(&c.to, b, row, h, d) = rounded(c.to.dtype, c.shape.weight * x);
    }
    expect(on, is_as_said(&c.to), "what is stored");
    expect(on, is_as_said(&other), "what is read");
    test_tensor_free(&other);
    test_tensor_free(&c.to);
}

/* The weight has no part in it. NaN is filled in where a call has failed. */
static void fill_is_the_value(const subject *on) {
    static const double values[] = {0, 0.1, NAN};
    rng r = {on->seed};
    output_case c = make_output(on, &r);
    double value = values[on->seed % 3];
    on->kernel->fill(&c.shape, c.to.view, c.rows, c.heads, c.width, value, on->launch);
    for (int64_t i = 0; i < c.shape.batch * c.rows * c.heads * c.width; i++) {
        int64_t d = i % c.width, h = i / c.width % c.heads, row = i / c.width / c.heads % c.rows;
        int64_t b = i / c.width / c.heads / c.rows;
        double now = element(&c.to, b, row, h, d);
        expect(on, isnan(value) ? isnan(now) : now == rounded(c.to.dtype, value), "what is filled in");
        *changed(&c.to, b, row, h, d) = NAN;
    }
    expect(on, is_as_said(&c.to), "what fill has to leave alone");
    test_tensor_free(&c.to);
}

static void test_begin(void **state) {
    (void)state;
    for_all(begin_is_nothing_seen);
}

static void test_finish(void **state) {
    (void)state;
    for_all(finish_sums_the_softmaxes);
    for_all(finish_without_lse);
}

static void test_delta(void **state) {
    (void)state;
    for_all(delta_is_dout_times_o);
}

static void test_resume(void **state) {
    (void)state;
    for_all(resume_is_lse_and_delta);
}

static void test_pack(void **state) {
    (void)state;
    for_all(pack_copies_rows);
}

static void test_add_rows(void **state) {
    (void)state;
    for_all(add_rows_adds_records);
}

static void test_add(void **state) {
    (void)state;
    for_all(add_is_element_by_element);
}

static void test_store(void **state) {
    (void)state;
    for_all(store_rounds_once);
}

static void test_fill(void **state) {
    (void)state;
    for_all(fill_is_the_value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begin),  cmocka_unit_test(test_finish), cmocka_unit_test(test_delta),
        cmocka_unit_test(test_resume), cmocka_unit_test(test_pack),   cmocka_unit_test(test_add_rows),
        cmocka_unit_test(test_add),    cmocka_unit_test(test_store),  cmocka_unit_test(test_fill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
