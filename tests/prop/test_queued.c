/* Plans on an asynchronous device, without a GPU: the random problems of test_exact.c on the device of
 * support/queued/queued.h, over in-process ranks and, through host memory, over a transport that knows no devices.
 * Forward and backward, every layout and strategy, 1 to 4 ranks. A device that leaves out waits shows that these tests
 * would see one missing. RINGATTN_SWEEP=N runs N problems; RINGATTN_SEED=S starts at that seed. */
#include "support/cmocka.h"
#include "support/faults/faulty.h"
#include "support/problems/sweep.h"
#include "support/queued/queued.h"
#include "support/ranks.h"
#include "support/scale.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_RANKS = 4 };

/* Whether the sums may be kept in the outputs is another path through the executor: f32 from bf16 keeps them apart. */
static void make_case(test_case *c, uint64_t seed, const ra_backend *backend) {
    case_make(c, seed, seed % 3 ? RA_F64 : RA_BF16, 3e6);
    c->options.backend = backend;
    c->options.kernel = NULL;
}

/* ---- any transport --------------------------------------------------------------------------------------- */

typedef struct body_run {
    const sweep_data *data;
    int repeat;
    sweep_result results[MOST_RANKS];
} body_run;

static ra_status body(ra_comm *comm, void *user) {
    body_run *run = user;
    return sweep_run(comm, run->data, run->repeat, &run->results[ra_comm_rank(comm)]);
}

/* staged: over a transport of host memory only. */
static ra_status run_case(const sweep_data *data, int ranks, int staged, int repeat, sweep_result *result_out) {
    static body_run run;
    rank_outcome outcomes[MOST_RANKS];
    ra_comm *comms[MOST_RANKS];
    run.data = data;
    run.repeat = repeat;
    ra_status status =
        staged ? fault_create(ranks, (fault){.kind = FAULT_NONE}, NULL, comms) : ra_comm_create_threads(ranks, comms);
    if (status != RA_OK) return status;
    ranks_run(comms, ranks, body, &run, outcomes);
    ranks_destroy(comms, ranks);
    for (int r = 0; r < ranks; r++)
        if (outcomes[r].status != RA_OK) return ra_fail(outcomes[r].status, "%s", outcomes[r].error);
    *result_out = run.results[0];
    return RA_OK;
}

/* Sums over many rows are large, and so is their rounding to bf16: there it is the norm that counts. */
static int is_close(const test_case *c, const sweep_result *result) {
    if (c->problem.dtype == RA_F64) return sweep_worst_abs(result) < 1e-11;
    for (int i = 0; i < OUT_COUNT; i++)
        if (!(result->max_abs[i] < 0.15 || result->relative[i] < 0.01)) return 0;
    return 1;
}

static int is_right(const test_case *c, const sweep_result *result) {
    return is_close(c, result) && !result->wrong_infinities && !result->traffic_differs;
}

/* One of those whose keys stay: nothing but causal, and its keys are in no tile's way. */
static void make_plainer(test_case *c, uint64_t seed) {
    ra_problem *p = &c->problem;
    p->branches = 0, p->documents = 1, p->cu_seqlens_q = p->cu_seqlens_k = NULL;
    p->window_left = p->window_right = -1;
    c->options.strategy = seed % 2 ? RA_STRATEGY_RING : RA_STRATEGY_ALLGATHER;
    if (c->options.layout == RA_LAYOUT_DOCUMENTS) c->options.layout = RA_LAYOUT_ZIGZAG;
}

static int check_one(uint64_t seed, int ranks, int staged, int plainer) {
    static test_case c;
    char text[512];
    queued_device *queued = queued_create((queued_habits){.seed = seed, .delay_one_in = 6, .delay_most_us = 300});
    make_case(&c, seed, queued_backend(queued));
    if (plainer) make_plainer(&c, seed);
    sweep_data *data = sweep_data_make(&c);
    sweep_result result = {0};
    ra_status status = data ? run_case(data, ranks, staged, 2, &result) : RA_ERR_MEMORY;
    sweep_data_free(data);
    int good = status == RA_OK && is_right(&c, &result);
    if (!good)
        printf("FAILED p=%d staged=%d %s\n  status %d (%s), worst %g, wrong infinities %d\n", ranks, staged,
               case_text(&c, text, sizeof text), status, status ? ra_last_error() : "", sweep_worst_abs(&result),
               result.wrong_infinities);
    if (queued_streams(queued) || queued_bytes(queued)) {
        printf("FAILED p=%d %s: %d streams and %lld bytes are left\n", ranks, case_text(&c, text, sizeof text),
               queued_streams(queued), (long long)queued_bytes(queued));
        good = 0;
    }
    queued_destroy(queued);
    return good;
}

static void sweep(int full, int staged, int plainer) {
    int count = number_from("RINGATTN_SWEEP", full), first = number_from("RINGATTN_SEED", 1), bad = 0;
    printf("problems %d, seeds %d to %d\n", count, first, first + count - 1);
    for (int i = 0; i < count && bad < 5; i++)
        bad += !check_one((uint64_t)(first + i), 1 + (first + i) % MOST_RANKS, staged, plainer);
    assert_int_equal(bad, 0);
}

static void test_in_process(void **state) {
    (void)state;
    sweep(300, 0, 0);
}

static void test_keys_that_stay(void **state) {
    (void)state;
    sweep(150, 0, 1);
}

/* Long stripes, whose queries are split. */
static void test_keys_that_stay_on_stripes(void **state) {
    (void)state;
    static test_case c;
    sweep_result result;
    queued_device *queued = queued_create((queued_habits){.seed = 3, .delay_one_in = 6, .delay_most_us = 300});
    case_plain(&c, RA_STRATEGY_RING, queued_backend(queued));
    c.problem.seq_q = 2 * 600 + 1, c.options.layout = RA_LAYOUT_STRIPED;
    sweep_data *data = sweep_data_make(&c);
    assert_int_equal(run_case(data, 2, 0, 1, &result), RA_OK);
    assert_true(is_right(&c, &result));
    sweep_data_free(data);
    queued_destroy(queued);
}

static void test_through_host_memory(void **state) {
    (void)state;
    sweep(100, 1, 0);
}

/* ---- the same bits, and what a missing wait does --------------------------------------------------------- */

static ra_status run_plain(ra_strategy strategy, queued_habits habits, int repeat, sweep_result *result_out) {
    static test_case c;
    queued_device *queued = queued_create(habits);
    case_plain(&c, strategy, queued_backend(queued));
    sweep_data *data = sweep_data_make(&c);
    ra_status status = run_case(data, MOST_RANKS, 0, repeat, result_out);
    sweep_data_free(data);
    queued_destroy(queued);
    return status;
}

static void test_delays_change_no_bit(void **state) {
    (void)state;
    for (int strategy = RA_STRATEGY_RING; strategy <= RA_STRATEGY_PASSQ; strategy++) {
        sweep_result first, other;
        assert_int_equal(run_plain((ra_strategy)strategy, (queued_habits){.seed = 1}, 1, &first), RA_OK);
        for (uint64_t seed = 2; seed < 5; seed++) {
            queued_habits habits = {.seed = seed, .delay_one_in = 3, .delay_most_us = 400};
            assert_int_equal(run_plain((ra_strategy)strategy, habits, 8, &other), RA_OK);
            assert_true(other.bits == first.bits);
        }
    }
}

/* ---- ranks of one device ----------------------------------------------------------------------------------------- */

/* Copies that the passes of a run put on streams: those of so many more passes. */
static int64_t copies_of_passes(ra_strategy strategy, int staged) {
    int64_t copies[2];
    for (int more = 0; more < 2; more++) {
        static test_case c;
        queued_device *queued = queued_create((queued_habits){.seed = 5, .delay_one_in = 4, .delay_most_us = 200});
        sweep_result result;
        case_plain(&c, strategy, queued_backend(queued));
        sweep_data *data = sweep_data_make(&c);
        assert_int_equal(run_case(data, MOST_RANKS, staged, 1 + more, &result), RA_OK);
        assert_true(is_right(&c, &result));
        copies[more] = queued_copies(queued);
        sweep_data_free(data);
        queued_destroy(queued);
    }
    return copies[1] - copies[0];
}

/* What goes around is used where it is: the copies that are left are those by which the test reads the outputs. */
static void test_ranks_of_one_device_copy_nothing(void **state) {
    (void)state;
    int64_t others = copies_of_passes(RA_STRATEGY_PAIRWISE, 0), ring = copies_of_passes(RA_STRATEGY_RING, 0);
    int64_t gathered = copies_of_passes(RA_STRATEGY_ALLGATHER, 0), staged = copies_of_passes(RA_STRATEGY_RING, 1);
    printf("copies of a pass each way: ring %lld, all-gather %lld, pairwise %lld, ring through host memory %lld\n",
           (long long)ring, (long long)gathered, (long long)others, (long long)staged);
    assert_int_equal(ring, OUT_COUNT * MOST_RANKS);
    assert_int_equal(gathered, ring);
    assert_true(ring < others && ring < staged);
}

/* Left out waits race on purpose, so this is not for ThreadSanitizer. */
#if defined(__SANITIZE_THREAD__)
#define RACES_ALLOWED 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RACES_ALLOWED 0
#endif
#endif
#ifndef RACES_ALLOWED
#define RACES_ALLOWED 1
#endif

static void test_a_missing_wait_is_seen(void **state) {
    (void)state;
    if (!RACES_ALLOWED) skip();
    int seen = 0, runs = 0;
    for (int strategy = RA_STRATEGY_RING; strategy <= RA_STRATEGY_PASSQ; strategy++)
        for (uint64_t seed = 1; seed < 6; seed++, runs++) {
            sweep_result result;
            queued_habits habits = {.seed = seed, .delay_one_in = 2, .delay_most_us = 800, .ignore_wait = 3};
            ra_status status = run_plain((ra_strategy)strategy, habits, 1, &result);
            seen += status != RA_OK || sweep_worst_abs(&result) > 1e-11 || result.wrong_infinities;
        }
    printf("%d of %d runs without every third wait went wrong\n", seen, runs);
    assert_true(seen > runs / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_process),
        cmocka_unit_test(test_keys_that_stay),
        cmocka_unit_test(test_keys_that_stay_on_stripes),
        cmocka_unit_test(test_through_host_memory),
        cmocka_unit_test(test_delays_change_no_bit),
        cmocka_unit_test(test_ranks_of_one_device_copy_nothing),
        cmocka_unit_test(test_a_missing_wait_is_seen),
    };
    return cmocka_run_group_tests_name("queued", tests, NULL, NULL);
}
