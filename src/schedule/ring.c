/* The ring. In step s a rank computes with the keys of the rank s back, sends on to its neighbour those that somebody
 * further along still needs, and receives the next ones into the other slot.
 *
 *     rank 2 of 4     step 0      step 1      step 2      step 3      step 4 (backward only)
 *     computes with   own         rank 1's    rank 0's    rank 3's
 *     K, V to 3       own         rank 1's    rank 0's
 *     K, V from 1     rank 1's    rank 0's    rank 3's
 *     dK, dV to 3                             rank 1's    rank 0's
 *     dK, dV from 1                           rank 0's    rank 3's
 *     dK, dV home                             <- rank 3   <- rank 0   -> 3, <- rank 1   (rows nobody further needs)
 *
 * dK and dV follow the rows they belong to, one step behind, since a step must have computed before it can send on; a
 * row that nobody further along needs goes straight home, which in a dense ring is the neighbour.
 *
 * Slots. KV: s mod 2 is computed with and sent from, the other is received into; own rows to send are packed into slot
 * 0. Gradients: s mod 2 is computed into, the other is sent from, slot 2 is received into and reduced at once; what
 * comes home takes the first slot that is free.
 *
 * Sources. Only the owner packs its rows, in step 0, and what the ranks behind it get is a prefix of that. Only in step
 * 1 are gradients computed that none arrive for; in later steps they are added to those that do.
 */
#include "schedule/builder.h"

enum { GRAD_ARRIVES = 2, GRAD_HOME = 3 };

static ra_status keys_step(ra_builder *b, const ra_route *routes, int s) {
    int owner = ra_rank_along(b, b->rank, -s);
    ra_parcel here = ra_route_from(b, &routes[owner], s);
    ra_parcel onward = ra_route_from(b, &routes[owner], s + 1);
    if (s == 0) {
        RA_TRY(ra_add_pack(b, s, RA_CARGO_KV, 0, &onward));
        RA_TRY(ra_add_compute_own(b, s));
    } else {
        RA_TRY(ra_add_compute(b, s, s % 2, s % 2, &here));
    }
    int next_owner = ra_rank_along(b, owner, -1);
    ra_parcel arriving = ra_route_from(b, &routes[next_owner], s + 1);
    RA_TRY(ra_add_send(b, s, ra_rank_along(b, b->rank, 1), RA_CARGO_KV, s % 2, 0, onward.elements));
    return ra_add_recv(b, s, ra_rank_along(b, b->rank, -1), RA_CARGO_KV, (s + 1) % 2, arriving.elements,
                       (ra_source){next_owner, 0, 0});
}

/* The pieces that go home from hop t: those behind the ones that travel on. */
static ra_parcel leaving(const ra_builder *b, const ra_route *route, int t, int64_t *offset_out) {
    ra_parcel all = ra_route_from(b, route, t), onward = ra_route_from(b, route, t + 1);
    if (onward.piece_count) all.pieces += onward.piece_count; /* a route without pieces has no array */
    all.piece_count -= onward.piece_count;
    all.elements -= onward.elements;
    *offset_out = onward.elements;
    return all;
}

/* In step s: what step s - 1 computed leaves, what the neighbour computed in it arrives. */
static ra_status gradients_step(ra_builder *b, const ra_route *routes, int s) {
    int here = s % 2, before = (s - 1) % 2;
    int owner_before = ra_rank_along(b, b->rank, 1 - s);
    int64_t offset, home_offset;
    ra_parcel onward = ra_route_from(b, &routes[owner_before], s);
    ra_parcel stops = leaving(b, &routes[owner_before], s - 1, &offset);
    RA_TRY(ra_add_send(b, s, ra_rank_along(b, b->rank, 1), RA_CARGO_GRAD, before, 0, onward.elements));
    RA_TRY(ra_add_send(b, s, owner_before, RA_CARGO_GRAD, before, offset, stops.elements));

    ra_parcel arriving = ra_route_from(b, &routes[ra_rank_along(b, b->rank, -s)], s);
    RA_TRY(ra_add_recv(b, s, ra_rank_along(b, b->rank, -1), RA_CARGO_GRAD, GRAD_ARRIVES, arriving.elements,
                       ra_sums_of(b, ra_rank_along(b, b->rank, -s), 0)));
    RA_TRY(ra_add_reduce(b, s, RA_CARGO_GRAD, here, GRAD_ARRIVES, &arriving));

    ra_parcel home = leaving(b, &routes[b->rank], s - 1, &home_offset);
    int sending = onward.elements + stops.elements > 0, computing = arriving.elements > 0;
    int slot = !computing ? here : !sending ? before : GRAD_HOME;
    RA_TRY(ra_add_recv(b, s, ra_rank_along(b, b->rank, s - 1), RA_CARGO_GRAD, slot, home.elements,
                       ra_sums_of(b, b->rank, home_offset)));
    return ra_add_reduce(b, s, RA_CARGO_GRAD, RA_OWN, slot, &home);
}

static ra_status find_routes(ra_builder *b) {
    ra_route *routes = ra_pool_take(b->scratch, b->ranks, sizeof *routes);
    if (!routes) return ra_no_memory();
    for (int t = 0; t < b->ranks; t++) {
        int owner = ra_rank_along(b, b->rank, -t);
        RA_TRY(ra_route_make(b, owner, t ? t : 1, &routes[owner]));
    }
    b->findings->routes = routes;
    return RA_OK;
}

ra_status ra_make_ring(ra_builder *b) {
    if (!b->findings->routes) RA_TRY(find_routes(b));
    const ra_route *routes = b->findings->routes;
    for (int s = 0; s < b->schedule->step_count; s++) {
        if (s < b->ranks) RA_TRY(keys_step(b, routes, s));
        if (s >= 2 && b->pass == RA_BACKWARD) RA_TRY(gradients_step(b, routes, s));
    }
    return RA_OK;
}
