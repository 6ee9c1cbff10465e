#include "schedule/schedule.h"

#include "schedule/builder.h"

/* What the schedules of one rank are made with. */
typedef struct workshop {
    ra_pool *pool, scratch;
    const ra_cut_problem *cut;
    ra_strategy strategy;
    int rank;
    ra_findings findings;
} workshop;

static ra_status fill_steps(workshop *w, ra_pass pass, int step_count, ra_status (*make)(ra_builder *b),
                            ra_schedule *schedule_out) {
    ra_schedule schedule = {
        .pass = pass, .rank = w->rank, .ranks = w->cut->ranks, .strategy = w->strategy, .step_count = step_count};
    schedule.steps = ra_pool_take(w->pool, schedule.step_count, sizeof *schedule.steps);
    if (!schedule.steps) return ra_no_memory();
    ra_builder builder = {w->cut, pass, w->rank, w->cut->ranks, w->pool, &w->scratch, &schedule, &w->findings};
    w->findings.next = 0;
    RA_TRY(make(&builder));
    *schedule_out = schedule;
    return RA_OK;
}

static ra_status make_pass(workshop *w, ra_pass pass, ra_schedule *schedule_out) {
    const ra_strategy_entry *entry = ra_strategy_find(w->strategy);
    if (!entry || !entry->make) return ra_fail(RA_ERR_ARGUMENT, "there is no strategy %d", (int)w->strategy);
    return fill_steps(w, pass, entry->steps(w->cut->ranks, pass), entry->make, schedule_out);
}

ra_status ra_schedule_make(ra_pool *pool, const ra_cut_problem *cut, ra_strategy strategy, ra_pass pass, int rank,
                           ra_schedule *schedule_out) {
    workshop w = {.pool = pool, .cut = cut, .strategy = strategy, .rank = rank};
    ra_status status = make_pass(&w, pass, schedule_out);
    ra_pool_free(&w.scratch);
    return status;
}

ra_status ra_schedule_make_both(ra_pool *pool, const ra_cut_problem *cut, ra_strategy strategy, int rank,
                                ra_schedule *forward_out, ra_schedule *backward_out) {
    workshop w = {.pool = pool, .cut = cut, .strategy = strategy, .rank = rank};
    ra_status status = make_pass(&w, RA_FORWARD, forward_out);
    if (status == RA_OK) status = make_pass(&w, RA_BACKWARD, backward_out);
    ra_pool_free(&w.scratch);
    return status;
}

ra_status ra_schedule_visits(ra_pool *pool, const ra_cut_problem *cut, int rank, ra_schedule *schedule_out) {
    workshop w = {.pool = pool, .cut = cut, .strategy = RA_STRATEGY_PASSQ, .rank = rank};
    ra_status status = fill_steps(&w, RA_BACKWARD, cut->ranks, ra_make_visits, schedule_out);
    ra_pool_free(&w.scratch);
    return status;
}

void ra_schedule_traffic(const ra_problem *problem, const ra_schedule *schedule, int64_t *bytes_out,
                         int64_t *messages_out) {
    int64_t bytes = 0, messages = 0;
    for (int s = 0; s < schedule->step_count; s++)
        for (int64_t i = 0; i < schedule->steps[s].transfer_count; i++) {
            const ra_transfer *transfer = &schedule->steps[s].transfers[i];
            if (!transfer->is_send) continue;
            bytes += transfer->elements * (int64_t)ra_cargo_bytes(problem, transfer->cargo);
            messages++;
        }
    *bytes_out = bytes;
    *messages_out = messages;
}
