#include "plan/workspace.h"

#include "base/status.h"

/* Hands out consecutive runs of bytes; remembers when they no longer fit. */
typedef struct ruler {
    size_t at;
    int overflow;
} ruler;

static size_t take(ruler *r, int64_t elements, size_t bytes) {
    size_t from = r->at;
    if ((uint64_t)elements > (SIZE_MAX / 4 - r->at) / bytes)
        r->overflow = 1;
    else
        r->at = (from + (size_t)elements * bytes + 63) / 64 * 64;
    return from;
}

static int64_t slot_elements(const ra_slots *slots, int64_t i) {
    return slots && i < slots->count ? slots->elements[i] : 0;
}

/* What the slots of a plan are laid out from. */
typedef struct slot_plan {
    ra_pool *pool;
    const ra_problem *problem;
    const ra_schedule *forward, *backward; /* backward may be NULL */
    ra_workspace *workspace;
} slot_plan;

/* A slot has the larger of the two sizes that the passes need. */
static ra_status take_slots(const slot_plan *plan, ruler *r, ra_cargo cargo, int *count) {
    const ra_slots *a = &plan->forward->slots[cargo], *b = plan->backward ? &plan->backward->slots[cargo] : NULL;
    int64_t slots = b && b->count > a->count ? b->count : a->count;
    size_t *offsets = ra_pool_take(plan->pool, slots, sizeof *offsets);
    if (!offsets) return ra_no_memory();
    for (int64_t i = 0; i < slots; i++) {
        int64_t x = slot_elements(a, i), y = slot_elements(b, i);
        offsets[i] = take(r, x > y ? x : y, ra_cargo_bytes(plan->problem, cargo));
    }
    plan->workspace->slots[cargo] = offsets;
    *count += (int)slots;
    return RA_OK;
}

/* Two rulers that started at one place: what follows starts behind both. */
static ruler behind_both(ruler a, ruler b) {
    return (ruler){a.at > b.at ? a.at : b.at, a.overflow | b.overflow};
}

/* States travel in one pass only, dQ in the other, so they share their place. */
static ra_status take_all_slots(const slot_plan *plan, ruler *r) {
    ra_workspace *w = plan->workspace;
    int stats = 0, states = 0, gradients = 0;
    RA_TRY(take_slots(plan, r, RA_CARGO_KV, &w->kv_slot_count));
    RA_TRY(take_slots(plan, r, RA_CARGO_QUERY, &w->kv_slot_count));
    RA_TRY(take_slots(plan, r, RA_CARGO_STATS, &stats));
    w->kv_slot_bytes = r->at;
    RA_TRY(take_slots(plan, r, RA_CARGO_GRAD, &w->grad_slot_count));
    ruler forward = *r, backward = *r;
    RA_TRY(take_slots(plan, &forward, RA_CARGO_STATE, &states));
    RA_TRY(take_slots(plan, &backward, RA_CARGO_DQ, &gradients));
    *r = behind_both(forward, backward);
    w->grad_slot_count += states > gradients ? states : gradients;
    return RA_OK;
}

ra_status ra_workspace_lay_out(ra_pool *pool, const ra_setup *setup, const ra_schedule *forward,
                               const ra_schedule *backward, ra_workspace *workspace_out) {
    const ra_shape *shape = &setup->shape;
    size_t acc = ra_shape_acc_bytes(shape);
    ra_workspace w = {0};
    ruler r = {0};
    slot_plan plan = {pool, &setup->problem, forward, backward, &w};
    RA_TRY(take_all_slots(&plan, &r));
    if (backward && setup->gradient_target == RA_TARGET_WORKSPACE) {
        int64_t rows = shape->heads_kv * shape->batch * setup->rows_k;
        w.own_dk = take(&r, rows * shape->dim, acc);
        w.own_dv = take(&r, rows * shape->dim_v, acc);
    }
    w.grad_slot_bytes = r.at - w.kv_slot_bytes;

    int64_t rows = shape->batch * shape->heads_q * setup->rows_q;
    ruler state = r, gradient = r;
    w.m = take(&state, shape->states * rows, acc);
    w.l = take(&state, shape->states * rows, acc);
    if (setup->o_target == RA_TARGET_WORKSPACE) w.o = take(&state, shape->states * rows * shape->dim_v, acc);
    if (backward) {
        if (shape->states > 1) gradient = state;
        w.lse = take(&gradient, shape->states * rows, acc);
        w.delta = take(&gradient, shape->states * rows, acc);
        if (setup->gradient_target == RA_TARGET_WORKSPACE) w.dq = take(&gradient, rows * shape->dim, acc);
    }
    size_t start = r.at;
    r = behind_both(state, gradient);
    w.state_bytes = r.at - start;

    size_t scratch = setup->kernel->scratch_bytes(shape, setup->threads, 0);
    size_t scratch_backward = backward ? setup->kernel->scratch_bytes(shape, setup->threads, 1) : 0;
    w.scratch_bytes = ((scratch > scratch_backward ? scratch : scratch_backward) + 63) / 64 * 64;
    w.scratch = take(&r, (int64_t)w.scratch_bytes, 1);
    w.bytes = r.at;
    if (r.overflow) return ra_fail(RA_ERR_MEMORY, "the workspace does not fit in an address space");
    *workspace_out = w;
    return RA_OK;
}
