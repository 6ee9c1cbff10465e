/* Routes: which of an owner's rows travel how far around the ring.
 *
 * Without dilation the last hop of every row is known by arithmetic (core/reach.h), and a route is its rows sorted by
 * it.
 *
 * With dilation hops are looked at from the farthest inwards: what a hop needs and no farther one does stops there, and
 * goes behind the rest. A range of hops whose hints (core/pattern.h) name no row that does not travel farther anyway
 * adds nothing and is skipped as a whole; else its farthest hop is looked at, and then what is left of it by halves. So
 * a route costs a few looks for each hop where something stops, and not one for every rank.
 */
#include "core/reach.h"
#include "schedule/builder.h"

/* ---- without dilation -------------------------------------------------------------------------------------------- */

typedef struct reach_list {
    ra_pool pool;
    int least; /* rows that stop before this hop are left out */
    ra_reach *items;
    int64_t count, capacity;
} reach_list;

/* Runs come in rising order: one that goes as far as the run it touches is made one with it. */
static ra_status list_reach(const ra_reach *reach, void *user) {
    reach_list *list = user;
    ra_reach *last = list->count ? &list->items[list->count - 1] : NULL;
    if (reach->hop < list->least) return RA_OK;
    if (last && last->hop == reach->hop && last->rows.first + last->rows.count == reach->rows.first) {
        last->rows.count += reach->rows.count;
        return RA_OK;
    }
    ra_reach *item = ra_pool_append(&list->pool, &list->items, &list->count, &list->capacity, sizeof *item);
    if (!item) return ra_no_memory();
    *item = *reach;
    return RA_OK;
}

/* The pieces of a list, the longest travelling first, those that stop at the same hop in rising order of rows: counted
 * by hop, then put into their places. */
static ra_status sort_by_hop(ra_builder *b, reach_list *list, ra_piece *pieces, int *last) {
    int least = list->count ? list->items[0].hop : 0, most = least;
    for (int64_t i = 1; i < list->count; i++) {
        if (list->items[i].hop < least) least = list->items[i].hop;
        if (list->items[i].hop > most) most = list->items[i].hop;
    }
    int64_t *place = ra_pool_take(&list->pool, most - least + 1, sizeof *place); /* [hop - least] */
    int64_t behind = list->count;
    if (!place) return ra_no_memory();
    for (int64_t i = 0; i < list->count; i++) place[list->items[i].hop - least]++;
    for (int hop = least; hop <= most; hop++) place[hop - least] = behind -= place[hop - least];
    for (int64_t i = 0; i < list->count; i++) {
        const ra_reach *item = &list->items[i];
        int64_t at = place[item->hop - least]++;
        pieces[at] = (ra_piece){item->rows, ra_head_set(b->cut->problem, 0)};
        last[at] = item->hop;
    }
    return RA_OK;
}

static ra_status route_of_list(ra_builder *b, int owner, reach_list *list, ra_route *route_out) {
    ra_piece *pieces = ra_pool_take(b->scratch, list->count, sizeof *pieces);
    int *last = ra_pool_take(b->scratch, list->count, sizeof *last);
    if (!pieces || !last) return ra_no_memory();
    RA_TRY(sort_by_hop(b, list, pieces, last));
    ra_parcel parcel = {.owner = owner, .pieces = pieces, .piece_count = list->count};
    parcel.elements = ra_parcel_offset(b->cut->problem, &parcel, list->count);
    *route_out = (ra_route){parcel, last};
    return RA_OK;
}

static ra_status route_by_reach(ra_builder *b, int owner, int hop, ra_route *route_out) {
    reach_list list = {.least = hop};
    ra_status status = ra_reach_of(b->cut, owner, list_reach, &list);
    if (status == RA_OK) status = route_of_list(b, owner, &list, route_out);
    ra_pool_free(&list.pool);
    return status;
}

/* ---- with dilation ----------------------------------------------------------------------------------------------- */

typedef struct route_loop {
    ra_builder *b;
    int owner;
    ra_pool pool;
    ra_rowset *covered; /* for each head set: what some hop farther out needs */
    ra_piece *pieces;
    int *last;
    int64_t piece_count, piece_capacity, last_count, last_capacity;
} route_loop;

static ra_status add_stops(route_loop *loop, const ra_rowset *stops, ra_span heads, int hop) {
    ra_pool *pool = loop->b->scratch;
    ra_span_list list;
    RA_TRY(ra_rows_in_pieces(loop->b, &loop->pool, stops, &list));
    for (int64_t i = 0; i < list.count; i++) {
        ra_piece *piece = ra_pool_append(pool, &loop->pieces, &loop->piece_count, &loop->piece_capacity, sizeof *piece);
        int *last = ra_pool_append(pool, &loop->last, &loop->last_count, &loop->last_capacity, sizeof *last);
        if (!piece || !last) return ra_no_memory();
        *piece = (ra_piece){list.spans[i], heads};
        *last = hop;
    }
    return RA_OK;
}

static ra_status stop_at(route_loop *loop, int hop) {
    const ra_problem *problem = loop->b->cut->problem;
    int q_rank = ra_rank_along(loop->b, loop->owner, hop);
    for (int64_t i = 0; i < ra_head_sets(problem); i++) {
        ra_rowset needed, stops, both;
        RA_TRY(ra_rowset_needed(&loop->pool, loop->b->cut, q_rank, loop->owner, i, &needed));
        if (needed.count == 0) continue;
        RA_TRY(ra_rowset_minus(&loop->pool, &needed, &loop->covered[i], &stops));
        RA_TRY(add_stops(loop, &stops, ra_head_set(problem, i), hop));
        RA_TRY(ra_rowset_union(&loop->pool, &loop->covered[i], &needed, &both));
        loop->covered[i] = both;
    }
    return RA_OK;
}

/* What the ranks of some hops may need, for each head set. Ranks are a ring, so the hops are up to two ranges of them.
 */
typedef struct hint_sets {
    ra_rowset *sets[2]; /* [head sets] */
} hint_sets;

static ra_status take_hints(route_loop *loop, int from, int to, hint_sets *hints_out) {
    const ra_cut_problem *cut = loop->b->cut;
    int64_t count = ra_head_sets(cut->problem);
    int start = loop->owner + from, end = loop->owner + to + 1, ranks = cut->ranks;
    int ranges[2][2] = {{start < ranks ? start : ranks, end < ranks ? end : ranks},
                        {start > ranks ? start - ranks : 0, end > ranks ? end - ranks : 0}};
    for (int n = 0; n < 2; n++) {
        hints_out->sets[n] = ra_pool_take(&loop->pool, count, sizeof(ra_rowset));
        if (!hints_out->sets[n]) return ra_no_memory();
        for (int64_t i = 0; i < count && ranges[n][0] < ranges[n][1]; i++)
            RA_TRY(
                ra_rowset_hinted(&loop->pool, cut, ranges[n][0], ranges[n][1], loop->owner, i, &hints_out->sets[n][i]));
    }
    return RA_OK;
}

static int all_covered(const route_loop *loop, const hint_sets *hints) {
    for (int n = 0; n < 2; n++)
        for (int64_t i = 0; i < ra_head_sets(loop->b->cut->problem); i++)
            if (!ra_rowset_within(&hints->sets[n][i], &loop->covered[i])) return 0;
    return 1;
}

/* Hops [from, to], from <= to. */
static ra_status route_inwards(route_loop *loop, int from, int to) {
    hint_sets hints;
    if (from == to) return stop_at(loop, to);
    RA_TRY(take_hints(loop, from, to, &hints));
    if (all_covered(loop, &hints)) return RA_OK;
    RA_TRY(stop_at(loop, to));
    if (all_covered(loop, &hints)) return RA_OK;
    int middle = from + (to - 1 - from) / 2;
    if (middle < to - 1) RA_TRY(route_inwards(loop, middle + 1, to - 1));
    return route_inwards(loop, from, middle);
}

static ra_status route_by_hints(ra_builder *b, int owner, int hop, ra_route *route_out) {
    route_loop loop = {.b = b, .owner = owner};
    loop.covered = ra_pool_take(&loop.pool, ra_head_sets(b->cut->problem), sizeof *loop.covered);
    ra_status status = loop.covered ? RA_OK : ra_no_memory();
    if (status == RA_OK && hop < b->ranks) status = route_inwards(&loop, hop, b->ranks - 1);
    ra_pool_free(&loop.pool);
    if (status != RA_OK) return status;
    route_out->last = loop.last;
    route_out->parcel = (ra_parcel){.owner = owner, .pieces = loop.pieces, .piece_count = loop.piece_count};
    route_out->parcel.elements = ra_parcel_offset(b->cut->problem, &route_out->parcel, loop.piece_count);
    return RA_OK;
}

ra_status ra_route_make(ra_builder *b, int owner, int hop, ra_route *route_out) {
    return b->cut->problem->branches ? route_by_hints(b, owner, hop, route_out)
                                     : route_by_reach(b, owner, hop, route_out);
}

ra_parcel ra_route_from(const ra_builder *b, const ra_route *route, int t) {
    ra_parcel prefix = route->parcel;
    while (prefix.piece_count > 0 && route->last[prefix.piece_count - 1] < t) prefix.piece_count--;
    prefix.elements = ra_parcel_offset(b->cut->problem, &prefix, prefix.piece_count);
    return prefix;
}
