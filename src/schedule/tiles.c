/* From contacts to tiles: a contact's keys are cut where the slot's pieces are. */
#include "schedule/builder.h"

#include <stdlib.h>

/* A piece and where it stands in its parcel, to be found by row. */
typedef struct indexed_piece {
    int64_t from, to;
    int part;
} indexed_piece;

typedef struct tile_loop {
    ra_builder *builder;
    const indexed_piece *index;
    int64_t index_count;
    ra_tile *tiles;
    int64_t tile_count, tile_capacity;
    ra_tile_group *groups;
    int64_t group_count, group_capacity;
    int64_t pairs;
} tile_loop;

static int by_row(const void *a, const void *b) {
    int64_t x = ((const indexed_piece *)a)->from, y = ((const indexed_piece *)b)->from;
    return (x > y) - (x < y);
}

/* The first piece that ends behind a row. */
static int64_t first_piece(const tile_loop *loop, int64_t row) {
    int64_t lo = 0, hi = loop->index_count;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (loop->index[mid].to > row) hi = mid;
        else lo = mid + 1;
    }
    return lo;
}

static int same_span(ra_span a, ra_span b) {
    return a.first == b.first && a.stride == b.stride && a.count == b.count;
}

static ra_status add_tile(tile_loop *loop, ra_tile tile) {
    if (ra_tile_pairs(&tile) == 0) return RA_OK;
    ra_pool *pool = loop->builder->pool;
    const ra_tile *before = loop->tile_count ? &loop->tiles[loop->tile_count - 1] : NULL;
    int joins = before && same_span(before->q_rows, tile.q_rows) && same_span(before->heads, tile.heads);
    ra_tile *item = ra_pool_append(pool, &loop->tiles, &loop->tile_count, &loop->tile_capacity, sizeof *item);
    if (!item) return ra_fail(RA_ERR_MEMORY, "no memory for a schedule");
    *item = tile;
    loop->pairs += ra_tile_pairs(&tile) * tile.heads.count;
    if (!joins) {
        ra_tile_group *group = ra_pool_append(pool, &loop->groups, &loop->group_count, &loop->group_capacity,
                                              sizeof *group);
        if (!group) return ra_fail(RA_ERR_MEMORY, "no memory for a schedule");
        group->first = loop->tile_count - 1;
    }
    loop->groups[loop->group_count - 1].count++;
    return RA_OK;
}

static ra_status cut_contact(const ra_contact *contact, void *user) {
    tile_loop *loop = user;
    int64_t from = contact->k_rows.first, to = from + contact->k_rows.count;
    for (int64_t i = first_piece(loop, from); i < loop->index_count && loop->index[i].from < to; i++) {
        const indexed_piece *piece = &loop->index[i];
        int64_t first = from > piece->from ? from : piece->from;
        int64_t end = to < piece->to ? to : piece->to;
        int64_t shift = first - from; /* the tile's key 0 is the contact's key `shift` */
        ra_tile tile = {.q_rows = contact->q_rows,
                        .k_rows = {first - piece->from, 1, end - first},
                        .heads = contact->heads,
                        .lo = contact->lo - shift,
                        .hi = contact->hi - shift,
                        .part = piece->part};
        if (tile.lo < -tile.q_rows.count) tile.lo = -tile.q_rows.count;
        if (tile.hi > tile.k_rows.count) tile.hi = tile.k_rows.count;
        RA_TRY(add_tile(loop, tile));
    }
    return RA_OK;
}

ra_status ra_tiles_make(ra_builder *b, const ra_parcel *parcel, ra_tile_list *tiles_out, int64_t *pairs_out) {
    indexed_piece *index = ra_pool_take(b->scratch, parcel->piece_count, sizeof *index);
    ra_tile_pass *pass = ra_pool_take(b->pool, 1, sizeof *pass);
    if (!index || !pass) return ra_fail(RA_ERR_MEMORY, "no memory for a schedule");
    for (int64_t i = 0; i < parcel->piece_count; i++) {
        ra_span rows = parcel->pieces[i].rows;
        index[i] = (indexed_piece){rows.first, rows.first + rows.count, (int)i};
    }
    qsort(index, (size_t)parcel->piece_count, sizeof *index, by_row);
    tile_loop loop = {.builder = b, .index = index, .index_count = parcel->piece_count};
    RA_TRY(ra_pattern_contacts(b->cut, b->rank, parcel->owner, cut_contact, &loop));
    pass->count = loop.group_count;
    *tiles_out = (ra_tile_list){.tiles = loop.tiles, .groups = loop.groups, .passes = pass,
                                .tile_count = loop.tile_count, .group_count = loop.group_count,
                                .pass_count = loop.group_count > 0};
    *pairs_out = loop.pairs * b->cut->problem->batch;
    return RA_OK;
}
