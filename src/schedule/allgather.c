/* All-gather, the baseline. In step 0 every rank sends all its rows to everyone and meanwhile computes with its own
 * keys. In the forward pass it computes with all others in step 1, as one. In the backward pass it does so one after
 * another, in step s with those of the rank s back, and dK and dV go around as on the ring, one step behind: all rows,
 * all the way.
 *
 * Slots. KV: 0 holds the own rows that are sent, t those of the rank t back. Gradients: as on the ring; what comes home
 * in the last step, in which nothing is computed, takes the slot of that step.
 */
#include "schedule/builder.h"

enum { GRAD_ARRIVES = 2 };

static ra_status gather_step(ra_builder *b) {
    ra_parcel own;
    RA_TRY(ra_parcel_whole(b, b->rank, &own));
    if (b->ranks > 1) RA_TRY(ra_add_pack(b, 0, RA_CARGO_KV, 0, &own));
    RA_TRY(ra_add_compute_own(b, 0));
    for (int t = 1; t < b->ranks; t++) {
        int from = ra_rank_along(b, b->rank, -t), step = b->pass == RA_FORWARD ? 1 : t;
        ra_parcel theirs;
        RA_TRY(ra_parcel_whole(b, from, &theirs));
        RA_TRY(ra_add_send(b, 0, ra_rank_along(b, b->rank, t), RA_CARGO_KV, 0, 0, own.elements));
        RA_TRY(ra_add_recv(b, 0, from, RA_CARGO_KV, t, theirs.elements, (ra_source){from, 0, 0}));
        RA_TRY(ra_add_compute(b, step, t, t % 2, &theirs));
    }
    return RA_OK;
}

/* In step s: what step s - 1 computed goes on to the next rank, which in the last step is the owner. */
static ra_status gradients_step(ra_builder *b, int s) {
    int owner = ra_rank_along(b, b->rank, -s), slot = s < b->ranks ? GRAD_ARRIVES : s % 2;
    ra_parcel sent, arriving;
    RA_TRY(ra_parcel_whole(b, ra_rank_along(b, owner, 1), &sent));
    RA_TRY(ra_parcel_whole(b, owner, &arriving));
    RA_TRY(ra_add_send(b, s, ra_rank_along(b, b->rank, 1), RA_CARGO_GRAD, (s - 1) % 2, 0, sent.elements));
    RA_TRY(ra_add_recv(b, s, ra_rank_along(b, b->rank, -1), RA_CARGO_GRAD, slot, arriving.elements,
                       ra_sums_of(b, owner, 0)));
    return ra_add_reduce(b, s, RA_CARGO_GRAD, s < b->ranks ? s % 2 : RA_OWN, slot, &arriving);
}

ra_status ra_make_allgather(ra_builder *b) {
    RA_TRY(gather_step(b));
    for (int s = 2; b->pass == RA_BACKWARD && s < b->schedule->step_count; s++) RA_TRY(gradients_step(b, s));
    return RA_OK;
}
