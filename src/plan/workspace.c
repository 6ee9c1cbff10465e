#include "plan/workspace.h"

#include "base/status.h"

/* Hands out consecutive runs of bytes; remembers when they no longer fit. */
typedef struct ruler {
    size_t at;
    int overflow;
} ruler;

static size_t take(ruler *r, int64_t elements, size_t bytes) {
    size_t from = r->at;
    if ((uint64_t)elements > (SIZE_MAX / 4 - r->at) / bytes) r->overflow = 1;
    else r->at = (from + (size_t)elements * bytes + 63) / 64 * 64;
    return from;
}

static int64_t slot_elements(const ra_slots *slots, int64_t i) {
    return slots && i < slots->count ? slots->elements[i] : 0;
}

/* A slot is as large as the pass that needs more of it wants. */
static ra_status take_slots(ra_pool *pool, ruler *r, const ra_slots *a, const ra_slots *b, size_t bytes,
                            size_t **offsets_out, int *count_out) {
    int64_t count = b && b->count > a->count ? b->count : a->count;
    size_t *offsets = ra_pool_take(pool, count, sizeof *offsets);
    if (!offsets) return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    for (int64_t i = 0; i < count; i++) {
        int64_t x = slot_elements(a, i), y = slot_elements(b, i);
        offsets[i] = take(r, x > y ? x : y, bytes);
    }
    *offsets_out = offsets;
    *count_out = (int)count;
    return RA_OK;
}

ra_status ra_workspace_lay_out(ra_pool *pool, const ra_setup *setup, const ra_schedule *forward,
                               const ra_schedule *backward, ra_workspace *workspace_out) {
    const ra_shape *shape = &setup->shape;
    size_t acc = ra_shape_acc_bytes(shape);
    ra_workspace w = {0};
    ruler r = {0};
    RA_TRY(take_slots(pool, &r, &forward->kv, backward ? &backward->kv : NULL, ra_dtype_bytes(shape->dtype),
                      &w.kv_slots, &w.kv_slot_count));
    w.kv_slot_bytes = r.at;
    RA_TRY(take_slots(pool, &r, &forward->grad, backward ? &backward->grad : NULL, acc, &w.grad_slots,
                      &w.grad_slot_count));
    if (backward && !setup->in_place) {
        int64_t rows = shape->heads_kv * shape->batch * setup->rows_k;
        w.own_dk = take(&r, rows * shape->dim, acc);
        w.own_dv = take(&r, rows * shape->dim_v, acc);
    }
    w.grad_slot_bytes = r.at - w.kv_slot_bytes;

    int64_t rows = shape->batch * shape->heads_q * setup->rows_q;
    ruler state = r, gradient = r;
    w.m = take(&state, shape->states * rows, acc);
    w.l = take(&state, shape->states * rows, acc);
    if (shape->states > 1 || !setup->in_place) w.o = take(&state, shape->states * rows * shape->dim_v, acc);
    if (backward && shape->states > 1) {
        gradient = state;
        w.lse = take(&gradient, shape->states * rows, acc);
    }
    if (backward) {
        w.delta = take(&gradient, shape->states * rows, acc);
        if (!setup->in_place) w.dq = take(&gradient, rows * shape->dim, acc);
    }
    size_t start = r.at;
    r.overflow |= state.overflow | gradient.overflow;
    r.at = state.at > gradient.at ? state.at : gradient.at;
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
