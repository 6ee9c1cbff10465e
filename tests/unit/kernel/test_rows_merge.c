/* The row operation merge: two partial states of the same rows become what one state would have been. */
#include "support/cmocka.h"
#include "support/rng.h"

#include "kernel/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A state of `rows` rows in doubles; o [states, batch, heads_q, rows, dim_v], m and l [states, batch, heads_q, rows].
 */
typedef struct plain_state {
    double *o, *m, *l;
    int64_t rows, each; /* each: states * batch * heads_q * rows */
} plain_state;

static plain_state make_state(rng *r, const ra_shape *s, int64_t rows, int nothing_seen_one_in) {
    plain_state x = {.rows = rows, .each = s->states * s->batch * s->heads_q * rows};
    x.o = calloc((size_t)(x.each * s->dim_v) + 1, sizeof(double));
    x.m = calloc((size_t)x.each + 1, sizeof(double));
    x.l = calloc((size_t)x.each + 1, sizeof(double));
    for (int64_t i = 0; i < x.each; i++) {
        int none = nothing_seen_one_in && rng_one_in(r, nothing_seen_one_in);
        x.m[i] = none ? -INFINITY : 20 * rng_real(r);
        x.l[i] = none ? 0 : 1 + fabs(rng_real(r));
        /* Nobody may read the o of a row that has seen nothing. */
        for (int64_t d = 0; d < s->dim_v; d++) x.o[i * s->dim_v + d] = none ? NAN : rng_real(r);
    }
    return x;
}

static void free_state(plain_state *x) {
    free(x->o);
    free(x->m);
    free(x->l);
}

static ra_state view_of(const ra_shape *s, const plain_state *x) {
    return (ra_state){.o = {x->o, s->heads_q * x->rows * s->dim_v, s->dim_v, x->rows * s->dim_v, 1},
                      .o_state = s->batch * s->heads_q * x->rows * s->dim_v,
                      .m = x->m,
                      .l = x->l};
}

static plain_state copy_of(const ra_shape *s, const plain_state *x) {
    rng r = {1};
    plain_state copy = make_state(&r, s, x->rows, 0);
    memcpy(copy.o, x->o, (size_t)(x->each * s->dim_v) * sizeof(double));
    memcpy(copy.m, x->m, (size_t)x->each * sizeof(double));
    memcpy(copy.l, x->l, (size_t)x->each * sizeof(double));
    return copy;
}

static ra_shape random_shape(rng *r) {
    ra_shape s = {.batch = rng_between(r, 1, 3),
                  .heads_kv = 1,
                  .heads_q = rng_between(r, 1, 3),
                  .dim = 8,
                  .dim_v = rng_between(r, 1, 9),
                  .rows_q = rng_between(r, 1, 200),
                  .states = rng_between(r, 1, 3),
                  .scale = 1,
                  .weight = 1,
                  .dtype = RA_F64,
                  .out_dtype = RA_F64};
    return s;
}

/* Where row i of the merged rows is in both states. */
typedef struct two_places {
    int64_t to, from;
} two_places;

static two_places place(const plain_state *to, const plain_state *from, ra_span rows, int64_t band, int64_t i) {
    return (two_places){band * to->rows + ra_span_at(rows, i), band * from->rows + i};
}

static void expect_merged(const ra_shape *s, const plain_state *before, const plain_state *from,
                          const plain_state *after, two_places at) {
    double m1 = before->m[at.to], m2 = from->m[at.from], lse1 = m1 + log(before->l[at.to]),
           lse2 = m2 + log(from->l[at.from]);
    double lse = after->m[at.to] + log(after->l[at.to]), most = lse1 > lse2 ? lse1 : lse2;
    assert_true(fabs(lse - (most + log(exp(lse1 - most) + exp(lse2 - most)))) < 1e-12);
    for (int64_t d = 0; d < s->dim_v; d++) {
        double o1 = before->o[at.to * s->dim_v + d], o2 = from->o[at.from * s->dim_v + d];
        double want = (m1 == -INFINITY ? 0 : o1 * exp(m1 - lse)) + o2 * exp(m2 - lse);
        assert_true(fabs(after->o[at.to * s->dim_v + d] * exp(after->m[at.to] - lse) - want) < 1e-12);
    }
}

static int same_row(const ra_shape *s, const plain_state *x, const plain_state *y, int64_t i) {
    size_t bytes = (size_t)s->dim_v * sizeof(double);
    return memcmp(&x->m[i], &y->m[i], sizeof(double)) == 0 && memcmp(&x->l[i], &y->l[i], sizeof(double)) == 0 &&
           memcmp(&x->o[i * s->dim_v], &y->o[i * s->dim_v], bytes) == 0;
}

static void test_random_states(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= 200; seed++) {
        rng r = {seed};
        ra_shape s = random_shape(&r);
        ra_span rows = {rng_between(&r, 0, s.rows_q - 1), 1, 0};
        rows.count = rng_between(&r, 1, s.rows_q - rows.first);
        plain_state to = make_state(&r, &s, s.rows_q, 4), from = make_state(&r, &s, rows.count, 4);
        plain_state before = copy_of(&s, &to);
        ra_context context = {.threads = 2};
        ra_rows_merge(&s, view_of(&s, &to), rows, view_of(&s, &from), &context);
        for (int64_t band = 0; band < s.states * s.batch * s.heads_q; band++) {
            for (int64_t i = 0; i < rows.count; i++) {
                two_places at = place(&to, &from, rows, band, i);
                if (from.m[at.from] != -INFINITY)
                    expect_merged(&s, &before, &from, &to, at);
                else
                    assert_true(same_row(&s, &before, &to, at.to));
            }
            for (int64_t row = 0; row < s.rows_q; row++)
                if (row < rows.first || row >= rows.first + rows.count)
                    assert_true(same_row(&s, &before, &to, band * s.rows_q + row));
        }
        free_state(&to);
        free_state(&from);
        free_state(&before);
    }
}

/* A row that has met a NaN on either side is NaN, and no other row is. */
static void test_nan_stays(void **state) {
    (void)state;
    rng r = {7};
    ra_shape s = random_shape(&r);
    s.rows_q = 4;
    ra_span rows = {0, 1, 4};
    plain_state to = make_state(&r, &s, 4, 0), from = make_state(&r, &s, 4, 0);
    to.m[0] = to.l[0] = NAN;
    from.m[1] = -INFINITY, from.l[1] = NAN; /* every score was NaN: the maximum has lost them */
    from.l[2] = NAN;
    ra_context context = {.threads = 1};
    ra_rows_merge(&s, view_of(&s, &to), rows, view_of(&s, &from), &context);
    for (int i = 0; i < 3; i++) assert_true(isnan(to.l[i]));
    assert_true(isfinite(to.m[3]) && isfinite(to.l[3]) && isfinite(to.o[3 * s.dim_v]));
    free_state(&to);
    free_state(&from);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_states),
        cmocka_unit_test(test_nan_stays),
    };
    return cmocka_run_group_tests_name("rows_merge", tests, NULL, NULL);
}
