/* Which rounds of a tile list may be joined (join_rounds.h), which heads alike, and the list that comes of it. */
#ifndef RA_CORE_JOINABLE_H
#define RA_CORE_JOINABLE_H

#include "base/internal.h"
#include "base/pool.h"
#include "core/cells.h"
#include "core/tile.h"

enum {
    RA_JOIN_TILES = 1 << 17, /* more would take long to list */
    RA_JOIN_WORK = 1 << 19   /* cells of a round, and what it takes to find them */
};

/* ---- rounds and heads -------------------------------------------------------------------------------------------- */

typedef struct ra_joinable {
    const ra_tile_list *list;
    int *rounds;         /* [rounds]: all pairs of its tiles are visible, and its state is that of the first such one */
    int64_t round_count; /* how many there are */
    ra_span *classes;    /* heads that are in the same groups of these rounds */
    int64_t class_count;
} ra_joinable;

/* The classes are found where there are two such rounds or more. */
ra_status ra_joinable_find(ra_pool *pool, const ra_tile_list *list, ra_joinable *joinable_out);

/* Whether a class's heads are among a group's. */
int ra_joinable_has(const ra_joinable *joinable, int64_t group, int64_t class_number);

/* The cells of a class when the round's groups are one family more: spans of queries, which are numbered
 * (below), named as groups are. work: as ra_cells_add has it. */
ra_status ra_joinable_queries(ra_pool *pool, const ra_joinable *joinable, const ra_tile_round *round,
                              int64_t class_number, const ra_cells *cells, int64_t *work, ra_cells *cells_out);

static inline const ra_tile *ra_first_tile(const ra_tile_list *list, int64_t group) {
    return &list->tiles[list->groups[group].first];
}

/* The end of a round's groups. */
static inline int64_t ra_round_end(const ra_tile_round *round) {
    return round->first + round->count;
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* A tile's rows, numbered so that queries of different ranks, and keys of different parts, have none in common. */
ra_span ra_queries_numbered(const ra_tile *tile);
ra_span ra_keys_numbered(const ra_tile *tile);

/* A tile of some of a tile's queries, heads and keys; rows are numbered as above. All pairs of the tile that it is
 * taken from are visible. */
ra_tile ra_tile_of_cells(const ra_tile *tile, ra_span queries, ra_span heads, ra_span keys);

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* A list in the making. */
typedef struct ra_list_maker {
    ra_pool *pool;
    ra_tile *tiles;
    ra_tile_group *groups;
    ra_tile_round *rounds;
    int64_t tile_count, group_count, round_count;
    int64_t tile_capacity, group_capacity, round_capacity;
} ra_list_maker;

/* A group more, to which tiles are added. */
ra_status ra_list_maker_group(ra_list_maker *maker);
ra_status ra_list_maker_tile(ra_list_maker *maker, const ra_tile *tile);

/* Makes the list of rounds as they were, but for those that are joined, whose groups put_joined adds where the first of
 * them was. */
ra_status ra_list_maker_make(ra_pool *pool, const ra_tile_list *from, const int *joined,
                             ra_status (*put_joined)(ra_list_maker *maker, void *user), void *user,
                             ra_tile_list *list_out);

#endif
