/* The state of the query rows, by every kernel: begun, finished into outputs, carried over to the backward pass; and
 * delta, which that needs too. Views of all kinds. */
#include "support/cmocka.h"
#include "support/tiles/row_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether x is a double within a few roundings of `want`, whose terms have that size, rounded once to the type. */
static int is_rounded(ra_dtype dtype, double x, double want, double size) {
    if (!isfinite(want)) return isnan(want) ? isnan(x) : x == want;
    double slack = 64 * 0x1p-53 * size;
    return row_rounded(dtype, want - slack) <= x && x <= row_rounded(dtype, want + slack);
}

static void put(ra_dtype dtype, void *array, int64_t i, double x) {
    ra_convert(dtype, (char *)array + i * (int64_t)ra_dtype_bytes(dtype), RA_F64, &x, 1);
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

/* What state s has at the i-th place: a third of the places are unseen by all states, a quarter of the rest by that
 * state, and now and then a score is +inf, or all are NaN, which leaves l and o NaN. */
typedef struct known_row {
    double m, l;
} known_row;

static known_row known(int64_t s, int64_t i) {
    if (i % 3 == 0 || (i + s) % 4 == 0) return (known_row){-INFINITY, 0};
    if ((i + 2 * s) % 13 == 0) return (known_row){i % 2 ? INFINITY : -INFINITY, NAN};
    double m = (double)((i + 41 * s) % 100);
    return (known_row){m, 1 + m};
}

static double known_o(int64_t s, int64_t i, int64_t d) {
    return (double)(d + s) - 2 * (double)(i % 100);
}

static int is_empty(known_row at) {
    return at.l == 0;
}

/* o / l of state s, 0 where nothing was seen. */
static double known_share(int64_t s, int64_t i, int64_t d) {
    known_row at = known(s, i);
    return is_empty(at) ? 0 : known_o(s, i, d) / at.l;
}

/* A state with that in it, through begin, and the memory of its o. Rows that no state has seen stay as begun. */
static ra_state make_state(const row_subject *on, const ra_shape *shape, rng *r, test_tensor *o_out) {
    ra_dtype acc = row_acc(shape);
    int64_t all = shape->states * places(shape);
    ra_state state = {.m = row_unwritten(acc, all), .l = row_unwritten(acc, all)};
    *o_out = test_state_o_make(r, shape, &state.o_state);
    state.o = o_out->view;
    on->kernel->begin(shape, state, on->context);
    for (int64_t n = 0; n < all; n++) {
        int64_t s = n / places(shape);
        place at = place_at(shape, n % places(shape));
        known_row row = known(s, at.i);
        for (int64_t d = 0; d < shape->dim_v; d++) {
            int64_t to = s * state.o_state + test_index(state.o, at.b, at.row, at.h, d);
            o_out->exact[to] = is_empty(row) ? 0 : isnan(row.l) ? NAN : known_o(s, at.i, d);
            if (!is_empty(row)) put(acc, o_out->memory, to, o_out->exact[to]);
        }
        if (is_empty(row)) continue;
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

static void begin_is_nothing_seen(const row_subject *on) {
    rng r = {on->seed};
    ra_shape shape = row_shape(&r, on->dtype);
    ra_dtype acc = row_acc(&shape);
    int64_t all = shape.states * places(&shape);
    ra_state state = {.m = row_unwritten(acc, all), .l = row_unwritten(acc, all)};
    test_tensor o = test_state_o_make(&r, &shape, &state.o_state);
    state.o = o.view;
    on->kernel->begin(&shape, state, on->context);
    double *m = test_as_doubles(acc, state.m, all), *l = test_as_doubles(acc, state.l, all);
    for (int64_t n = 0; n < all; n++) {
        place at = place_at(&shape, n % places(&shape));
        row_expect(on, m[n] == -INFINITY && l[n] == 0, "m or l");
        for (int64_t d = 0; d < shape.dim_v; d++)
            o.exact[n / places(&shape) * state.o_state + test_index(o.view, at.b, at.row, at.h, d)] = 0;
    }
    row_expect(on, row_is_as_said(&o), "o");
    free(m);
    free(l);
    free_state(&state, &o);
}

/* o and lse of one place against the sums over the states; o is then taken out of what has to stay. */
static void check_finished(const row_subject *on, const ra_shape *shape, test_tensor *o, place at, double lse) {
    double sum = 0;
    for (int64_t s = 0; s < shape->states; s++) {
        known_row row = known(s, at.i);
        sum += is_empty(row) ? 0 : row.l * exp(row.m);
    }
    row_expect(on, is_rounded(row_acc(shape), lse, log(sum), fmax(1, fabs(log(sum)))), "lse");
    for (int64_t d = 0; d < shape->dim_v; d++) {
        double want = 0, size = 0;
        for (int64_t s = 0; s < shape->states; s++) {
            want += shape->weight * known_share(s, at.i, d);
            size += shape->weight * fabs(known_share(s, at.i, d));
        }
        row_expect(on, is_rounded(shape->out_dtype, row_element(o, at.b, at.row, at.h, d), want, size), "o");
        *row_changed(o, at.b, at.row, at.h, d) = NAN;
    }
}

/* The states' o stay as they are, but for state 0's where that is the output. */
static void finish_sums_the_softmaxes(const row_subject *on) {
    rng r = {on->seed};
    ra_shape shape = row_shape(&r, on->dtype);
    ra_dtype acc = row_acc(&shape);
    test_tensor state_o, other;
    ra_state state = make_state(on, &shape, &r, &state_o);
    other = test_tensor_make(&r, shape.out_dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    test_tensor *o = shape.out_dtype == acc && on->seed % 3 ? &state_o : &other;
    void *lse = row_unwritten(acc, places(&shape));
    on->kernel->finish(&shape, state, o->view, ra_array_view(&shape, lse), on->context);
    double *got = test_as_doubles(acc, lse, places(&shape));
    for (int64_t i = 0; i < places(&shape); i++) check_finished(on, &shape, o, place_at(&shape, i), got[i]);
    row_expect(on, row_is_as_said(&state_o) && row_is_as_said(&other), "what finish has to leave alone");
    free(got);
    free(lse);
    free_state(&state, &state_o);
    test_tensor_free(&other);
}

static void finish_without_lse(const row_subject *on) {
    rng r = {on->seed};
    ra_shape shape = row_shape(&r, on->dtype);
    test_tensor state_o, with, without;
    ra_state state = make_state(on, &shape, &r, &state_o);
    rng again = r;
    with = test_tensor_make(&r, shape.out_dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    without = test_tensor_make(&again, shape.out_dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    void *lse = row_unwritten(row_acc(&shape), places(&shape));
    on->kernel->finish(&shape, state, with.view, ra_array_view(&shape, lse), on->context);
    on->kernel->finish(&shape, state, without.view, (ra_view){0}, on->context);
    size_t bytes = (size_t)with.elements * ra_dtype_bytes(with.dtype);
    row_expect(on, memcmp(with.memory, without.memory, bytes) == 0, "o without lse");
    free(lse);
    free_state(&state, &state_o);
    test_tensor_free(&with);
    test_tensor_free(&without);
}

/* ---- delta ----------------------------------------------------------------------------------------------- */

static void delta_is_dout_times_o(const row_subject *on) {
    rng r = {on->seed};
    ra_shape shape = row_shape(&r, on->dtype);
    shape.states = 1;
    ra_dtype acc = row_acc(&shape);
    void *delta = row_unwritten(acc, places(&shape));
    test_tensor o = test_tensor_make(&r, shape.out_dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    test_tensor dout = test_tensor_make(&r, on->dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    on->kernel->delta(&shape, dout.view, o.view, delta, on->context);
    double *got = test_as_doubles(acc, delta, places(&shape));
    for (int64_t i = 0; i < places(&shape); i++) {
        place at = place_at(&shape, i);
        double want = 0, size = 0;
        for (int64_t d = 0; d < shape.dim_v; d++) {
            double x = row_element(&o, at.b, at.row, at.h, d), y = row_element(&dout, at.b, at.row, at.h, d);
            double term = x * y / shape.weight;
            want += term;
            size += fabs(term);
        }
        row_expect(on, fabs(got[i] - want) <= size * (acc == RA_F64 ? 1e-14 : 1e-6), "delta");
    }
    free(got);
    free(delta);
    test_tensor_free(&o);
    test_tensor_free(&dout);
}

/* Every state's own lse and delta, which the weight has no part in. */
static void carry_is_lse_and_delta(const row_subject *on) {
    rng r = {on->seed};
    ra_shape shape = row_shape(&r, on->dtype);
    ra_dtype acc = row_acc(&shape);
    int64_t all = shape.states * places(&shape);
    test_tensor o;
    ra_state state = make_state(on, &shape, &r, &o);
    test_tensor dout = test_tensor_make(&r, on->dtype, shape.batch, shape.rows_q, shape.heads_q, shape.dim_v);
    void *lse = row_unwritten(acc, all), *delta = row_unwritten(acc, all);
    on->kernel->carry(&shape, state, dout.view, lse, delta, on->context);
    double *got_lse = test_as_doubles(acc, lse, all), *got_delta = test_as_doubles(acc, delta, all);
    for (int64_t n = 0; n < all; n++) {
        int64_t s = n / places(&shape);
        place at = place_at(&shape, n % places(&shape));
        known_row row = known(s, at.i);
        double want = is_empty(row) ? -INFINITY : log(row.l * exp(row.m)), sum = 0, size = 0;
        row_expect(on, is_rounded(acc, got_lse[n], want, fmax(1, fabs(want))), "lse");
        for (int64_t d = 0; d < shape.dim_v; d++) {
            double term = known_share(s, at.i, d) * row_element(&dout, at.b, at.row, at.h, d);
            sum += term;
            size += fabs(term);
        }
        row_expect(on, is_rounded(acc, got_delta[n], sum, size), "delta");
    }
    row_expect(on, row_is_as_said(&o), "the state's o");
    free(got_lse);
    free(got_delta);
    free(lse);
    free(delta);
    free_state(&state, &o);
    test_tensor_free(&dout);
}

static void test_begin(void **state) {
    (void)state;
    row_for_all(begin_is_nothing_seen);
}

static void test_finish(void **state) {
    (void)state;
    row_for_all(finish_sums_the_softmaxes);
    row_for_all(finish_without_lse);
}

static void test_delta(void **state) {
    (void)state;
    row_for_all(delta_is_dout_times_o);
}

static void test_carry(void **state) {
    (void)state;
    row_for_all(carry_is_lse_and_delta);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begin),
        cmocka_unit_test(test_finish),
        cmocka_unit_test(test_delta),
        cmocka_unit_test(test_carry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
