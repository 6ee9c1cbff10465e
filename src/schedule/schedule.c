#include "schedule/schedule.h"

#include "schedule/builder.h"

/* The strategies and who fills their steps. */
typedef struct strategy_entry {
    ra_strategy strategy;
    ra_status (*make)(ra_builder *b);
} strategy_entry;

static const strategy_entry strategies[] = {
    {RA_STRATEGY_RING, ra_make_ring},
    {RA_STRATEGY_PAIRWISE, ra_make_pairwise},
    {RA_STRATEGY_ALLGATHER, ra_make_allgather},
};

ra_status ra_schedule_make(ra_pool *pool, const ra_cut_problem *cut, ra_strategy strategy, ra_pass pass, int rank,
                           ra_schedule *schedule_out) {
    /* One step per rank; in the backward pass one more, in which the last gradients go home. */
    int steps = cut->ranks + (pass == RA_BACKWARD && cut->ranks > 1);
    ra_schedule schedule = {.pass = pass, .rank = rank, .ranks = cut->ranks, .strategy = strategy, .step_count = steps};
    schedule.steps = ra_pool_take(pool, steps, sizeof *schedule.steps);
    if (!schedule.steps) return ra_fail(RA_ERR_MEMORY, "no memory for a schedule");
    ra_pool scratch = {0};
    ra_builder builder = {cut, pass, rank, cut->ranks, pool, &scratch, &schedule};
    size_t i = 0, count = sizeof strategies / sizeof *strategies;
    while (i < count && strategies[i].strategy != strategy) i++;
    ra_status status =
        i < count ? strategies[i].make(&builder) : ra_fail(RA_ERR_ARGUMENT, "strategy %d is none", (int)strategy);
    ra_pool_free(&scratch);
    if (status == RA_OK) *schedule_out = schedule;
    return status;
}

size_t ra_cargo_bytes(const ra_problem *problem, ra_cargo cargo) {
    if (cargo == RA_CARGO_KV) return ra_dtype_bytes(problem->dtype);
    return problem->dtype == RA_F64 ? 8 : 4;
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
