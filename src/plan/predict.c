#include "plan/predict.h"

#include "base/sized.h"
#include "base/status.h"

ra_status ra_prediction_make(ra_pool *pool, ra_prediction *p) {
    ra_cut_problem cut = ra_setup_cut(&p->setup);
    if (p->setup.backward)
        RA_TRY(ra_schedule_make_both(pool, &cut, p->setup.strategy, p->setup.rank, &p->forward, &p->backward));
    else
        RA_TRY(ra_schedule_make(pool, &cut, p->setup.strategy, RA_FORWARD, p->setup.rank, &p->forward));
    int previous;
    RA_TRY(ra_device_enter(p->setup.device, &previous));
    ra_status status =
        ra_workspace_lay_out(pool, &p->setup, &p->forward, p->setup.backward ? &p->backward : NULL, &p->workspace);
    ra_device_leave(p->setup.device, previous);
    p->pool_bytes = pool->bytes;
    return status;
}

void ra_prediction_describe(const ra_prediction *p, ra_plan_info *info_out) {
    const ra_setup *setup = &p->setup;
    const ra_workspace *w = &p->workspace;
    ra_plan_info info = {
        .struct_size = sizeof info,
        .rank = setup->rank,
        .ranks = setup->ranks,
        .rows_q = setup->rows_q,
        .rows_k = setup->rows_k,
        .pairs = p->forward.pairs,
        .workspace_bytes = (int64_t)w->bytes,
        .kv_slot_bytes = (int64_t)w->kv_slot_bytes,
        .state_bytes = (int64_t)w->state_bytes,
        .grad_slot_bytes = (int64_t)w->grad_slot_bytes,
        .scratch_bytes = (int64_t)w->scratch_bytes,
        .kv_slots = w->kv_slot_count,
        .grad_slots = w->grad_slot_count,
        .steps_forward = p->forward.step_count,
        .steps_backward = setup->backward ? p->backward.step_count : 0,
        .layout = setup->layout,
        .strategy = setup->strategy,
        .kernel = setup->kernel->name,
        .device = setup->device->name,
    };
    ra_schedule_traffic(&setup->problem, &p->forward, &info.forward.bytes_planned, &info.forward.messages_planned);
    if (setup->backward)
        ra_schedule_traffic(&setup->problem, &p->backward, &info.backward.bytes_planned,
                            &info.backward.messages_planned);
    if (setup->backward && setup->shape.states > 1) { /* the states are computed once more */
        info.backward.bytes_planned += info.forward.bytes_planned;
        info.backward.messages_planned += info.forward.messages_planned;
    }
    info.plan_bytes = (int64_t)p->pool_bytes;
    *info_out = info;
}

ra_step_info ra_step_describe(const ra_problem *problem, const ra_step *step) {
    ra_step_info info = {.owner = -1, .visitor = -1, .send_peer = -1, .recv_peer = -1};
    for (int64_t i = 0; i < step->compute_count; i++) {
        if (step->computes[i].tiles.tile_count == 0) continue;
        int owner = step->computes[i].parcel.owner;
        info.owner = info.owner == -1 || info.owner == owner ? owner : -2;
        if (step->computes[i].visit.slot != RA_OWN) info.visitor = step->computes[i].visit.owner;
        info.pairs += step->computes[i].pairs;
    }
    for (int64_t i = 0; i < step->transfer_count; i++) {
        const ra_transfer *t = &step->transfers[i];
        int64_t bytes = t->elements * (int64_t)ra_cargo_bytes(problem, t->cargo);
        if (t->is_send) {
            if (info.sends++ == 0) info.send_peer = t->peer;
            info.bytes_sent += bytes;
        } else {
            if (info.recvs++ == 0) info.recv_peer = t->peer;
            info.bytes_received += bytes;
        }
    }
    return info;
}

ra_status ra_plan_info_copy(const ra_plan_info *info, ra_plan_info *info_out) {
    return ra_sized_write("info_out", info, sizeof *info, info_out);
}
