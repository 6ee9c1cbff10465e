/* Where everything of the run path lies in the one block of memory a plan has.
 *
 *     ┌───────────────┬──────────┬─────────────┬──────────┬──────────────────┬─────────┐
 *     │ KV, query and │ gradient │ state slots │ own      │ m, l, O *        │ scratch │    in the forward pass
 *     │ stats slots   │ slots    ├─────────────┤ dK, dV * ├──────────────────┤         │
 *     │               │          │ dQ slots    │          │ lse, delta, dQ * │         │    in the backward pass
 *     └───────────────┴──────────┴─────────────┴──────────┴──────────────────┴─────────┘
 *
 * The two passes never run at once, so they share the slots, the state's place and the scratch. Everything starts at a
 * multiple of 64 bytes. What has a * is not there when outputs have the accumulation type: sums are then made in the
 * outputs themselves. Where softmaxes are kept apart (a mean of branches), each has its m, l and O here, and the
 * backward pass, which computes them again, has them beside its own arrays. */
#ifndef RA_PLAN_WORKSPACE_H
#define RA_PLAN_WORKSPACE_H

#include "base/pool.h"
#include "plan/setup.h"
#include "schedule/schedule.h"

typedef struct ra_workspace {
    size_t *slots[RA_CARGO_COUNT];      /* byte offsets of each cargo's slots */
    int kv_slot_count, grad_slot_count; /* of what travels to be computed with, and of sums that travel home */
    size_t own_dk, own_dv;              /* [heads_kv, batch, rows_k, dim or dim_v] */
    size_t o, m, l;                     /* [states, batch, heads_q, rows_q(, dim_v)] */
    size_t dq;                          /* [batch, heads_q, rows_q, dim] */
    size_t lse, delta; /* [states, batch, heads_q, rows_q]; lse: of each state, or a copy of one with strides */
    size_t scratch;
    size_t kv_slot_bytes, grad_slot_bytes, state_bytes, scratch_bytes;
    size_t bytes; /* all of it */
} ra_workspace;

/* backward may be NULL. Fails when the sizes do not fit in a size_t, or for want of memory. */
ra_status ra_workspace_lay_out(ra_pool *pool, const ra_setup *setup, const ra_schedule *forward,
                               const ra_schedule *backward, ra_workspace *workspace_out);

#endif
