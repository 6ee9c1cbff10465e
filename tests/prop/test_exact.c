/* Every feature together, at random, against the definition in doubles: forward and backward, to 1e-11.
 * RINGATTN_SWEEP=N runs N problems instead of 1000; RINGATTN_SEED=S starts at that seed. */
#include "support/cmocka.h"
#include "support/problems/sweep.h"
#include "support/rng.h"
#include "support/scale.h"

#include <stdio.h>
#include <stdlib.h>

static int check_case(const test_case *c, int ranks) {
    char text[512];
    sweep_data *data = sweep_data_make(c);
    if (!data) return printf("no data for seed %llu: %s\n", (unsigned long long)c->seed, ra_last_error()), 0;
    sweep_result result;
    ra_status status = sweep_threads(ranks, data, 1, &result);
    sweep_data_free(data);
    int good =
        status == RA_OK && sweep_worst_abs(&result) < 1e-11 && !result.wrong_infinities && !result.traffic_differs;
    if (!good)
        printf("FAILED p=%d %s\n  status %d (%s), worst %g, wrong infinities %d, traffic differs on %d ranks\n", ranks,
               case_text(c, text, sizeof text), status, status ? ra_last_error() : "",
               status ? 0 : sweep_worst_abs(&result), status ? 0 : result.wrong_infinities,
               status ? 0 : result.traffic_differs);
    return good;
}

static int check_one(uint64_t seed, int ranks, double work) {
    static test_case c;
    case_make(&c, seed, RA_F64, work);
    return check_case(&c, ranks);
}

/* Few queries, many keys, a window: on stripes the rows that travel have gaps, and two of them at different distances
 * may look like a span. */
static void test_few_queries_in_a_window(void **state) {
    (void)state;
    int count = number_from("RINGATTN_SWEEP", 400) / 2, bad = 0;
    printf("problems %d, seeds 1 to %d\n", count, count);
    for (uint64_t seed = 1; seed <= (uint64_t)count && bad < 5; seed++) {
        test_case c = {.seed = seed, .problem = RA_PROBLEM_INIT, .options = RA_OPTIONS_INIT};
        rng r = {seed * 7919};
        ra_problem *p = &c.problem;
        p->dtype = RA_F64;
        p->seq_q = rng_between(&r, 1, 12);
        p->seq_k = rng_between(&r, p->seq_q, 60);
        p->heads_q = 4;
        p->heads_kv = rng_one_in(&r, 3) ? 1 : 2;
        p->dim = 4;
        p->causal = !rng_one_in(&r, 4);
        p->window_left = rng_between(&r, 0, 30);
        p->window_right = rng_one_in(&r, 2) ? -1 : rng_between(&r, 0, 10);
        c.options.layout = rng_one_in(&r, 4) ? RA_LAYOUT_ZIGZAG : RA_LAYOUT_STRIPED;
        c.options.strategy = RA_STRATEGY_RING;
        c.options.backward = c.options.threads = 1;
        c.options.kernel = "ref";
        bad += !check_case(&c, (int)rng_between(&r, 2, 7));
    }
    assert_int_equal(bad, 0);
}

static void test_random_problems(void **state) {
    (void)state;
    int count = number_from("RINGATTN_SWEEP", 1000), first = number_from("RINGATTN_SEED", 1), bad = 0;
    printf("problems %d, seeds %d to %d\n", count, first, first + count - 1);
    for (int i = 0; i < count && bad < 5; i++) {
        uint64_t seed = (uint64_t)(first + i);
        double work = i % 40 == 0 ? 4e8 : 1.5e7; /* now and then a long one */
        bad += !check_one(seed, 1 + (int)(seed % 8), work);
    }
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_problems),
                                       cmocka_unit_test(test_few_queries_in_a_window)};
    return cmocka_run_group_tests_name("exact", tests, NULL, NULL);
}
