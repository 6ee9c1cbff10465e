/* What "auto" chooses, and how even it is. */
#include "support/cmocka.h"
#include "support/rng.h"

#include <ringattn/ringattn.h>

static ra_problem problem_of(int causal) {
    ra_problem p = RA_PROBLEM_INIT;
    p.seq_q = 8192;
    p.heads_q = 8;
    p.dim = 64;
    p.causal = causal;
    return p;
}

static double imbalance(const ra_problem *p, ra_layout layout, int ranks) {
    ra_options o = RA_OPTIONS_INIT;
    int64_t total = 0, most = 0;
    o.layout = layout;
    for (int r = 0; r < ranks; r++) {
        ra_plan_info info = RA_PLAN_INFO_INIT;
        assert_int_equal(ra_predict(p, &o, ranks, r, &info), RA_OK);
        total += info.pairs;
        if (info.pairs > most) most = info.pairs;
    }
    if (p->causal && !p->documents) assert_int_equal(total, 8 * (int64_t)8192 * 8193 / 2);
    return (double)most * ranks / (double)total;
}

static void test_layouts(void **state) {
    (void)state;
    ra_problem dense = problem_of(0), causal = problem_of(1), window = problem_of(1);
    ra_layout layout;
    window.window_left = 100;
    window.window_right = 0;
    assert_int_equal(ra_layout_resolve(&dense, NULL, 4, &layout), RA_OK);
    assert_int_equal(layout, RA_LAYOUT_CONTIGUOUS);
    assert_int_equal(ra_layout_resolve(&causal, NULL, 4, &layout), RA_OK);
    assert_int_equal(layout, RA_LAYOUT_ZIGZAG);
    assert_int_equal(ra_layout_resolve(&window, NULL, 4, &layout), RA_OK);
    assert_int_equal(layout, RA_LAYOUT_CONTIGUOUS); /* a window is even as it is */
    assert_true(imbalance(&causal, RA_LAYOUT_ZIGZAG, 4) < 1.02);
    assert_true(imbalance(&causal, RA_LAYOUT_STRIPED, 4) < 1.02);
    assert_true(imbalance(&causal, RA_LAYOUT_CONTIGUOUS, 4) > 1.7);
}

/* Long documents that end unevenly for every run: stripes balance them, and that is what counts. */
static void test_long_documents_are_balanced(void **state) {
    (void)state;
    static const int64_t cu[] = {0, 2400, 48000, 48800, 65536};
    ra_problem p = problem_of(1);
    ra_layout layout;
    p.seq_q = 65536;
    p.documents = 4;
    p.cu_seqlens_q = cu;
    assert_int_equal(ra_layout_resolve(&p, NULL, 8, &layout), RA_OK);
    assert_true(imbalance(&p, layout, 8) < 1.05);
}

static int64_t bytes_of_all(const ra_problem *p, ra_layout layout, int ranks) {
    ra_options o = RA_OPTIONS_INIT;
    int64_t bytes = 0;
    o.layout = layout;
    for (int r = 0; r < ranks; r++) {
        ra_plan_info info = RA_PLAN_INFO_INIT;
        assert_int_equal(ra_predict(p, &o, ranks, r, &info), RA_OK);
        bytes += info.forward.bytes_planned;
    }
    return bytes;
}

/* Many short documents: stripes would send every row to everyone for the sake of a few per cent of balance. */
static void test_short_documents_stay_where_they_are(void **state) {
    (void)state;
    enum { DOCUMENTS = 1024 };
    static int64_t cu[DOCUMENTS + 1];
    ra_problem p = problem_of(1);
    ra_layout layout;
    rng r = {7};
    for (int64_t d = 0; d < DOCUMENTS; d++)
        cu[d + 1] = cu[d] + (rng_one_in(&r, 8) ? rng_between(&r, 200, 400) : rng_between(&r, 1, 50));
    p.seq_q = cu[DOCUMENTS];
    p.documents = DOCUMENTS;
    p.cu_seqlens_q = cu;
    assert_int_equal(ra_layout_resolve(&p, NULL, 8, &layout), RA_OK);
    assert_int_equal(layout, RA_LAYOUT_CONTIGUOUS);
    assert_true(imbalance(&p, layout, 8) > 1.05 && imbalance(&p, layout, 8) < 1.2);
    assert_true(100 * bytes_of_all(&p, layout, 8) < bytes_of_all(&p, RA_LAYOUT_STRIPED, 8));
}

static void test_strategies(void **state) {
    (void)state;
    ra_problem dense = problem_of(0), causal = problem_of(1);
    ra_plan_info info = RA_PLAN_INFO_INIT;
    assert_int_equal(ra_predict(&dense, NULL, 4, 0, &info), RA_OK);
    assert_int_equal(info.strategy, RA_STRATEGY_RING);
    assert_int_equal(ra_predict(&causal, NULL, 4, 0, &info), RA_OK);
    assert_int_equal(info.strategy, RA_STRATEGY_PAIRWISE); /* half of each shard is needed by half of the ranks only */
    causal.seq_k = causal.seq_q;
    causal.seq_q = 32; /* a chunk of a prompt against a long cache */
    assert_int_equal(ra_predict(&causal, NULL, 4, 0, &info), RA_OK);
    assert_int_equal(info.strategy, RA_STRATEGY_PASSQ);
    ra_options ring = RA_OPTIONS_INIT;
    ra_plan_info other = RA_PLAN_INFO_INIT;
    ring.strategy = RA_STRATEGY_PAIRWISE;
    assert_int_equal(ra_predict(&causal, &ring, 4, 0, &other), RA_OK);
    assert_true(info.forward.bytes_planned < other.forward.bytes_planned);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_long_documents_are_balanced),
        cmocka_unit_test(test_short_documents_stay_where_they_are),
        cmocka_unit_test(test_strategies),
    };
    return cmocka_run_group_tests_name("choose", tests, NULL, NULL);
}
