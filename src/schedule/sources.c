/* Where what is received is, for ranks that see each other's memory: schedule.h has the rules. */
#include "schedule/builder.h"

int ra_schedule_has_sources(const ra_schedule *schedule, ra_cargo cargo) {
    return ra_strategy_find(schedule->strategy)->sources >> cargo & 1;
}

static const ra_transfer *receive_into(const ra_step *step, ra_cargo cargo, int slot) {
    for (int64_t i = 0; i < step->transfer_count; i++) {
        const ra_transfer *t = &step->transfers[i];
        if (!t->is_send && t->cargo == cargo && t->slot == slot) return t;
    }
    return NULL;
}

const ra_transfer *ra_step_sum_of(const ra_step *step, const ra_compute *compute) {
    if (compute->grad_slot == RA_OWN) return NULL;
    for (int64_t i = 0; i < step->reduce_count; i++) {
        const ra_reduce *r = &step->reduces[i];
        if (r->cargo == RA_CARGO_GRAD && r->to == compute->grad_slot) return receive_into(step, RA_CARGO_GRAD, r->from);
    }
    return NULL;
}
