#include "support/cmocka.h"
#include "support/rng.h"

#include "core/interleave.h"
#include "schedule/slot_index.h"

#include <string.h>

enum { ROWS = 600, HEADS = 2, HOPS = 3, MOST_PIECES = 4096 };

/* Where a row of a head is: its record, or -1. */
typedef struct places {
    int64_t record[HEADS][ROWS];
    ra_piece pieces[MOST_PIECES];
    ra_parcel parcel;
} places;

static ra_rowset rows_of(ra_pool *pool, rng *r, const ra_rowset *without) {
    ra_rowset set = {0}, rest;
    for (int64_t i = rng_between(r, 1, 4); i > 0; i--) {
        ra_span span = {rng_between(r, 0, ROWS / 2), rng_between(r, 1, 9), 1};
        span.count = rng_between(r, 1, (ROWS - 1 - span.first) / span.stride + 1);
        ra_rowset one = {&span, 1, 1}, both;
        assert_int_equal(ra_rowset_union(pool, &set, &one, &both), RA_OK);
        set = both;
    }
    assert_int_equal(ra_rowset_minus(pool, &set, without, &rest), RA_OK);
    return rest;
}

static void add_piece(places *p, ra_span rows, int64_t head, int64_t *records) {
    assert_true(p->parcel.piece_count < MOST_PIECES);
    p->pieces[p->parcel.piece_count++] = (ra_piece){rows, {head, 1, 1}};
    for (int64_t i = 0; i < rows.count; i++) p->record[head][ra_span_at(rows, i)] = (*records)++;
}

/* What some hops need of an owner's rows, the farthest first, none of them twice. */
static void make_places(places *p, ra_pool *pool, rng *r) {
    int64_t records = 0, hops = rng_between(r, 1, HOPS);
    ra_distance_limit limit = {INT64_MAX, rng_between(r, 0, 40)};
    ra_rowset covered[HEADS] = {{0}};
    memset(p->record, 0xff, sizeof p->record);
    p->parcel = (ra_parcel){.pieces = p->pieces};
    for (int64_t hop = 0; hop < hops; hop++)
        for (int64_t h = 0; h < HEADS; h++) {
            ra_rowset rows = rows_of(pool, r, &covered[h]), both;
            ra_span_list list;
            assert_int_equal(ra_rowset_interleave(pool, &rows, &limit, 1, &list), RA_OK);
            for (int64_t i = 0; i < list.count; i++) add_piece(p, list.spans[i], h, &records);
            assert_int_equal(ra_rowset_union(pool, &covered[h], &rows, &both), RA_OK);
            covered[h] = both;
        }
}

/* Every key that is in the slot is found once, at its record, and no other. */
static void check_keys(const places *p, ra_slot_index *index, int64_t head, ra_span keys) {
    int64_t found[ROWS];
    memset(found, 0xff, sizeof found);
    assert_int_equal(ra_slot_index_find(index, keys), RA_OK);
    for (int64_t i = 0; i < index->fragment_count; i++) {
        const ra_fragment *f = &index->fragments[i];
        assert_int_equal(f->b.count, f->rows.count);
        for (int64_t n = 0; n < f->b.count; n++) {
            int64_t b = ra_span_at(f->b, n);
            assert_true(b >= 0 && b < keys.count && found[b] == -1);
            found[b] = f->record + ra_span_at(f->rows, n);
        }
    }
    for (int64_t b = 0; b < keys.count; b++) assert_int_equal(found[b], p->record[head][ra_span_at(keys, b)]);
}

static void test_random_slots(void **state) {
    static places p;
    int64_t groups = 0, pieces = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        rng r = {seed};
        ra_pool pool = {0};
        ra_slot_index index = {.scratch = &pool};
        make_places(&p, &pool, &r);
        for (int64_t head = 0; head < HEADS; head++) {
            assert_int_equal(ra_slot_index_make(&index, &p.parcel, head, 1), RA_OK);
            groups += index.group_count;
            pieces += index.piece_count;
            for (int i = 0; i < 10; i++) {
                ra_span keys = {rng_between(&r, 0, ROWS - 1), rng_between(&r, 1, 12), 1};
                keys.count = rng_between(&r, 1, (ROWS - 1 - keys.first) / keys.stride + 1);
                check_keys(&p, &index, head, keys);
            }
        }
        ra_pool_free(&pool);
    }
    assert_true(groups < pieces - 2000); /* some groups have several pieces */
}

/* Segments that are interleaved one by one are groups of one run, so that a segment's keys are found at once. */
static void test_segments_are_one_run(void **state) {
    (void)state;
    enum { SEGMENTS = 50, LENGTH = 1000 };
    ra_pool pool = {0};
    ra_slot_index index = {.scratch = &pool};
    ra_piece pieces[3 * SEGMENTS];
    for (int64_t s = 0; s < SEGMENTS; s++) /* every 4th row without every 16th; the first of the three has one more */
        for (int64_t i = 0; i < 3; i++)
            pieces[3 * s + i] = (ra_piece){{s * LENGTH + 4 * (i + 1), 16, i ? 61 : 62}, {0, 1, 1}};
    ra_parcel parcel = {.pieces = pieces, .piece_count = 3 * SEGMENTS};
    assert_int_equal(ra_slot_index_make(&index, &parcel, 0, 1), RA_OK);
    assert_int_equal(index.start_count, 1);
    assert_int_equal(index.group_count, SEGMENTS);
    assert_int_equal(ra_slot_index_find(&index, (ra_span){7 * LENGTH, 4, 250}), RA_OK);
    assert_int_equal(index.fragment_count, 3);
    ra_pool_free(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_slots),
        cmocka_unit_test(test_segments_are_one_run),
    };
    return cmocka_run_group_tests_name("slot_index", tests, NULL, NULL);
}
