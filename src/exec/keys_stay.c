#include "exec/keys_stay.h"

#include "base/status.h"
#include "exec/staying_tiles.h"
#include "exec/step_messages.h"

/* ---- whether, and with what -------------------------------------------------------------------------------------- */

static int is_wanted(const ra_setup *setup, const ra_schedule *planned) {
    int64_t keys = setup->shape.batch * setup->shape.heads_kv * setup->rows_k, busy = setup->kernel->busy_keys;
    return setup->backward && busy > 0 && keys >= busy && setup->shape.states == 1 && setup->problem.branches == 0 &&
           setup->ranks > 1 && setup->ranks <= RA_PARTS_IN_PLACE && ra_schedule_has_sources(planned, RA_CARGO_KV);
}

/* The rank's own step, behind the rounds. */
static int own_step(const ra_schedule *schedule) {
    return ra_rounds_of(schedule->ranks) + schedule->rank;
}

static ra_status make_schedule(ra_pool *pool, const ra_setup *setup, ra_schedule *schedule_out) {
    ra_cut_problem cut = ra_setup_cut(setup);
    ra_schedule visits;
    RA_TRY(ra_schedule_visits(pool, &cut, setup->rank, &visits));
    ra_schedule staying = {.pass = RA_BACKWARD,
                           .rank = setup->rank,
                           .ranks = setup->ranks,
                           .strategy = RA_STRATEGY_PASSQ,
                           .step_count = ra_rounds_of(setup->ranks) + setup->ranks,
                           .pairs = visits.pairs};
    staying.steps = ra_pool_take(pool, staying.step_count, sizeof *staying.steps);
    ra_compute *compute = ra_pool_take(pool, 1, sizeof *compute);
    if (!staying.steps || !compute) return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    *compute = (ra_compute){.visit = {.slot = RA_OWN, .owner = setup->rank},
                            .kv_slot = RA_OWN,
                            .grad_slot = RA_OWN,
                            .parcel = {.owner = setup->rank},
                            .part_count = 1,
                            .pairs = visits.pairs};
    RA_TRY(ra_staying_tiles(pool, &visits, &compute->tiles));
    ra_step *step = &staying.steps[own_step(&staying)];
    step->computes = compute;
    step->compute_count = 1;
    *schedule_out = staying;
    return RA_OK;
}

int64_t ra_keys_received(const ra_schedule *planned) {
    int64_t records = 0;
    for (int s = 0; s < planned->step_count; s++)
        for (int64_t i = 0; i < planned->steps[s].compute_count; i++) {
            const ra_compute *c = &planned->steps[s].computes[i];
            if (c->kv_slot != RA_OWN) records += ra_parcel_records(&c->parcel, c->parcel.piece_count);
        }
    return records;
}

int ra_keys_stay(ra_pool *pool, const ra_setup *setup, const ra_schedule *planned, ra_schedule *schedule_out) {
    if (!is_wanted(setup, planned) || make_schedule(pool, setup, schedule_out) != RA_OK) return 0;
    return ra_adds_once(&schedule_out->steps[own_step(schedule_out)].computes->tiles);
}

/* ---- binding ----------------------------------------------------------------------------------------------------- */

/* The turn comes from the rank before, in the rank's own step, and goes to the one behind it, in that one's. */
static ra_status bind_turn(ra_pool *pool, const ra_program *program, int step, int peer, int is_send,
                           ra_bound_step *bound) {
    bound->messages = ra_pool_take(pool, 1, sizeof *bound->messages);
    if (!bound->messages) return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    bound->messages[0] = ra_order_message(program, step, peer, is_send);
    bound->message_count = 1;
    bound->waits_first = !is_send;
    return RA_OK;
}

static ra_status bind_call(ra_pool *pool, ra_program *program, ra_bound_step *bound, const ra_compute *compute) {
    bound->computes = ra_pool_take(pool, 1, sizeof *bound->computes);
    program->call_queries = ra_pool_take(pool, program->schedule->ranks, sizeof *program->call_queries);
    if (!bound->computes || !program->call_queries) return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    ra_bound_compute *call = &bound->computes[0];
    bound->compute_count = 1;
    call->compute = compute;
    call->tiles = compute->tiles;
    call->part_count = 1;
    RA_TRY(ra_program_prepare(program, call));
    call->overwrite = ra_program_overwrites(program, call);
    return RA_OK;
}

ra_status ra_keys_stay_bind(ra_pool *pool, ra_program *program) {
    const ra_schedule *schedule = program->schedule;
    int rank = schedule->rank, own = own_step(schedule);
    for (int i = 0; i < ra_rounds_of(schedule->ranks); i++)
        RA_TRY(ra_bind_round(pool, program, i, i, &program->steps[i]));
    if (rank > 0) RA_TRY(bind_turn(pool, program, own, rank - 1, 0, &program->steps[own]));
    if (rank + 1 < schedule->ranks) RA_TRY(bind_turn(pool, program, own + 1, rank + 1, 1, &program->steps[own + 1]));
    return bind_call(pool, program, &program->steps[own], schedule->steps[own].computes);
}
