/* Contacts and needed rows against looking at every pair of positions. */
#include "support/cmocka.h"
#include "support/problems/case.h"
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

/* How often head h's pair (i, j) counts: the branches that keep it, or 1 in a dense problem. */
static int count_of(const ra_problem *p, int64_t h, int64_t i, int64_t j) {
    int count = 0;
    if (!visible(p, i, j)) return 0;
    if (p->branches == 0) return 1;
    for (int64_t d = 0; d < p->documents; d++) {
        ra_document doc = ra_problem_document(p, d);
        if (i < doc.q0 || i >= doc.q1) continue;
        int64_t t = i - doc.q1 + doc.k1 - doc.k0, u = j - doc.k0, group = 0, left = h;
        while (left >= p->heads_q / p->branches + (group < p->heads_q % p->branches))
            left -= p->heads_q / p->branches + (group++ < p->heads_q % p->branches);
        for (int64_t b = 0; b < p->branches && t >= 0; b++) {
            int64_t w = p->dilated[b].segment, r = p->dilated[b].rate;
            int64_t offset = p->dilated_offset == RA_DILATED_HEAD    ? h % r
                             : p->dilated_offset == RA_DILATED_BLOCK ? h / ((p->heads_q + r - 1) / r)
                                                                     : b % r;
            if (p->dilated_heads == RA_DILATED_GROUPS && group != b) continue;
            count += t / w == u / w && t % w % r == offset && u % w % r == offset;
        }
    }
    return count;
}

enum { MOST_HEADS = 8 };

typedef struct grid {
    unsigned char count[MOST_HEADS][MOST][MOST]; /* [head][query row][key row] */
} grid;

static ra_status mark(const ra_contact *c, void *user) {
    grid *g = user;
    for (int64_t h = 0; h < c->heads.count; h++)
        for (int64_t a = 0; a < c->q_rows.count; a++)
            for (int64_t b = 0; b < c->k_rows.count; b++)
                if (c->lo <= b - a && b - a <= c->hi)
                    g->count[ra_span_at(c->heads, h)][ra_span_at(c->q_rows, a)][ra_span_at(c->k_rows, b)]++;
    return RA_OK;
}

static int has_row(const ra_rowset *set, int64_t row) {
    for (int64_t i = 0; i < set->count; i++)
        if (ra_span_clip(set->spans[i], row, row + 1).count) return 1;
    return 0;
}

/* The needed rows of a head set are those that some query of one of its heads sees. */
static void check_needed(const ra_cut_problem *cut, int q_rank, int k_rank, const grid *g, int64_t q_rows,
                         int64_t k_rows) {
    const ra_problem *p = cut->problem;
    int64_t gqa_ratio = p->heads_q / p->heads_kv;
    for (int64_t i = 0; i < ra_head_sets(p); i++) {
        ra_pool pool = {0};
        ra_rowset needed;
        ra_span kv = ra_head_set(p, i);
        int64_t rows = 0;
        assert_int_equal(ra_rowset_needed(&pool, cut, q_rank, k_rank, i, &needed), RA_OK);
        for (int64_t b = 0; b < k_rows; b++) {
            int seen = 0;
            for (int64_t h = kv.first * gqa_ratio; h < (kv.first + kv.count) * gqa_ratio; h++)
                for (int64_t a = 0; a < q_rows; a++) seen |= g->count[h][a][b] > 0;
            assert_int_equal(has_row(&needed, b), seen);
            rows += seen;
        }
        assert_int_equal(ra_rowset_rows(&needed), rows);
        ra_pool_free(&pool);
    }
}

static void check_pair(const ra_cut_problem *cut, int q_rank, int k_rank) {
    static grid g;
    memset(&g, 0, sizeof g);
    const ra_problem *p = cut->problem;
    ra_sequence queries = {p->seq_q, p->documents, p->cu_seqlens_q}, keys = {p->seq_k, p->documents, p->cu_seqlens_k};
    ra_shard q = ra_shard_of(cut->layout, p->seq_q, cut->ranks, q_rank);
    ra_shard k = ra_shard_of(cut->layout, p->seq_k, cut->ranks, k_rank);
    int64_t q_at[MOST], k_at[MOST];
    for (int64_t a = 0; a < q.rows; a++) q_at[a] = ra_sequence_position(&queries, cut->layout, cut->ranks, q_rank, a);
    for (int64_t b = 0; b < k.rows; b++) k_at[b] = ra_sequence_position(&keys, cut->layout, cut->ranks, k_rank, b);
    int64_t pairs = 0;
    assert_int_equal(ra_pattern_contacts(cut, q_rank, k_rank, mark, &g), RA_OK);
    for (int64_t h = 0; h < p->heads_q; h++)
        for (int64_t a = 0; a < q.rows; a++)
            for (int64_t b = 0; b < k.rows; b++) {
                int want = count_of(p, h, q_at[a], k_at[b]);
                assert_int_equal(g.count[h][a][b], want);
                pairs += want;
            }
    assert_int_equal(ra_pattern_pairs(cut, q_rank, k_rank), pairs * p->batch);
    check_needed(cut, q_rank, k_rank, &g, q.rows, k.rows);
}

static void test_contacts_are_the_visible_pairs(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        static test_case c;
        ra_problem p;
        case_make(&c, seed, RA_F64, 2e5);
        if (c.problem.seq_q > MOST || c.problem.seq_k > MOST) continue;
        assert_int_equal(ra_problem_normalise(&c.problem, &p), RA_OK);
        int ranks = 1 + (int)(seed % 5);
        for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_DOCUMENTS; layout++) {
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
