/* Schedules as data: they fit together, they compute every visible pair once, they send what they must and no more. */
#include "support/cmocka.h"
#include "support/problems/case.h"
#include "support/schedules/coverage.h"

#include "core/rowset.h"
#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 9 };

static const ra_strategy all_strategies[] = {RA_STRATEGY_RING, RA_STRATEGY_PAIRWISE, RA_STRATEGY_ALLGATHER,
                                             RA_STRATEGY_PASSQ};
enum { STRATEGIES = sizeof all_strategies / sizeof *all_strategies };

static void test_random_schedules(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 250; seed++) {
        static test_case c;
        ra_problem p;
        case_make(&c, seed, RA_F64, 3e5);
        assert_int_equal(ra_problem_normalise(&c.problem, &p), RA_OK);
        int ranks = 1 + (int)(seed % MOST_RANKS);
        ra_cut_problem cut = {&p, (ra_layout)(1 + seed % RA_LAYOUT_DOCUMENTS), ranks};
        for (int i = 0; i < STRATEGIES; i++)
            for (int pass = RA_FORWARD; pass <= RA_BACKWARD; pass++) {
                ra_pool pool = {0};
                ra_schedule schedules[MOST_RANKS];
                int64_t volume = 0;
                schedules_make(&pool, &cut, all_strategies[i], (ra_pass)pass, schedules);
                ra_status status = ra_schedule_check(&p, schedules, ranks);
                if (status != RA_OK)
                    fail_msg("seed %d, %s: %s", (int)seed, ra_strategy_name(all_strategies[i]), ra_last_error());
                coverage_check_pairs(&cut, schedules);
                for (int r = 0; r < ranks; r++) {
                    int64_t bytes, messages;
                    ra_schedule_traffic(&p, &schedules[r], &bytes, &messages);
                    volume += bytes;
                    for (int s = 0; s < schedules[r].step_count; s++)
                        for (int64_t k = 0; k < schedules[r].steps[s].compute_count; k++)
                            coverage_check_groups(&schedules[r].steps[s].computes[k].tiles);
                }
                if (pass == RA_FORWARD) {
                    int64_t bytes;
                    assert_int_equal(ra_schedule_volume(&cut, all_strategies[i], &bytes), RA_OK);
                    assert_int_equal(volume, bytes);
                }
                ra_pool_free(&pool);
            }
    }
}

/* Hops that an owner's rows travel when each goes as far as somebody needs it, from what every rank needs. */
static int64_t hops_of(const ra_cut_problem *cut, int owner) {
    int64_t hops = 0, rows = ra_shard_of(cut->layout, cut->problem->seq_k, cut->ranks, owner).rows;
    for (int64_t i = 0; i < ra_head_sets(cut->problem); i++) {
        ra_pool pool = {0};
        int *last = calloc((size_t)rows + 1, sizeof *last);
        for (int t = 1; t < cut->ranks; t++) {
            ra_rowset needed;
            assert_int_equal(ra_rowset_needed(&pool, cut, (owner + t) % cut->ranks, owner, i, &needed), RA_OK);
            for (int64_t n = 0; n < needed.count; n++)
                for (int64_t j = 0; j < needed.spans[n].count; j++) last[ra_span_at(needed.spans[n], j)] = t;
        }
        for (int64_t row = 0; row < rows; row++) hops += last[row] * ra_head_set(cut->problem, i).count;
        ra_pool_free(&pool);
        free(last);
    }
    return hops;
}

/* Routes pass over ranges of hops; none that needs a row is passed over. */
static void test_rows_travel_as_far_as_needed(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        static test_case c;
        ra_problem p;
        case_make(&c, seed, RA_F64, 1e7);
        assert_int_equal(ra_problem_normalise(&c.problem, &p), RA_OK);
        ra_cut_problem cut = {&p, (ra_layout)(1 + seed % RA_LAYOUT_DOCUMENTS), 1 + (int)(seed % 37)};
        for (int owner = 0; owner < cut.ranks; owner++) {
            int64_t bytes;
            assert_int_equal(ra_schedule_volume_of(&cut, RA_STRATEGY_RING, owner, &bytes), RA_OK);
            assert_int_equal(bytes, hops_of(&cut, owner) * ra_record_elements(&p) * 8);
        }
    }
}

static int64_t sent_by_all(const ra_cut_problem *cut, ra_strategy strategy, ra_pass pass) {
    ra_pool pool = {0};
    int64_t total = 0, bytes, messages;
    ra_schedule schedule;
    for (int r = 0; r < cut->ranks; r++) {
        assert_int_equal(ra_schedule_make(&pool, cut, strategy, pass, r, &schedule), RA_OK);
        ra_schedule_traffic(cut->problem, &schedule, &bytes, &messages);
        total += bytes;
    }
    ra_pool_free(&pool);
    return total;
}

static ra_problem problem_of(int64_t seq, int causal, int64_t left) {
    ra_problem p = RA_PROBLEM_INIT, n;
    p.seq_q = seq;
    p.heads_q = 2;
    p.dim = 16;
    p.causal = causal;
    p.window_left = left;
    p.window_right = left >= 0 ? 0 : -1;
    assert_int_equal(ra_problem_normalise(&p, &n), RA_OK);
    return n;
}

/* One row of keys and values of that problem. */
enum { ROW_BYTES = 2 * (16 + 16) * 4 };

static void test_figures(void **state) {
    (void)state;
    ra_problem dense = problem_of(4096, 0, -1), causal = problem_of(4096, 1, -1), window = problem_of(4096, 1, 128);
    ra_cut_problem cut = {&dense, RA_LAYOUT_CONTIGUOUS, 8};
    /* Dense: every row to every other rank, whatever the strategy; the gradients of every row once around and home. */
    for (int i = 0; all_strategies[i] != RA_STRATEGY_PASSQ; i++)
        assert_int_equal(sent_by_all(&cut, all_strategies[i], RA_FORWARD), 7 * 4096 * ROW_BYTES);
    assert_int_equal(sent_by_all(&cut, RA_STRATEGY_RING, RA_BACKWARD), (7 + 7) * 4096 * ROW_BYTES);
    assert_int_equal(sent_by_all(&cut, RA_STRATEGY_PAIRWISE, RA_BACKWARD), (7 + 7) * 4096 * ROW_BYTES);
    /* Causal, contiguous: rank r's rows go to the ranks behind it only. */
    cut.problem = &causal;
    assert_int_equal(sent_by_all(&cut, RA_STRATEGY_RING, RA_FORWARD), 512 * 28 * ROW_BYTES);
    assert_int_equal(sent_by_all(&cut, RA_STRATEGY_PAIRWISE, RA_FORWARD), 512 * 28 * ROW_BYTES);
    /* A window of 128: 128 rows over each of the seven borders, and back once. */
    cut.problem = &window;
    assert_int_equal(sent_by_all(&cut, RA_STRATEGY_RING, RA_FORWARD), 7 * 128 * ROW_BYTES);
    assert_int_equal(sent_by_all(&cut, RA_STRATEGY_PAIRWISE, RA_FORWARD), 7 * 128 * ROW_BYTES);
    assert_int_equal(sent_by_all(&cut, RA_STRATEGY_RING, RA_BACKWARD), 2 * 7 * 128 * ROW_BYTES);
}

/* Queries and what they become, of that problem: [2 heads] of q; O, m, l; q, dout, lse, delta; dq. */
enum { Q_BYTES = 2 * 16 * 4, STATE_BYTES = 2 * 18 * 4, QUERY_BYTES = 2 * 34 * 4, DQ_BYTES = 2 * 16 * 4 };

/* Queries travel to where their keys are, and what they become travels home: 16 queries at the end of 4096 keys. */
static void test_queries_travel(void **state) {
    (void)state;
    ra_problem few = problem_of(4096, 1, -1), window = problem_of(4096, 1, 128);
    few.seq_q = 16;
    ra_cut_problem cut = {&few, RA_LAYOUT_CONTIGUOUS, 8};
    int64_t sent = 0;
    for (int r = 0; r < 8; r++) sent += 2 * (r < 7 ? 7 : 0); /* two queries a rank, to every rank but its own */
    sent += 2 * 7;
    assert_int_equal(sent_by_all(&cut, RA_STRATEGY_PASSQ, RA_FORWARD), sent * (Q_BYTES + STATE_BYTES));
    assert_int_equal(sent_by_all(&cut, RA_STRATEGY_PASSQ, RA_BACKWARD), sent * (QUERY_BYTES + DQ_BYTES));
    assert_true(sent_by_all(&cut, RA_STRATEGY_PASSQ, RA_FORWARD) * 100 <
                sent_by_all(&cut, RA_STRATEGY_RING, RA_FORWARD));
    /* A window of 128: the first 128 queries behind each border see keys before it. */
    cut.problem = &window;
    assert_int_equal(sent_by_all(&cut, RA_STRATEGY_PASSQ, RA_FORWARD), 7 * 128 * (Q_BYTES + STATE_BYTES));
}

/* Making a schedule leaves the last error as it was. */
static void test_success_is_no_error(void **state) {
    (void)state;
    ra_problem p = problem_of(64, 0, -1);
    ra_cut_problem cut = {&p, RA_LAYOUT_CONTIGUOUS, 4};
    ra_pool pool = {0};
    ra_schedule schedule;
    ra_layout layout;
    assert_int_equal(ra_layout_parse("none", &layout), RA_ERR_ARGUMENT);
    assert_int_equal(ra_schedule_make(&pool, &cut, RA_STRATEGY_RING, RA_FORWARD, 1, &schedule), RA_OK);
    assert_non_null(strstr(ra_last_error(), "layout"));
    assert_int_equal(ra_schedule_make(&pool, &cut, (ra_strategy)9, RA_FORWARD, 1, &schedule), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "strategy 9"));
    ra_pool_free(&pool);
}

/* The parcel that a rank has packed last when step s sends. */
static const ra_parcel *packed_before(const ra_schedule *schedule, int s) {
    for (; s >= 0; s--)
        if (schedule->steps[s].pack_count > 0) return &schedule->steps[s].packs[0].parcel;
    return NULL;
}

/* The parcel of that owner that a rank computes with in a step. */
static const ra_parcel *computed_with(const ra_schedule *schedule, int s, int owner) {
    const ra_step *step = &schedule->steps[s];
    for (int64_t i = 0; i < step->compute_count; i++)
        if (step->computes[i].parcel.owner == owner) return &step->computes[i].parcel;
    return NULL;
}

/* Pairwise packs anew only where a peer needs other rows; what the slot holds is always what the peer computes with. */
static int64_t check_packs(const ra_cut_problem *cut) {
    ra_pool pool = {0};
    ra_schedule all[MOST_RANKS];
    int64_t packs = 0;
    schedules_make(&pool, cut, RA_STRATEGY_PAIRWISE, RA_BACKWARD, all);
    for (int r = 0; r < cut->ranks; r++)
        for (int s = 0; s < all[r].step_count; s++) {
            const ra_step *step = &all[r].steps[s];
            packs += step->pack_count;
            for (int64_t i = 0; i < step->transfer_count; i++) {
                const ra_transfer *t = &step->transfers[i];
                if (!t->is_send || t->cargo != RA_CARGO_KV) continue;
                const ra_parcel *held = packed_before(&all[r], s), *used = computed_with(&all[t->peer], s + 1, r);
                assert_non_null(held);
                assert_non_null(used);
                assert_int_equal(held->piece_count, used->piece_count);
                for (int64_t n = 0; n < held->piece_count; n++)
                    assert_memory_equal(&held->pieces[n], &used->pieces[n], sizeof held->pieces[n]);
            }
        }
    ra_pool_free(&pool);
    return packs;
}

static void test_packs(void **state) {
    (void)state;
    ra_problem dense = problem_of(4096, 0, -1), causal = problem_of(4096, 1, -1), window = problem_of(4096, 1, 1500);
    /* Dense: all peers need all rows. */
    assert_int_equal(check_packs(&(ra_cut_problem){&dense, RA_LAYOUT_CONTIGUOUS, 8}), 8);
    /* Causal, zigzag: ranks behind need the first half, ranks before all of it; 0 and 3 have peers of one kind. */
    assert_int_equal(check_packs(&(ra_cut_problem){&causal, RA_LAYOUT_ZIGZAG, 4}), 1 + 2 + 2 + 1);
    assert_true(check_packs(&(ra_cut_problem){&window, RA_LAYOUT_STRIPED, 8}) > 0);
    for (uint64_t seed = 1; seed <= 100; seed++) {
        static test_case c;
        ra_problem p;
        case_make(&c, seed, RA_F64, 3e5);
        assert_int_equal(ra_problem_normalise(&c.problem, &p), RA_OK);
        check_packs(&(ra_cut_problem){&p, (ra_layout)(1 + seed % RA_LAYOUT_DOCUMENTS), 1 + (int)(seed % MOST_RANKS)});
    }
}

/* The first receive of a cargo in a step. */
static ra_transfer *receive_of(const ra_schedule *s, int step, ra_cargo cargo) {
    for (int64_t i = 0; i < s->steps[step].transfer_count; i++)
        if (!s->steps[step].transfers[i].is_send && s->steps[step].transfers[i].cargo == cargo)
            return &s->steps[step].transfers[i];
    fail_msg("nothing is received in step %d", step);
    return NULL;
}

/* What is not copied is said to be where it is, and stays there. */
static void check_source_faults(const ra_problem *p, ra_schedule *s) {
    for (int c = RA_CARGO_KV; c <= RA_CARGO_GRAD; c++) {
        ra_transfer *t = receive_of(&s[1], 2, (ra_cargo)c), keep = *t;
        t->source.rank = (t->source.rank + 1) % 4;
        assert_int_equal(ra_schedule_check(p, s, 4), RA_ERR_INTERNAL);
        *t = keep;
        t->source.rank = -1;
        assert_int_equal(ra_schedule_check(p, s, 4), RA_ERR_INTERNAL);
        *t = keep;
        t->source.offset++;
        assert_int_equal(ra_schedule_check(p, s, 4), RA_ERR_INTERNAL);
        *t = keep;
        t->source.slot = RA_SOURCE_SLOTS;
        assert_int_equal(ra_schedule_check(p, s, 4), RA_ERR_INTERNAL);
        *t = keep;
    }
    ra_step packs_again = s[1].steps[2];
    s[1].steps[2].packs = s[1].steps[0].packs;
    s[1].steps[2].pack_count = 1;
    assert_int_equal(ra_schedule_check(p, s, 4), RA_ERR_INTERNAL);
    s[1].steps[2] = packs_again;
    assert_int_equal(ra_schedule_check(p, s, 4), RA_OK);
}

/* A checker that finds nothing proves nothing: each kind of damage is found. */
static void test_checker_finds_faults(void **state) {
    (void)state;
    ra_problem p = problem_of(64, 0, -1);
    ra_cut_problem cut = {&p, RA_LAYOUT_CONTIGUOUS, 4};
    ra_pool pool = {0};
    ra_schedule s[4];
    schedules_make(&pool, &cut, RA_STRATEGY_RING, RA_BACKWARD, s);
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_OK);
    ra_transfer *t = &s[1].steps[1].transfers[0], keep = *t;
    t->elements--;
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_ERR_INTERNAL);
    *t = keep;
    t->peer = 1;
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_ERR_INTERNAL);
    *t = keep;
    t->elements += 1000000;
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_ERR_INTERNAL);
    *t = keep;
    s[2].steps[1].computes[0].kv_slot ^= 1; /* computes with what is being received */
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_ERR_INTERNAL);
    s[2].steps[1].computes[0].kv_slot ^= 1;
    s[2].steps[2].computes[0].grad_slot ^= 1; /* computes into what is being sent */
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_ERR_INTERNAL);
    s[2].steps[2].computes[0].grad_slot ^= 1;
    s[1].steps[0].pack_count--; /* sends what nobody packed */
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_ERR_INTERNAL);
    s[1].steps[0].pack_count++;
    s[1].steps[1].computes[0].parcel.owner ^= 2; /* computes with another rank's rows */
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_ERR_INTERNAL);
    s[1].steps[1].computes[0].parcel.owner ^= 2;
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_OK);
    check_source_faults(&p, s);
    s[3].steps[0].transfer_count--;
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_ERR_INTERNAL);
    schedules_make(&pool, &cut, RA_STRATEGY_PASSQ, RA_BACKWARD, s);
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_OK);
    s[1].steps[1].computes[0].visit.slot ^= 1; /* computes with queries that are being received */
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_ERR_INTERNAL);
    s[1].steps[1].computes[0].visit.slot ^= 1;
    s[1].steps[2].computes[0].visit.result ^= 1; /* computes into what goes home */
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_ERR_INTERNAL);
    s[1].steps[2].computes[0].visit.result ^= 1;
    s[1].steps[2].computes[0].visit.owner ^= 1; /* takes the queries for another rank's */
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_ERR_INTERNAL);
    s[1].steps[2].computes[0].visit.owner ^= 1;
    assert_int_equal(s[2].steps[0].packs[1].cargo, RA_CARGO_STATS);
    s[2].steps[0].pack_count = 1; /* queries without their lse and delta */
    assert_int_equal(ra_schedule_check(&p, s, 4), RA_ERR_INTERNAL);
    ra_pool_free(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_schedules),
        cmocka_unit_test(test_rows_travel_as_far_as_needed),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_queries_travel),
        cmocka_unit_test(test_packs),
        cmocka_unit_test(test_success_is_no_error),
        cmocka_unit_test(test_checker_finds_faults),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
