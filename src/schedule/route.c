/* Routes: which of an owner's rows travel how far around the ring. */
#include "schedule/builder.h"

/* The rows of one head set that stop at each hop, and those that some hop farther out needs. */
typedef struct route_loop {
    ra_builder *b;
    int owner;
    ra_pool pool;
    ra_piece *pieces;
    int *last;
    int64_t piece_count, piece_capacity, last_count, last_capacity;
} route_loop;

static ra_status add_stops(route_loop *loop, const ra_rowset *stops, ra_span heads, int hop) {
    for (int64_t i = 0; i < stops->count; i++) {
        ra_pool *pool = loop->b->scratch;
        ra_piece *piece = ra_pool_append(pool, &loop->pieces, &loop->piece_count, &loop->piece_capacity, sizeof *piece);
        int *last = ra_pool_append(pool, &loop->last, &loop->last_count, &loop->last_capacity, sizeof *last);
        if (!piece || !last) return ra_fail(RA_ERR_MEMORY, "no memory for a schedule");
        *piece = (ra_piece){stops->spans[i], heads};
        *last = hop;
    }
    return RA_OK;
}

/* From the farthest hop inwards: what a hop needs and no farther one does stops there, and goes behind the rest. */
static ra_status walk_inwards(route_loop *loop) {
    const ra_problem *problem = loop->b->cut->problem;
    int64_t sets = ra_head_sets(problem);
    ra_rowset *covered = ra_pool_take(&loop->pool, sets, sizeof *covered);
    if (!covered) return ra_fail(RA_ERR_MEMORY, "no memory for a schedule");
    for (int t = loop->b->ranks - 1; t >= 1; t--)
        for (int64_t i = 0; i < sets; i++) {
            ra_rowset needed, stops, both;
            RA_TRY(ra_rowset_needed(&loop->pool, loop->b->cut, ra_rank_along(loop->b, loop->owner, t), loop->owner, i,
                                    &needed));
            RA_TRY(ra_rowset_minus(&loop->pool, &needed, &covered[i], &stops));
            RA_TRY(add_stops(loop, &stops, ra_head_set(problem, i), t));
            RA_TRY(ra_rowset_union(&loop->pool, &covered[i], &needed, &both));
            covered[i] = both;
        }
    return RA_OK;
}

ra_status ra_route_make(ra_builder *b, int owner, ra_route *route_out) {
    route_loop loop = {.b = b, .owner = owner};
    ra_status status = walk_inwards(&loop);
    ra_pool_free(&loop.pool);
    if (status != RA_OK) return status;
    route_out->last = loop.last;
    route_out->parcel = (ra_parcel){.owner = owner, .pieces = loop.pieces, .piece_count = loop.piece_count};
    route_out->parcel.elements = ra_parcel_offset(b->cut->problem, &route_out->parcel, loop.piece_count);
    return RA_OK;
}

ra_parcel ra_route_from(const ra_builder *b, const ra_route *route, int t) {
    ra_parcel prefix = route->parcel;
    while (prefix.piece_count > 0 && route->last[prefix.piece_count - 1] < t) prefix.piece_count--;
    prefix.elements = ra_parcel_offset(b->cut->problem, &prefix, prefix.piece_count);
    return prefix;
}
