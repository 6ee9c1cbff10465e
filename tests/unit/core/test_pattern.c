/* Contacts and needed rows against looking at every pair of positions. */
#include "support/case.h"
#include "support/cmocka.h"
#include "support/rng.h"

#include "core/rowset.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 128 };

/* The definition: local indices in one document, aligned bottom right. */
static int visible(const ra_problem *p, int64_t i, int64_t j) {
    for (int64_t d = 0; d < p->documents; d++) {
        ra_document doc = ra_problem_document(p, d);
        if (i < doc.q0 || i >= doc.q1 || j < doc.k0 || j >= doc.k1) continue;
        int64_t t = i - doc.q0 + (doc.k1 - doc.k0) - (doc.q1 - doc.q0), u = j - doc.k0;
        if (p->causal && u > t) return 0;
        if (p->window_left >= 0 && u < t - p->window_left) return 0;
        return !(p->window_right >= 0 && u > t + p->window_right);
    }
    return 0;
}

typedef struct grid {
    unsigned char count[MOST][MOST]; /* [query row][key row] */
} grid;

static ra_status mark(const ra_contact *c, void *user) {
    grid *g = user;
    for (int64_t a = 0; a < c->q_rows.count; a++)
        for (int64_t b = 0; b < c->k_rows.count; b++)
            if (c->lo <= b - a && b - a <= c->hi) g->count[ra_span_at(c->q_rows, a)][ra_span_at(c->k_rows, b)]++;
    return RA_OK;
}

static void check_pair(const ra_cut_problem *cut, int q_rank, int k_rank) {
    static grid g;
    memset(&g, 0, sizeof g);
    const ra_problem *p = cut->problem;
    ra_shard q = ra_shard_of(cut->layout, p->seq_q, cut->ranks, q_rank);
    ra_shard k = ra_shard_of(cut->layout, p->seq_k, cut->ranks, k_rank);
    assert_int_equal(ra_pattern_contacts(cut, q_rank, k_rank, mark, &g), RA_OK);
    int64_t pairs = 0, needed_rows = 0;
    ra_pool pool = {0};
    ra_rowset needed;
    assert_int_equal(ra_rowset_needed(&pool, cut, q_rank, k_rank, &needed), RA_OK);
    for (int64_t b = 0; b < k.rows; b++) {
        int seen = 0;
        for (int64_t a = 0; a < q.rows; a++) {
            int want = visible(p, ra_shard_position(&q, a), ra_shard_position(&k, b));
            assert_int_equal(g.count[a][b], want);
            pairs += want;
            seen |= want;
        }
        needed_rows += seen;
        int in_set = 0;
        for (int64_t i = 0; i < needed.count; i++) in_set |= b >= needed.runs[i].from && b < needed.runs[i].to;
        assert_int_equal(in_set, seen);
    }
    assert_int_equal(ra_pattern_pairs(cut, q_rank, k_rank), pairs * p->heads_q * p->batch);
    assert_int_equal(ra_rowset_rows(&needed), needed_rows);
    ra_pool_free(&pool);
}

static void test_contacts_are_the_visible_pairs(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        static test_case c;
        ra_problem p;
        case_make(&c, seed, RA_F64, 2e5);
        if (c.problem.seq_q > MOST || c.problem.seq_k > MOST) continue;
        assert_int_equal(ra_problem_normalise(&c.problem, &p), RA_OK);
        int ranks = 1 + (int)(seed % 5);
        for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_STRIPED; layout++) {
            ra_cut_problem cut = {&p, (ra_layout)layout, ranks};
            for (int q = 0; q < ranks; q++)
                for (int k = 0; k < ranks; k++) check_pair(&cut, q, k);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_contacts_are_the_visible_pairs)};
    return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
