/* Infinities, NaNs and huge numbers at random places of all tensors, in both passes, by every kernel and type, over
 * every feature and several ranks, against the rule: what a row sees shows, what it does not see never does.
 * RINGATTN_SWEEP=N runs N problems instead of 400; RINGATTN_SEED=S starts at that seed. */
#include "support/cmocka.h"
#include "support/problems/rule.h"
#include "support/rng.h"
#include "support/scale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Something unusual; huge numbers are such that most products of one with an ordinary number are held. */
static double strange(rng *r, ra_dtype dtype) {
    double huge = dtype == RA_F64 ? 1e300 : dtype == RA_F16 ? 6e4 : 1e36;
    double sign = rng_one_in(r, 2) ? -1 : 1;
    switch (rng_between(r, 0, 5)) {
    case 0:
    case 1:
        return NAN;
    case 2:
    case 3:
        return sign * INFINITY;
    case 4:
        return sign * huge;
    default:
        return sign * sqrt(huge);
    }
}

/* One element, or a whole row of `width`, becomes strange. */
static void spoil(rng *r, ra_dtype dtype, double *x, int64_t count, int64_t width) {
    int64_t at = rng_between(r, 0, count - 1), from = at, to = at + 1;
    double value = strange(r, dtype);
    unsigned char narrow[8];
    if (rng_one_in(r, 6)) from = at / width * width, to = from + width;
    ra_convert(dtype, narrow, RA_F64, &value, 1);
    for (int64_t i = from; i < to; i++) ra_convert(RA_F64, &x[i], dtype, narrow, 1);
}

static void spoil_some(rng *r, sweep_data *d) {
    const ra_problem *p = &d->p;
    int64_t rows_q = p->batch * p->seq_q * p->heads_q, rows_k = p->batch * p->seq_k * p->heads_kv;
    for (int64_t n = rng_between(r, 0, 4); n >= 0; n--) {
        switch (rng_between(r, 0, 3)) {
        case 0:
            spoil(r, p->dtype, d->q, rows_q * p->dim, p->dim);
            break;
        case 1:
            spoil(r, p->dtype, d->k, rows_k * p->dim, p->dim);
            break;
        case 2:
            spoil(r, p->dtype, d->v, rows_k * p->dim_v, p->dim_v);
            break;
        default:
            spoil(r, p->dtype, d->dout, rows_q * p->dim_v, p->dim_v);
            break;
        }
    }
}

static void make_case(test_case *c, rng *r, uint64_t seed) {
    static const ra_dtype types[] = {RA_F32, RA_BF16, RA_F64, RA_F16};
    static const double scales[] = {1e3, -1e5, 1e10};
    case_make(c, seed, types[rng_between(r, 0, 3)], rng_one_in(r, 20) ? 2e7 : 2e6);
    if (c->problem.dtype == RA_BF16 || c->problem.dtype == RA_F16) c->problem.out_dtype = RA_F32;
    if (rng_one_in(r, 6)) c->problem.scale = scales[rng_between(r, 0, 2)];
}

static int check_one(uint64_t seed) {
    static test_case c;
    char text[512];
    rng r = {seed * 0x9e3779b9u + 77};
    make_case(&c, &r, seed);
    int ranks = (int)rng_between(&r, 1, 4);
    sweep_data *data = sweep_data_make(&c);
    sweep_result result = {0};
    if (!data) return printf("no data for %s: %s\n", case_text(&c, text, sizeof text), ra_last_error()), 0;
    spoil_some(&r, data);
    ra_status status = RA_ERR_MEMORY;
    if (rule_apply(data)) status = sweep_threads(ranks, data, 1, &result);
    sweep_data_free(data);
    if (status == RA_OK && !result.wrong_infinities) return 1;
    printf("FAILED p=%d %s\n  status %d (%s), %d elements against the rule\n", ranks, case_text(&c, text, sizeof text),
           status, status ? ra_last_error() : "", status ? 0 : result.wrong_infinities);
    return 0;
}

static void test_random_places(void **state) {
    (void)state;
    int count = number_from("RINGATTN_SWEEP", 400), first = number_from("RINGATTN_SEED", 1), bad = 0;
    printf("problems %d, seeds %d to %d\n", count, first, first + count - 1);
    for (int i = 0; i < count && bad < 5; i++) bad += !check_one((uint64_t)(first + i));
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_places)};
    return cmocka_run_group_tests_name("nonfinite", tests, NULL, NULL);
}
