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

typedef struct exchange {
    const ra_parcel *in, *out; /* [ranks] by distance: ra_findings */
    ra_parcel packed;          /* what is in slot SENT */
} exchange;

static ra_status keys_step(ra_builder *b, int s, exchange *e) {
    if (s == 0)
        RA_TRY(ra_add_compute_own(b, s));
    else
        RA_TRY(ra_add_compute(b, s, s % 2, s % 2, &e->in[s]));
    if (s + 1 == b->ranks) return RA_OK;
    const ra_parcel *sent = &e->out[s + 1], *arriving = &e->in[s + 1];
    if (sent->elements > 0 && !ra_parcel_is(sent, &e->packed)) {
        RA_TRY(ra_add_pack(b, s, RA_CARGO_KV, SENT, sent));
        e->packed = *sent;
    }
    RA_TRY(ra_add_send(b, s, ra_rank_along(b, b->rank, s + 1), RA_CARGO_KV, SENT, 0, sent->elements));
    return ra_add_recv(b, s, ra_rank_along(b, b->rank, -s - 1), RA_CARGO_KV, (s + 1) % 2, arriving->elements,
                       RA_COPIED);
}

static ra_status gradients_step(ra_builder *b, int s, const exchange *e) {
    const ra_parcel *sent = &e->in[s - 1], *arriving = &e->out[s - 1];
    RA_TRY(ra_add_send(b, s, ra_rank_along(b, b->rank, 1 - s), RA_CARGO_GRAD, (s - 1) % 2, 0, sent->elements));
    RA_TRY(ra_add_recv(b, s, ra_rank_along(b, b->rank, s - 1), RA_CARGO_GRAD, ARRIVES, arriving->elements, RA_COPIED));
    return ra_add_reduce(b, s, RA_CARGO_GRAD, RA_OWN, ARRIVES, arriving);
}

/* What this rank needs of the others and they of it. */
static ra_status find_needs(ra_builder *b) {
    ra_parcel *in = ra_pool_take(b->scratch, b->ranks, sizeof *in);
    ra_parcel *out = ra_pool_take(b->scratch, b->ranks, sizeof *out);
    if (!in || !out) return ra_no_memory();
    for (int t = 1; t < b->ranks; t++) {
        RA_TRY(ra_parcel_needed(b, b->rank, ra_rank_along(b, b->rank, -t), &in[t]));
        RA_TRY(ra_parcel_needed(b, ra_rank_along(b, b->rank, t), b->rank, &out[t]));
    }
    b->findings->in = in;
    b->findings->out = out;
    return RA_OK;
}

ra_status ra_make_pairwise(ra_builder *b) {
    if (!b->findings->in) RA_TRY(find_needs(b));
    exchange e = {.in = b->findings->in, .out = b->findings->out};
    for (int s = 0; s < b->schedule->step_count; s++) {
        if (s < b->ranks) RA_TRY(keys_step(b, s, &e));
        if (s >= 2 && b->pass == RA_BACKWARD) RA_TRY(gradients_step(b, s, &e));
    }
    return RA_OK;
}
