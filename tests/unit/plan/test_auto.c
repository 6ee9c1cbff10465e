/* "auto" against every layout and strategy, each costed by making the schedules of all its ranks: random problems with
 * documents, and what it takes costs at most 5% more than the best of them by the model of plan/choose.h. */
#include "support/cmocka.h"
#include "support/rng.h"

#include "plan/choose.h"
#include "schedule/schedule.h"

#include <stdio.h>

enum { PROBLEMS = 500, MOST_DOCUMENTS = 100, MOST_LENGTH = 6000 };

typedef struct packed {
    ra_problem problem;
    int64_t cu_q[MOST_DOCUMENTS + 1], cu_k[MOST_DOCUMENTS + 1];
    ra_branch branches[3];
    int ranks;
} packed;

/* Lengths of all sizes: some documents are longer than a shard, most are shorter. */
static int64_t cut(rng *r, int64_t *cu, int64_t documents, int64_t most) {
    for (int64_t d = 0; d < documents; d++) {
        int64_t left = MOST_LENGTH - cu[d] - (documents - d);
        int64_t length = rng_between(r, 0, most) >> rng_between(r, 0, 6);
        cu[d + 1] = cu[d] + (length < left ? length : left > 0 ? left : 0);
    }
    if (cu[documents] == 0) cu[documents] = 1;
    return cu[documents];
}

static void make(rng *r, packed *c) {
    static const int64_t dims[] = {16, 64, 128};
    static const ra_dtype types[] = {RA_F32, RA_BF16, RA_F64};
    *c = (packed){.problem = RA_PROBLEM_INIT, .ranks = (int)rng_between(r, 2, 16)};
    ra_problem *p = &c->problem;
    p->documents = rng_between(r, 2, rng_one_in(r, 3) ? MOST_DOCUMENTS : 20);
    p->seq_q = cut(r, c->cu_q, p->documents, MOST_LENGTH);
    p->cu_seqlens_q = c->cu_q;
    if (rng_one_in(r, 3)) {
        p->seq_k = cut(r, c->cu_k, p->documents, MOST_LENGTH);
        p->cu_seqlens_k = c->cu_k;
    }
    p->heads_kv = rng_between(r, 1, 4);
    p->heads_q = p->heads_kv * rng_between(r, 1, 8);
    p->dim = dims[rng_between(r, 0, 2)];
    p->dtype = types[rng_between(r, 0, 2)];
    p->causal = !rng_one_in(r, 4);
    if (rng_one_in(r, 5)) {
        p->window_left = rng_between(r, 0, 800);
        p->window_right = rng_between(r, -1, 100);
    }
    if (rng_one_in(r, 8)) {
        p->branches = rng_between(r, 1, 3);
        p->dilated = c->branches;
        for (int64_t b = 0; b < p->branches; b++)
            c->branches[b] = (ra_branch){(int64_t)64 << rng_between(r, 0, 5), rng_between(r, 1, 8)};
    }
}

/* The slowest rank's time, from its schedule: what it computes and what it is sent. */
static double cost_of(const ra_cut_problem *cut, ra_strategy strategy) {
    double most = 0;
    for (int rank = 0; rank < cut->ranks; rank++) {
        ra_pool pool = {0};
        ra_schedule schedule;
        double bytes = 0;
        assert_int_equal(ra_schedule_make(&pool, cut, strategy, RA_FORWARD, rank, &schedule), RA_OK);
        for (int s = 0; s < schedule.step_count; s++)
            for (int64_t i = 0; i < schedule.steps[s].transfer_count; i++)
                if (!schedule.steps[s].transfers[i].is_send)
                    bytes += (double)schedule.steps[s].transfers[i].elements *
                             (double)ra_cargo_bytes(cut->problem, schedule.steps[s].transfers[i].cargo);
        double flops = (double)schedule.pairs * 2 * (double)(cut->problem->dim + cut->problem->dim_v);
        double cost = flops + RA_FLOPS_PER_BYTE * bytes;
        if (cost > most) most = cost;
        ra_pool_free(&pool);
    }
    return most;
}

static void test_auto_is_near_the_best(void **state) {
    (void)state;
    static packed c;
    rng r = {2024};
    int taken[RA_LAYOUT_DOCUMENTS + 1][RA_STRATEGY_PASSQ + 1] = {{0}};
    double worst = 0;
    for (int n = 0; n < PROBLEMS; n++) {
        ra_problem p;
        make(&r, &c);
        assert_int_equal(ra_problem_normalise(&c.problem, &p), RA_OK);
        ra_plan_info info = RA_PLAN_INFO_INIT;
        assert_int_equal(ra_predict(&c.problem, NULL, c.ranks, 0, &info), RA_OK);
        double best = 0, chosen = 0;
        for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_DOCUMENTS; layout++)
            for (int strategy = RA_STRATEGY_RING; strategy <= RA_STRATEGY_PASSQ; strategy++) {
                int is_taken = info.layout == (ra_layout)layout && info.strategy == (ra_strategy)strategy;
                if (strategy > RA_STRATEGY_PAIRWISE && !is_taken)
                    continue; /* all-gather never is, passq where it is sure */
                ra_cut_problem cut = {&p, (ra_layout)layout, c.ranks};
                double cost = cost_of(&cut, (ra_strategy)strategy);
                if (best == 0 || cost < best) best = cost;
                if (is_taken) chosen = cost;
            }
        if (chosen > 1.05 * best)
            fail_msg("problem %d on %d ranks: %s and %s cost %.4g, the best %.4g", n, c.ranks,
                     ra_layout_name(info.layout), ra_strategy_name(info.strategy), chosen, best);
        assert_true(chosen > 0 || best == 0);
        if (best > 0 && chosen / best > worst) worst = chosen / best;
        taken[info.layout][info.strategy]++;
    }
    for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_DOCUMENTS; layout++) {
        printf("%-10s ring %3d, pairwise %3d, passq %3d\n", ra_layout_name((ra_layout)layout),
               taken[layout][RA_STRATEGY_RING], taken[layout][RA_STRATEGY_PAIRWISE], taken[layout][RA_STRATEGY_PASSQ]);
        assert_true(taken[layout][RA_STRATEGY_RING] + taken[layout][RA_STRATEGY_PAIRWISE] > 0); /* all have their day */
    }
    printf("worst over the best: %.4f\n", worst);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_auto_is_near_the_best)};
    return cmocka_run_group_tests_name("auto", tests, NULL, NULL);
}
