#include "support/schedules/coverage.h"

#include "support/cmocka.h"

#include <stdlib.h>

void schedules_make(ra_pool *pool, const ra_cut_problem *cut, ra_strategy strategy, ra_pass pass, ra_schedule *out) {
    for (int r = 0; r < cut->ranks; r++)
        assert_int_equal(ra_schedule_make(pool, cut, strategy, pass, r, &out[r]), RA_OK);
}

/* How often each pair is computed: [head, query position, key position]. */
typedef struct marks {
    unsigned char *count;
    const ra_cut_problem *cut;
    int q_rank, k_rank;
} marks;

static int64_t query_of(const marks *m, int64_t row) {
    const ra_problem *p = m->cut->problem;
    ra_sequence queries = {p->seq_q, p->documents, p->cu_seqlens_q};
    return ra_sequence_position(&queries, m->cut->layout, m->cut->ranks, m->q_rank, row);
}

static int64_t key_of(const marks *m, int64_t row) {
    const ra_problem *p = m->cut->problem;
    ra_sequence keys = {p->seq_k, p->documents, p->cu_seqlens_k};
    return ra_sequence_position(&keys, m->cut->layout, m->cut->ranks, m->k_rank, row);
}

static unsigned char *mark_at(const marks *m, int64_t head, int64_t q_row, int64_t k_row) {
    const ra_problem *p = m->cut->problem;
    return &m->count[(head * p->seq_q + query_of(m, q_row)) * p->seq_k + key_of(m, k_row)];
}

/* The owner's row that key b of a tile is, for the key/value head that query head h reads. */
static int64_t owner_row(const ra_problem *p, const ra_compute *c, const ra_tile *t, int64_t h, int64_t b) {
    int64_t record = ra_tile_key(t, b), group = h / (p->heads_q / p->heads_kv);
    int64_t piece = c->kv_slot == RA_OWN ? 0 : c->parts[t->part];
    if (piece != RA_ALL_RECORDS) return ra_span_at(c->parcel.pieces[piece].rows, record);
    for (piece = 0;; piece++) { /* find the record's piece, which must be one of that head */
        const ra_piece *at = &c->parcel.pieces[piece];
        int64_t records = at->rows.count * at->heads.count;
        assert_true(piece < c->parcel.piece_count);
        if (record < records) {
            assert_int_equal(at->heads.first + record / at->rows.count, group);
            return ra_span_at(at->rows, record % at->rows.count);
        }
        record -= records;
    }
}

/* The positions that a tile gives for query a and key b are those of their rows, and its diagonal their document's. */
static void check_positions(const marks *m, const ra_tile *t, int64_t a, int64_t b, int64_t q_row, int64_t k_row) {
    const ra_problem *p = m->cut->problem;
    int64_t query = t->positions.query + a * t->positions.query_stride;
    int64_t key = t->positions.key + b * t->positions.key_stride;
    int64_t d = 0;
    while (ra_problem_document(p, d).k1 <= key) d++;
    ra_document document = ra_problem_document(p, d);
    assert_int_equal(query, query_of(m, q_row));
    assert_int_equal(key, key_of(m, k_row));
    assert_in_range(query, document.q0, document.q1 - 1);
    assert_int_equal(t->positions.diagonal, document.k1 - document.q1);
}

static void mark_compute(marks *m, const ra_compute *c) {
    int64_t first = c->visit.slot == RA_OWN ? 0 : c->visit.rows.first;
    m->q_rank = c->visit.owner;
    m->k_rank = c->parcel.owner;
    for (int64_t i = 0; i < c->tiles.tile_count; i++) {
        const ra_tile *t = &c->tiles.tiles[i];
        for (int64_t h = 0; h < t->heads.count; h++)
            for (int64_t a = 0; a < t->q_rows.count; a++)
                for (int64_t b = 0; b < t->k_rows.count; b++) {
                    int64_t head = ra_span_at(t->heads, h);
                    if (b - a < t->lo || b - a > t->hi) continue;
                    int64_t q_row = first + ra_span_at(t->q_rows, a), k_row = owner_row(m->cut->problem, c, t, head, b);
                    ++*mark_at(m, head, q_row, k_row);
                    check_positions(m, t, a, b, q_row, k_row);
                }
    }
}

static ra_status mark_contact(const ra_contact *c, void *user) {
    const marks *m = user;
    for (int64_t h = 0; h < c->heads.count; h++)
        for (int64_t a = 0; a < c->q_rows.count; a++)
            for (int64_t b = 0; b < c->k_rows.count; b++)
                if (b - a >= c->lo && b - a <= c->hi)
                    ++*mark_at(m, ra_span_at(c->heads, h), ra_span_at(c->q_rows, a), ra_span_at(c->k_rows, b));
    return RA_OK;
}

void coverage_check_pairs(const ra_cut_problem *cut, const ra_schedule *schedules) {
    const ra_problem *p = cut->problem;
    size_t size = (size_t)(p->heads_q * p->seq_q * p->seq_k);
    marks got = {.count = calloc(size + 1, 1), .cut = cut}, want = {.count = calloc(size + 1, 1), .cut = cut};
    int64_t pairs = 0, counted = 0;
    for (int r = 0; r < cut->ranks; r++) {
        counted += schedules[r].pairs;
        for (int s = 0; s < schedules[r].step_count; s++)
            for (int64_t i = 0; i < schedules[r].steps[s].compute_count; i++)
                mark_compute(&got, &schedules[r].steps[s].computes[i]);
    }
    for (want.q_rank = 0; want.q_rank < cut->ranks; want.q_rank++)
        for (want.k_rank = 0; want.k_rank < cut->ranks; want.k_rank++)
            assert_int_equal(ra_pattern_contacts(cut, want.q_rank, want.k_rank, mark_contact, &want), RA_OK);
    assert_memory_equal(got.count, want.count, size);
    for (size_t i = 0; i < size; i++) pairs += got.count[i];
    assert_int_equal(counted, pairs * p->batch);
    free(got.count);
    free(want.count);
}

void coverage_check_groups(const ra_tile_list *list) {
    int64_t tiles = 0, groups = 0;
    for (int64_t p = 0; p < list->round_count; p++) {
        assert_int_equal(list->rounds[p].first, groups);
        for (int64_t g = groups; g < groups + list->rounds[p].count; g++) {
            const ra_tile *first = &list->tiles[list->groups[g].first];
            assert_int_equal(list->groups[g].first, tiles);
            for (int64_t i = 0; i < list->groups[g].count; i++, tiles++)
                assert_memory_equal(&list->tiles[tiles].q_rows, &first->q_rows, sizeof first->q_rows);
            for (int64_t h = groups; h < g; h++) {
                const ra_tile *other = &list->tiles[list->groups[h].first];
                if (ra_span_intersect(first->heads, other->heads).count == 0) continue;
                if (ra_span_intersect(first->q_rows, other->q_rows).count == 0) continue;
                assert_true(first->q_rows.first >= other->q_rows.first + other->q_rows.count ||
                            other->q_rows.first >= first->q_rows.first + first->q_rows.count);
            }
        }
        groups += list->rounds[p].count;
    }
    assert_int_equal(tiles, list->tile_count);
    assert_int_equal(groups, list->group_count);
}
