/* Where everything of the run path lies in the one block of memory a plan has.
 *
 *     ┌ KV slots ┬ gradient slots ┬ own dK, dV ┬ state: O, m, l  (forward) ┬ scratch ┐
 *     │          │                │            │        dQ, delta (backward)│         │
 *     └──────────┴────────────────┴────────────┴────────────────────────────┴─────────┘
 *
 * The two passes never run at once, so they share the slots, the state's place and the scratch. Every part starts at a
 * multiple of 64 bytes. */
#ifndef RA_PLAN_WORKSPACE_H
#define RA_PLAN_WORKSPACE_H

#include "base/pool.h"
#include "plan/setup.h"
#include "schedule/schedule.h"

typedef struct ra_workspace {
    size_t *kv_slots, *grad_slots; /* byte offsets */
    int kv_slot_count, grad_slot_count;
    size_t own_dk, own_dv; /* [heads_kv, batch, rows_k, dim or dim_v] */
    size_t o, m, l;
    size_t dq, delta;
    size_t scratch;
    size_t kv_slot_bytes, grad_slot_bytes, state_bytes, scratch_bytes;
    size_t bytes; /* all of it */
} ra_workspace;

/* backward may be NULL. Fails when the sizes do not fit in a size_t, or for want of memory. */
ra_status ra_workspace_lay_out(ra_pool *pool, const ra_setup *setup, const ra_schedule *forward,
                               const ra_schedule *backward, ra_workspace *workspace_out);

#endif
