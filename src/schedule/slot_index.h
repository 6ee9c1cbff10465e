/* Where keys are in a slot: the pieces of a parcel, to be searched by row. */
#ifndef RA_SCHEDULE_SLOT_INDEX_H
#define RA_SCHEDULE_SLOT_INDEX_H

#include "schedule/schedule.h"

/* A piece, to be found by row. `record`: the slot's record of its first row and head. */
typedef struct ra_indexed_piece {
    ra_span rows;
    int64_t piece, record;
} ra_indexed_piece;

/* Pieces that lie between each other, one behind the other in the index: those of a repetition (core/interleave.h), or
 * a piece by itself. */
typedef struct ra_piece_group {
    int64_t pieces;      /* the first of them in the index; they end where those of the next group begin */
    int64_t first, last; /* rows */
} ra_piece_group;

/* Some of the keys that are looked for, in one piece: those with indices b. */
typedef struct ra_fragment {
    ra_span b;             /* stride 1: a run */
    ra_span rows;          /* of the piece */
    int64_t piece, record; /* record: that of the piece's row 0 */
} ra_fragment;

/* Begins as zeros, with scratch set, which all of it lives in. */
typedef struct ra_slot_index {
    ra_pool *scratch;

    /* Groups as runs in rising order of rows, none of which reaches into the next of its run: [starts[r], starts[r +
     * 1]). */
    ra_indexed_piece *pieces;
    int64_t piece_count, piece_capacity;
    ra_piece_group *groups;
    int64_t group_count, group_capacity;
    int64_t *starts;
    int64_t start_count, start_capacity;

    ra_fragment *fragments; /* of the keys that were looked for last */
    int64_t fragment_count, fragment_capacity;
} ra_slot_index;

/* The pieces that have a key/value head, instead of what was in the index. dilated: whether pieces may lie between each
 * other. */
ra_status ra_slot_index_make(ra_slot_index *index, const ra_parcel *parcel, int64_t kv_head, int dilated);

/* Finds what each piece has of the keys, rows of the parcel's owner: index->fragments. */
ra_status ra_slot_index_find(ra_slot_index *index, ra_span keys);

#endif
