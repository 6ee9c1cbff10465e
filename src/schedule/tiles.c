/* From contacts to tiles: a contact's keys are found in the slot.
 *
 * Where they lie there as a few runs, each run becomes a tile:
 *
 *     contact's keys   b = 0 1 2 3 4 5 6 7          slot: piece 1 holds b = 0..4, piece 0 holds b = 5..7
 *     tiles                [───────────][─────]
 *
 * Rows of several branches, and rows that travel to different hops, lie between each other, so that a piece holds every
 * second or fourth key of a contact. Where every query sees every key their order does not matter, and what a piece
 * holds is a tile as well:
 *
 *     contact's keys   b = 0 1 2 3 4 5 6 7          slot: piece 0 holds b = 0, 4; piece 1 the others, in three spans
 *     tiles                [0 4][1 5][2 6][3 7]
 *
 * Where the keys are strewn otherwise, the contact becomes one tile with an index of its keys' records. A GPU copies
 * such keys one by one, and a backward pass cannot tell which of them two tiles have in common: each costs several
 * times as much as a few spans do.
 */
#include "schedule/builder.h"

#include <stdlib.h>

/* A piece, to be found by row. `record`: the slot's record of its first row and head. */
typedef struct indexed_piece {
    ra_span rows;
    int64_t piece, record;
} indexed_piece;

/* Some of a contact's keys in one piece: those with indices b. */
typedef struct fragment {
    ra_span b;             /* stride 1: a run */
    ra_span rows;          /* of the piece */
    int64_t piece, record; /* record: that of the piece's row 0 */
} fragment;

typedef struct tile_entry {
    ra_tile tile;
    int branch;
} tile_entry;

typedef struct tile_loop {
    ra_builder *b;
    ra_compute *compute;
    ra_head_range heads; /* query heads of the set in hand */
    int one_head;        /* the set is one key/value head: an index of records can serve it */

    /* The pieces that hold the set's heads, as runs in rising order of rows: [starts[r], starts[r + 1]). */
    indexed_piece *index;
    int64_t index_count, index_capacity;
    int64_t *starts;
    int64_t start_count, start_capacity;

    fragment *fragments; /* of the contact in hand */
    int64_t fragment_count, fragment_capacity;

    tile_entry *entries;
    int64_t entry_count, entry_capacity;
    int64_t *part_of; /* [piece_count + 1]: the part that stands for a piece, or -1; the last: for all records */
    int64_t part_capacity;
} tile_loop;

/* One row has no stride; a dilation's rate, kept as one, could be too large to compute with. */
static ra_span without_idle_stride(ra_span s) {
    return s.count == 1 ? (ra_span){s.first, 1, 1} : s;
}

/* ---- where pieces are ------------------------------------------------------------------------------------ */

static ra_status index_pieces(tile_loop *loop, int64_t kv_head) {
    const ra_parcel *parcel = &loop->compute->parcel;
    int64_t record = 0;
    loop->index_count = loop->start_count = 0;
    for (int64_t i = 0; i < parcel->piece_count; i++) {
        const ra_piece *piece = &parcel->pieces[i];
        int64_t records = piece->heads.count * piece->rows.count;
        if (ra_span_clip(piece->heads, kv_head, kv_head + 1).count) {
            const indexed_piece *before = loop->index_count ? &loop->index[loop->index_count - 1] : NULL;
            if (!before || piece->rows.first <= ra_span_last(before->rows)) {
                int64_t *start = ra_pool_append(loop->b->scratch, &loop->starts, &loop->start_count,
                                                &loop->start_capacity, sizeof *start);
                if (!start) return ra_no_memory();
                *start = loop->index_count;
            }
            indexed_piece *item =
                ra_pool_append(loop->b->scratch, &loop->index, &loop->index_count, &loop->index_capacity, sizeof *item);
            if (!item) return ra_no_memory();
            *item = (indexed_piece){without_idle_stride(piece->rows), i, record};
        }
        record += records;
    }
    return RA_OK;
}

static int compare_rows(const void *x, const void *y) {
    const indexed_piece *a = x, *b = y;
    return (a->rows.first > b->rows.first) - (a->rows.first < b->rows.first);
}

/* Without dilation pieces are runs of rows that have none in common: sorted, they are one run, in which a contact's
 * keys are found at once. On a ring, where they come by the hop at which they stop, there may be as many as ranks. */
static void sort_index(tile_loop *loop) {
    if (loop->start_count < 2 || loop->b->cut->problem->branches) return;
    qsort(loop->index, (size_t)loop->index_count, sizeof *loop->index, compare_rows);
    loop->start_count = 1;
}

/* The first piece of [from, to) that ends behind a row. */
static int64_t first_piece(const tile_loop *loop, int64_t from, int64_t to, int64_t row) {
    while (from < to) {
        int64_t mid = from + (to - from) / 2;
        if (ra_span_last(loop->index[mid].rows) >= row)
            to = mid;
        else
            from = mid + 1;
    }
    return from;
}

static ra_status find_fragments(tile_loop *loop, ra_span keys) {
    keys = without_idle_stride(keys);
    loop->fragment_count = 0;
    for (int64_t r = 0; r < loop->start_count; r++) {
        int64_t end = r + 1 < loop->start_count ? loop->starts[r + 1] : loop->index_count;
        for (int64_t i = first_piece(loop, loop->starts[r], end, keys.first); i < end; i++) {
            const indexed_piece *piece = &loop->index[i];
            if (piece->rows.first > ra_span_last(keys)) break;
            ra_span common = ra_span_intersect(keys, piece->rows);
            if (common.count == 0) continue;
            fragment *f = ra_pool_append(loop->b->scratch, &loop->fragments, &loop->fragment_count,
                                         &loop->fragment_capacity, sizeof *f);
            if (!f) return ra_no_memory();
            *f = (fragment){{(common.first - keys.first) / keys.stride,
                             common.count > 1 ? common.stride / keys.stride : 1, common.count},
                            {(common.first - piece->rows.first) / piece->rows.stride,
                             common.stride / piece->rows.stride, common.count},
                            piece->piece,
                            piece->record};
        }
    }
    return RA_OK;
}

/* ---- tiles ----------------------------------------------------------------------------------------------- */

static ra_status part_for(tile_loop *loop, int64_t piece, int *part_out) {
    ra_compute *compute = loop->compute;
    int64_t slot = piece == RA_ALL_RECORDS ? compute->parcel.piece_count : piece;
    if (loop->part_of[slot] < 0) {
        int64_t *part =
            ra_pool_append(loop->b->pool, &compute->parts, &compute->part_count, &loop->part_capacity, sizeof *part);
        if (!part) return ra_no_memory();
        *part = piece;
        loop->part_of[slot] = compute->part_count - 1;
    }
    *part_out = (int)loop->part_of[slot];
    return RA_OK;
}

static ra_status add_tile(tile_loop *loop, const ra_contact *contact, ra_tile tile, int64_t piece) {
    if (tile.lo < -tile.q_rows.count) tile.lo = -tile.q_rows.count;
    if (tile.hi > tile.k_rows.count) tile.hi = tile.k_rows.count;
    if (ra_tile_pairs(&tile) == 0) return RA_OK;
    RA_TRY(part_for(loop, piece, &tile.part));
    tile_entry *entry =
        ra_pool_append(loop->b->scratch, &loop->entries, &loop->entry_count, &loop->entry_capacity, sizeof *entry);
    if (!entry) return ra_no_memory();
    *entry = (tile_entry){tile, contact->branch};
    return RA_OK;
}

/* Keys [from, to) of a fragment as a tile, whose key 0 is the contact's key `shift`. Their band is the contact's, moved
 * by that, unless there are gaps between them, which only contacts without a masked pair may have. */
static ra_status add_span(tile_loop *loop, const ra_contact *contact, ra_span heads, const fragment *f, int64_t from,
                          int64_t to) {
    int64_t shift = ra_span_at(f->b, from);
    ra_tile tile = {.q_rows = contact->q_rows,
                    .k_rows = ra_span_slice(f->rows, from, to),
                    .heads = heads,
                    .lo = contact->lo - shift,
                    .hi = contact->hi - shift,
                    .positions = contact->positions};
    if (f->b.stride > 1 && to - from > 1) tile.lo = -contact->q_rows.count, tile.hi = to - from;
    tile.positions.key += shift * contact->positions.key_stride;
    tile.positions.key_stride *= f->b.stride;
    return add_tile(loop, contact, tile, f->piece);
}

/* One tile for all keys: record numbers by index. */
static ra_status add_indexed(tile_loop *loop, const ra_contact *contact, ra_span heads) {
    int64_t *index = ra_pool_take(loop->b->pool, contact->k_rows.count, sizeof *index);
    if (!index) return ra_no_memory();
    for (int64_t i = 0; i < loop->fragment_count; i++) {
        const fragment *f = &loop->fragments[i];
        for (int64_t j = 0; j < f->b.count; j++) index[ra_span_at(f->b, j)] = f->record + ra_span_at(f->rows, j);
    }
    ra_tile tile = {.q_rows = contact->q_rows,
                    .k_rows = {0, 1, contact->k_rows.count},
                    .heads = heads,
                    .lo = contact->lo,
                    .hi = contact->hi,
                    .k_index = index,
                    .positions = contact->positions};
    return add_tile(loop, contact, tile, RA_ALL_RECORDS);
}

/* Fragments shorter than this on average are not worth a tile each. */
enum { SHORT_FRAGMENT = 32 };

/* A tile for each fragment. Masked fragments with gaps have an index where they can have one, and else a tile for each
 * key. */
static ra_status add_tiles(tile_loop *loop, const ra_contact *contact, ra_span heads) {
    const ra_tile whole = {.q_rows = contact->q_rows, .k_rows = contact->k_rows, .lo = contact->lo, .hi = contact->hi};
    int unmasked = ra_tile_is_full(&whole, 0, whole.q_rows.count, 0, whole.k_rows.count);
    int few = loop->fragment_count <= 2 || contact->k_rows.count / loop->fragment_count >= SHORT_FRAGMENT;
    int spans = 1;
    for (int64_t i = 0; i < loop->fragment_count; i++) spans &= unmasked || loop->fragments[i].b.stride == 1;
    if (!(few && spans) && loop->one_head) return add_indexed(loop, contact, heads);
    for (int64_t i = 0; i < loop->fragment_count; i++) {
        const fragment *f = &loop->fragments[i];
        int64_t length = spans ? f->b.count : 1;
        for (int64_t j = 0; j < f->b.count; j += length) RA_TRY(add_span(loop, contact, heads, f, j, j + length));
    }
    return RA_OK;
}

/* The queries of a contact that are in a run of visitors' rows, counted from its first. Contacts with the same queries
 * keep the same ones, so that their tiles stay one group. */
static ra_contact within_run(ra_contact contact, ra_span run) {
    int64_t from, to;
    ra_span_indices(contact.q_rows, run.first, run.first + run.count, &from, &to);
    contact.q_rows = ra_span_slice(contact.q_rows, from, to);
    contact.q_rows.first -= run.first;
    contact.positions.query += from * contact.positions.query_stride;
    contact.lo += from;
    contact.hi += from;
    return contact;
}

static ra_status place_contact(const ra_contact *whole, void *user) {
    tile_loop *loop = user;
    const ra_visit *visit = &loop->compute->visit;
    ra_contact contact = *whole;
    ra_span heads = ra_span_clip(contact.heads, loop->heads.from, loop->heads.to);
    if (heads.count == 0) return RA_OK;
    if (visit->slot != RA_OWN) {
        contact = within_run(contact, visit->rows);
        if (contact.q_rows.count == 0) return RA_OK;
    }
    RA_TRY(find_fragments(loop, contact.k_rows));
    return add_tiles(loop, &contact, heads);
}

/* ---- the list -------------------------------------------------------------------------------------------- */

/* Each branch of a mean has a state of its own, unless each head has but one branch. */
static int64_t state_of(const ra_problem *p, int branch) {
    return ra_problem_states(p) > 1 ? branch : 0;
}

static void add_round(tile_loop *loop, int branch, ra_tile *tiles, ra_tile_group *groups, ra_tile_round *rounds,
                      ra_tile_list *list) {
    ra_tile_round *round = &rounds[list->round_count];
    *round = (ra_tile_round){list->group_count, 0, state_of(loop->b->cut->problem, branch)};
    for (int64_t i = 0; i < loop->entry_count; i++) {
        const ra_tile *tile = &loop->entries[i].tile, *before = round->count ? &tiles[list->tile_count - 1] : NULL;
        if (loop->entries[i].branch != branch) continue;
        int joins = before && ra_span_same(before->q_rows, tile->q_rows) && ra_span_same(before->heads, tile->heads);
        if (!joins) {
            groups[list->group_count++] = (ra_tile_group){list->tile_count, 0};
            round->count++;
        }
        groups[list->group_count - 1].count++;
        tiles[list->tile_count++] = *tile;
        loop->compute->pairs += ra_tile_pairs(tile) * tile->heads.count * loop->b->cut->problem->batch;
    }
    list->round_count += round->count > 0;
}

/* Branch by branch, so that inside a round no query row of a head is in two groups. */
static ra_status make_list(tile_loop *loop) {
    int64_t branches = loop->b->cut->problem->branches ? loop->b->cut->problem->branches : 1;
    ra_tile *tiles = ra_pool_take(loop->b->pool, loop->entry_count, sizeof *tiles);
    ra_tile_group *groups = ra_pool_take(loop->b->pool, loop->entry_count, sizeof *groups);
    ra_tile_round *rounds = ra_pool_take(loop->b->pool, branches, sizeof *rounds);
    ra_tile_list list = {.tiles = tiles, .groups = groups, .rounds = rounds};
    if (!tiles || !groups || !rounds) return ra_no_memory();
    for (int branch = 0; branch < branches; branch++) add_round(loop, branch, tiles, groups, rounds, &list);
    loop->compute->tiles = list;
    return RA_OK;
}

ra_status ra_tiles_make(ra_builder *b, ra_compute *compute) {
    const ra_problem *problem = b->cut->problem;
    const ra_parcel *parcel = &compute->parcel;
    tile_loop loop = {.b = b, .compute = compute};
    /* Heads that lie alike in the slot are done together. */
    int together = parcel->piece_count == 0 || parcel->pieces[0].heads.count == problem->heads_kv;
    int64_t sets = together ? 1 : problem->heads_kv, gqa_ratio = problem->heads_q / problem->heads_kv;
    loop.one_head = sets == problem->heads_kv;
    loop.part_of = ra_pool_take(b->scratch, parcel->piece_count + 1, sizeof *loop.part_of);
    if (!loop.part_of) return ra_no_memory();
    for (int64_t i = 0; i <= parcel->piece_count; i++) loop.part_of[i] = -1;
    for (int64_t i = 0; i < sets; i++) {
        loop.heads =
            together ? (ra_head_range){0, problem->heads_q} : (ra_head_range){i * gqa_ratio, (i + 1) * gqa_ratio};
        RA_TRY(index_pieces(&loop, i));
        sort_index(&loop);
        RA_TRY(ra_pattern_contacts_of(b->cut, compute->visit.owner, parcel->owner, loop.heads, place_contact, &loop));
    }
    return make_list(&loop);
}
