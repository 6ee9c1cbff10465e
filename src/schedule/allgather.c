/* All-gather, the baseline. In step 0 every rank sends all its rows to everyone and meanwhile computes with its own
 * keys; in step 1 it computes with all others. In the backward pass every contribution then goes home, one partner a
 * step, and is added in that order.
 *
 * Slots. KV: 0 holds the own rows that are sent, t those of the rank t back. Gradients likewise, 0 being received into.
 */
#include "schedule/builder.h"

static ra_status gather_step(ra_builder *b) {
    ra_parcel own;
    RA_TRY(ra_parcel_whole(b, b->rank, &own));
    if (b->ranks > 1) RA_TRY(ra_add_pack(b, 0, RA_CARGO_KV, 0, &own));
    RA_TRY(ra_add_compute_own(b, 0));
    for (int t = 1; t < b->ranks; t++) {
        int from = ra_rank_along(b, b->rank, -t);
        ra_parcel theirs;
        RA_TRY(ra_parcel_whole(b, from, &theirs));
        RA_TRY(ra_add_send(b, 0, ra_rank_along(b, b->rank, t), RA_CARGO_KV, 0, 0, own.elements));
        RA_TRY(ra_add_recv(b, 0, from, RA_CARGO_KV, t, theirs.elements, (ra_source){from, 0, 0}));
        RA_TRY(ra_add_compute(b, 1, t, t, &theirs));
    }
    return RA_OK;
}

static ra_status scatter_step(ra_builder *b, int t) {
    int owner = ra_rank_along(b, b->rank, -t), helper = ra_rank_along(b, b->rank, t);
    ra_parcel theirs, own;
    RA_TRY(ra_parcel_whole(b, owner, &theirs));
    RA_TRY(ra_parcel_whole(b, b->rank, &own));
    RA_TRY(ra_add_send(b, t + 1, owner, RA_CARGO_GRAD, t, 0, theirs.elements));
    RA_TRY(ra_add_recv(b, t + 1, helper, RA_CARGO_GRAD, 0, own.elements, RA_COPIED));
    return ra_add_reduce(b, t + 1, RA_CARGO_GRAD, RA_OWN, 0, &own);
}

ra_status ra_make_allgather(ra_builder *b) {
    RA_TRY(gather_step(b));
    if (b->pass == RA_BACKWARD)
        for (int t = 1; t < b->ranks; t++) RA_TRY(scatter_step(b, t));
    return RA_OK;
}
