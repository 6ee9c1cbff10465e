#include "schedule/schedule.h"

#include "schedule/builder.h"

ra_status ra_schedule_make(ra_pool *pool, const ra_cut_problem *cut, ra_strategy strategy, ra_pass pass, int rank,
                           ra_schedule *schedule_out) {
    const ra_strategy_entry *entry = ra_strategy_find(strategy);
    if (!entry || !entry->make) return ra_fail(RA_ERR_ARGUMENT, "strategy %d is none", (int)strategy);
    ra_schedule schedule = {.pass = pass,
                            .rank = rank,
                            .ranks = cut->ranks,
                            .strategy = strategy,
                            .step_count = entry->steps(cut->ranks, pass)};
    schedule.steps = ra_pool_take(pool, schedule.step_count, sizeof *schedule.steps);
    if (!schedule.steps) return ra_fail(RA_ERR_MEMORY, "no memory for a schedule");
    ra_pool scratch = {0};
    ra_builder builder = {cut, pass, rank, cut->ranks, pool, &scratch, &schedule};
    ra_status status = entry->make(&builder);
    ra_pool_free(&scratch);
    if (status == RA_OK) *schedule_out = schedule;
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
