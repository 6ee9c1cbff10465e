#include "schedule/slot_index.h"

#include "base/status.h"

#include <stdlib.h>

/* One row has no stride: with that of a run, what it shares with others is found at once. */
static ra_span without_idle_stride(ra_span s) {
    return s.count == 1 ? (ra_span){s.first, 1, 1} : s;
}

/* Whether rows lie between those of the group that the index ends with, as pieces of one repetition do. */
static int joins_group(const ra_slot_index *index, ra_span rows) {
    if (index->group_count == 0 || rows.count == 1) return 0;
    const ra_indexed_piece *first = &index->pieces[index->groups[index->group_count - 1].pieces];
    const ra_indexed_piece *before = &index->pieces[index->piece_count - 1];
    return rows.stride == first->rows.stride && rows.first > before->rows.first &&
           rows.first < first->rows.first + rows.stride;
}

/* Makes rows, which the index is about to end with, part of its last group or a new one, and that part of its last run
 * or a new one. */
static ra_status group_rows(ra_slot_index *index, ra_span rows) {
    ra_piece_group *group = index->group_count ? &index->groups[index->group_count - 1] : NULL;
    if (joins_group(index, rows)) {
        if (ra_span_last(rows) > group->last) group->last = ra_span_last(rows);
        return RA_OK;
    }
    if (!group || rows.first <= group->last) {
        int64_t *start =
            ra_pool_append(index->scratch, &index->starts, &index->start_count, &index->start_capacity, sizeof *start);
        if (!start) return ra_no_memory();
        *start = index->group_count;
    }
    group = ra_pool_append(index->scratch, &index->groups, &index->group_count, &index->group_capacity, sizeof *group);
    if (!group) return ra_no_memory();
    *group = (ra_piece_group){index->piece_count, rows.first, ra_span_last(rows)};
    return RA_OK;
}

static ra_status index_piece(ra_slot_index *index, ra_indexed_piece piece) {
    RA_TRY(group_rows(index, piece.rows));
    ra_indexed_piece *item =
        ra_pool_append(index->scratch, &index->pieces, &index->piece_count, &index->piece_capacity, sizeof *item);
    if (!item) return ra_no_memory();
    *item = piece;
    return RA_OK;
}

static int compare_rows(const void *x, const void *y) {
    const ra_indexed_piece *a = x, *b = y;
    return (a->rows.first > b->rows.first) - (a->rows.first < b->rows.first);
}

/* Without dilation no piece lies between the rows of another: sorted, they are one run, in which a contact's
 * keys are found at once. On a ring, where they come by the hop at which they stop, there may be as many as ranks. */
static ra_status sort_index(ra_slot_index *index) {
    int64_t count = index->piece_count;
    if (index->start_count < 2) return RA_OK;
    qsort(index->pieces, (size_t)count, sizeof *index->pieces, compare_rows);
    index->piece_count = index->group_count = index->start_count = 0;
    for (int64_t i = 0; i < count; i++) RA_TRY(index_piece(index, index->pieces[i]));
    return RA_OK;
}

ra_status ra_slot_index_make(ra_slot_index *index, const ra_parcel *parcel, int64_t kv_head, int dilated) {
    int64_t record = 0;
    index->piece_count = index->group_count = index->start_count = 0;
    for (int64_t i = 0; i < parcel->piece_count; i++) {
        const ra_piece *piece = &parcel->pieces[i];
        if (ra_span_clip(piece->heads, kv_head, kv_head + 1).count)
            RA_TRY(index_piece(index, (ra_indexed_piece){without_idle_stride(piece->rows), i, record}));
        record += piece->heads.count * piece->rows.count;
    }
    return dilated ? RA_OK : sort_index(index);
}

/* The first group of [from, to) that ends at a row or behind it. */
static int64_t first_group(const ra_slot_index *index, int64_t from, int64_t to, int64_t row) {
    while (from < to) {
        int64_t mid = from + (to - from) / 2;
        if (index->groups[mid].last >= row)
            to = mid;
        else
            from = mid + 1;
    }
    return from;
}

/* What a group has of the keys. */
static ra_status find_in_group(ra_slot_index *index, ra_span keys, int64_t group) {
    int64_t end = group + 1 < index->group_count ? index->groups[group + 1].pieces : index->piece_count;
    for (int64_t i = index->groups[group].pieces; i < end; i++) {
        const ra_indexed_piece *piece = &index->pieces[i];
        ra_span common = ra_span_intersect(keys, piece->rows);
        if (common.count == 0) continue;
        ra_fragment *f = ra_pool_append(index->scratch, &index->fragments, &index->fragment_count,
                                        &index->fragment_capacity, sizeof *f);
        if (!f) return ra_no_memory();
        *f = (ra_fragment){
            {(common.first - keys.first) / keys.stride, common.count > 1 ? common.stride / keys.stride : 1,
             common.count},
            {(common.first - piece->rows.first) / piece->rows.stride, common.stride / piece->rows.stride, common.count},
            piece->piece,
            piece->record};
    }
    return RA_OK;
}

ra_status ra_slot_index_find(ra_slot_index *index, ra_span keys) {
    keys = without_idle_stride(keys);
    index->fragment_count = 0;
    for (int64_t r = 0; r < index->start_count; r++) {
        int64_t end = r + 1 < index->start_count ? index->starts[r + 1] : index->group_count;
        for (int64_t g = first_group(index, index->starts[r], end, keys.first); g < end; g++) {
            if (index->groups[g].first > ra_span_last(keys)) break;
            RA_TRY(find_in_group(index, keys, g));
        }
    }
    return RA_OK;
}
