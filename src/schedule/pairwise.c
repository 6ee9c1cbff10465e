/* Pairwise. In step s a rank computes with the keys of the rank s back, sends the rank s + 1 further along exactly the
 * own rows that it needs, and receives what it needs of the rank s + 1 back. In the backward pass each contribution to
 * dK and dV goes home in the step after the one that computed it; the owner adds them in the order of the steps.
 *
 * Slots. KV: s mod 2 is computed with, the other is received into, slot 2 holds what is sent, and is packed anew only
 * when a peer needs other rows than the one before. Gradients: s mod 2 is computed into, the other is sent from, slot 2
 * is received into.
 */
#include "schedule/builder.h"

enum { SENT = 2, ARRIVES = 2 };

/* packed: what is in slot SENT. */
static ra_status keys_step(ra_builder *b, int s, ra_parcel *packed) {
    if (s == 0) {
        RA_TRY(ra_add_compute_own(b, s));
    } else {
        ra_parcel here;
        RA_TRY(ra_parcel_needed(b, b->rank, ra_rank_along(b, b->rank, -s), &here));
        RA_TRY(ra_add_compute(b, s, s % 2, s % 2, &here));
    }
    if (s + 1 == b->ranks) return RA_OK;
    int to = ra_rank_along(b, b->rank, s + 1), from = ra_rank_along(b, b->rank, -s - 1);
    ra_parcel sent, arriving;
    RA_TRY(ra_parcel_needed(b, to, b->rank, &sent));
    RA_TRY(ra_parcel_needed(b, b->rank, from, &arriving));
    if (sent.elements > 0 && !ra_parcel_is(&sent, packed)) {
        RA_TRY(ra_add_pack(b, s, RA_CARGO_KV, SENT, &sent));
        *packed = sent;
    }
    RA_TRY(ra_add_send(b, s, to, RA_CARGO_KV, SENT, 0, sent.elements));
    return ra_add_recv(b, s, from, RA_CARGO_KV, (s + 1) % 2, arriving.elements);
}

static ra_status gradients_step(ra_builder *b, int s) {
    int owner = ra_rank_along(b, b->rank, 1 - s), helper = ra_rank_along(b, b->rank, s - 1);
    ra_parcel sent, arriving;
    RA_TRY(ra_parcel_needed(b, b->rank, owner, &sent));
    RA_TRY(ra_parcel_needed(b, helper, b->rank, &arriving));
    RA_TRY(ra_add_send(b, s, owner, RA_CARGO_GRAD, (s - 1) % 2, 0, sent.elements));
    RA_TRY(ra_add_recv(b, s, helper, RA_CARGO_GRAD, ARRIVES, arriving.elements));
    return ra_add_fold(b, s, RA_CARGO_GRAD, RA_OWN, ARRIVES, &arriving);
}

ra_status ra_make_pairwise(ra_builder *b) {
    ra_parcel packed = {0};
    for (int s = 0; s < b->schedule->step_count; s++) {
        if (s < b->ranks) RA_TRY(keys_step(b, s, &packed));
        if (s >= 2 && b->pass == RA_BACKWARD) RA_TRY(gradients_step(b, s));
    }
    return RA_OK;
}
