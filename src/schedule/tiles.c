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
 *     contact's keys   b = 0 1 2 3 4 5 6 7          slot: piece 0 holds b = 0, 4; piece 1 b = 1, 5, and so on
 *     tiles                [0 4][1 5][2 6][3 7]
 *
 * Where the keys are strewn otherwise, the contact becomes one tile with an index of its keys' records. A GPU copies
 * such keys one by one, and a backward pass cannot tell which of them two tiles have in common: each costs several
 * times as much as a few spans do.
 */
#include "schedule/builder.h"
#include "schedule/slot_index.h"

typedef struct tile_entry {
    ra_tile tile;
    int branch;
} tile_entry;

typedef struct tile_loop {
    ra_builder *b;
    ra_compute *compute;
    ra_head_range heads; /* query heads of the set in hand */
    int one_head;        /* the set is one key/value head: an index of records can serve it */

    ra_slot_index index; /* of the set in hand */

    tile_entry *entries;
    int64_t entry_count, entry_capacity;
    int64_t *part_of; /* [piece_count + 1]: the part that stands for a piece, or -1; the last: for all records */
    int64_t part_capacity;
} tile_loop;

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
static ra_status add_span(tile_loop *loop, const ra_contact *contact, ra_span heads, const ra_fragment *f, int64_t from,
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
    for (int64_t i = 0; i < loop->index.fragment_count; i++) {
        const ra_fragment *f = &loop->index.fragments[i];
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

/* A tile for each fragment. Masked fragments with gaps have an index where they can have one, and else a tile for each
 * key. */
static ra_status add_tiles(tile_loop *loop, const ra_contact *contact, ra_span heads) {
    const ra_tile whole = {.q_rows = contact->q_rows, .k_rows = contact->k_rows, .lo = contact->lo, .hi = contact->hi};
    int unmasked = ra_tile_is_full(&whole, 0, whole.q_rows.count, 0, whole.k_rows.count);
    int few =
        loop->index.fragment_count <= 2 || contact->k_rows.count / loop->index.fragment_count >= RA_SHORT_FRAGMENT;
    int spans = 1;
    for (int64_t i = 0; i < loop->index.fragment_count; i++)
        spans &= unmasked || loop->index.fragments[i].b.stride == 1;
    if (!(few && spans) && loop->one_head) return add_indexed(loop, contact, heads);
    for (int64_t i = 0; i < loop->index.fragment_count; i++) {
        const ra_fragment *f = &loop->index.fragments[i];
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
    RA_TRY(ra_slot_index_find(&loop->index, contact.k_rows));
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
    tile_loop loop = {.b = b, .compute = compute, .index = {.scratch = b->scratch}};
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
        RA_TRY(ra_slot_index_make(&loop.index, parcel, i, problem->branches > 0));
        RA_TRY(ra_pattern_contacts_of(b->cut, compute->visit.owner, parcel->owner, loop.heads, place_contact, &loop));
    }
    return make_list(&loop);
}
