/* Routes: which of an owner's rows travel how far around the ring. */
#include "schedule/builder.h"

/* From the farthest hop inwards: what a hop needs and no farther one does stops there, and goes behind the rest. */
ra_status ra_route_make(ra_builder *b, int owner, ra_route *route_out) {
    ra_rowset covered = {0}, order = {0};
    int *last = NULL;
    int64_t last_count = 0, last_capacity = 0;
    for (int t = b->ranks - 1; t >= 1; t--) {
        ra_rowset needed, stops, both;
        RA_TRY(ra_rowset_needed(b->scratch, b->cut, ra_rank_along(b, owner, t), owner, &needed));
        RA_TRY(ra_rowset_minus(b->scratch, &needed, &covered, &stops));
        for (int64_t i = 0; i < stops.count; i++) {
            ra_run *run = ra_pool_append(b->scratch, &order.runs, &order.count, &order.capacity, sizeof *run);
            int *hop = ra_pool_append(b->pool, &last, &last_count, &last_capacity, sizeof *hop);
            if (!run || !hop) return ra_fail(RA_ERR_MEMORY, "no memory for a schedule");
            *run = stops.runs[i];
            *hop = t;
        }
        RA_TRY(ra_rowset_union(b->scratch, &covered, &needed, &both));
        covered = both;
    }
    RA_TRY(ra_parcel_of(b, owner, &order, &route_out->parcel));
    route_out->last = last;
    return RA_OK;
}

ra_parcel ra_route_from(const ra_builder *b, const ra_route *route, int t) {
    ra_parcel prefix = route->parcel;
    while (prefix.piece_count > 0 && route->last[prefix.piece_count - 1] < t) prefix.piece_count--;
    prefix.elements = ra_parcel_offset(b->cut->problem, &prefix, prefix.piece_count);
    return prefix;
}
