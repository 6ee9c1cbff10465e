#include "exec/keys_stay.h"

#include "base/status.h"
#include "exec/adds_once.h"
#include "exec/staying_tiles.h"
#include "exec/step_messages.h"

/* ---- whether, and with what -------------------------------------------------------------------------------------- */

/* The leader alone works out what every rank's keys meet; with more tiles that would take long. */
enum { MOST_TILES = 1 << 15 };

/* The same on every rank. */
static int is_wanted(const ra_setup *setup, const ra_schedule *planned) {
    int64_t keys = setup->shape.batch * setup->shape.heads_kv * setup->problem.seq_k, busy = setup->kernel->busy_keys;
    return busy > 0 && keys >= busy && setup->shape.states == 1 && setup->problem.branches == 0 && setup->ranks > 1 &&
           setup->ranks <= RA_RANKS_IN_A_CALL && ra_schedule_has_sources(planned, RA_CARGO_KV);
}

/* Whether there would be too many tiles if every rank had as many as the leader has planned: the same tiles, over all
 * ranks, though not those of its own keys. Mostly it is known then, and nothing has to be worked out. */
static int has_too_many(const ra_setup *setup, const ra_schedule *planned) {
    return setup->rank == RA_LEADER && ra_tiles_met(planned) > MOST_TILES / setup->ranks;
}

/* tiles: of the leader's call; NULL: this is another rank. */
static ra_status make_schedule(ra_pool *pool, const ra_setup *setup, ra_pass pass, const ra_tile_list *tiles,
                               int64_t pairs, ra_schedule *schedule_out) {
    ra_schedule staying = {
        .pass = pass, .rank = setup->rank, .ranks = setup->ranks, .strategy = RA_STRATEGY_PASSQ, .step_count = 1};
    staying.steps = ra_pool_take(pool, staying.step_count, sizeof *staying.steps);
    ra_compute *compute = ra_pool_take(pool, 1, sizeof *compute);
    if (!staying.steps || !compute) return ra_no_memory();
    if (tiles) {
        *compute = (ra_compute){.visit = {.slot = RA_OWN, .owner = setup->rank},
                                .kv_slot = RA_OWN,
                                .grad_slot = RA_OWN,
                                .parcel = {.owner = setup->rank},
                                .part_count = setup->ranks,
                                .tiles = *tiles,
                                .pairs = pairs};
        staying.steps[0].computes = compute;
        staying.steps[0].compute_count = 1;
        staying.pairs = pairs;
    }
    *schedule_out = staying;
    return RA_OK;
}

/* Whether the leader's call would do all of a pass, and backward add to each row of dk and dv once. */
static int is_one_call(ra_pass pass, const ra_tile_list *tiles) {
    return tiles->tile_count > 0 && (pass == RA_FORWARD || ra_adds_once(tiles));
}

/* The passes that `wanted` says. */
static ra_status make_passes(ra_pool *pool, const ra_setup *setup, const int *wanted, ra_staying *staying) {
    int leads = setup->rank == RA_LEADER;
    ra_staying_lists lists = {0};
    ra_cut_problem cut = ra_setup_cut(setup);
    if (leads && (wanted[RA_FORWARD] || wanted[RA_BACKWARD]))
        RA_TRY(ra_staying_tiles(pool, &cut, MOST_TILES, wanted[RA_BACKWARD], &lists));
    for (int pass = RA_FORWARD; pass <= RA_BACKWARD; pass++) {
        if (!wanted[pass] || (leads && !is_one_call((ra_pass)pass, &lists.of[pass]))) continue;
        RA_TRY(make_schedule(pool, setup, (ra_pass)pass, leads ? &lists.of[pass] : NULL, lists.pairs,
                             &staying->passes[pass]));
        staying->can[pass] = 1;
    }
    return RA_OK;
}

void ra_keys_stay(ra_pool *pool, const ra_prediction *planned, ra_staying *staying_out) {
    const ra_setup *setup = &planned->setup;
    const ra_schedule *passes[] = {&planned->forward, setup->backward ? &planned->backward : NULL};
    int wanted[2];
    *staying_out = (ra_staying){0};
    for (int pass = RA_FORWARD; pass <= RA_BACKWARD; pass++)
        wanted[pass] = passes[pass] && is_wanted(setup, passes[pass]) && !has_too_many(setup, passes[pass]);
    if (make_passes(pool, setup, wanted, staying_out) != RA_OK) *staying_out = (ra_staying){0};
}

/* ---- binding ----------------------------------------------------------------------------------------------------- */

/* Keys, values and, backward, gradients of all ranks, whose places come with each run. */
static ra_status bind_parts(ra_pool *pool, const ra_program *program, ra_bound_compute *call) {
    int ranks = program->schedule->ranks;
    call->part_count = ranks;
    call->parts = ra_pool_take(pool, ranks, sizeof *call->parts);
    if (!call->parts) return ra_no_memory();
    for (int r = 0; r < ranks; r++) call->parts[r].heads = program->own.heads;
    return RA_OK;
}

/* Whether a backward call writes all rows of dk and dv, and of dq, first. */
static void find_overwritten(const ra_program *program, ra_bound_compute *call) {
    const ra_setup *setup = program->setup;
    const ra_kernel *kernel = setup->kernel;
    int64_t keys = setup->problem.seq_k * setup->shape.heads_kv;
    int64_t queries = setup->problem.seq_q * setup->shape.heads_q;
    if (!call->prepared || program->schedule->pass != RA_BACKWARD) return;
    call->overwrite = kernel->overwrites && kernel->overwrites(call->prepared) == keys;
    call->overwrite_queries = kernel->overwrites_queries && kernel->overwrites_queries(call->prepared) == queries;
}

/* Whether the call writes outputs: o and lse, or dk and dv, where the sums are not the outputs anyway. */
static int is_finishing(const ra_program *program, const ra_bound_compute *call) {
    const ra_setup *setup = program->setup;
    int sums_apart = setup->gradient_target != RA_TARGET_OUTPUT && call->overwrite;
    if (!call->prepared || (program->schedule->pass == RA_BACKWARD && !sums_apart)) return 0;
    return setup->kernel->finishes && setup->kernel->finishes(call->prepared);
}

/* The shape of all ranks' queries together. */
static ra_shape shape_of_all(const ra_setup *setup) {
    ra_shape shape = setup->shape;
    shape.rows_q = setup->problem.seq_q;
    return shape;
}

static ra_status bind_call(ra_pool *pool, ra_program *program, ra_bound_step *bound, const ra_compute *compute) {
    int ranks = program->schedule->ranks;
    bound->computes = ra_pool_take(pool, 1, sizeof *bound->computes);
    program->call_queries = ra_pool_take(pool, ranks, sizeof *program->call_queries);
    program->call_parts = ra_pool_take(pool, ranks, sizeof *program->call_parts);
    if (!bound->computes || !program->call_queries || !program->call_parts) return ra_no_memory();
    ra_bound_compute *call = &bound->computes[0];
    bound->compute_count = 1;
    call->compute = compute;
    call->tiles = compute->tiles;
    RA_TRY(bind_parts(pool, program, call));
    ra_shape shape = shape_of_all(program->setup);
    RA_TRY(ra_program_prepare(program, &shape, call));
    find_overwritten(program, call);
    if (is_finishing(program, call)) program->finishing = call;
    program->finishing_alone = program->finishing != NULL;
    program->finishing_queries = ra_program_finishes_queries(program);
    return RA_OK;
}

ra_status ra_keys_stay_bind(ra_pool *pool, const ra_sharing *sharing, ra_program *program) {
    program->stays = 1;
    program->closing_count = 1;
    program->lenders = sharing->lenders;
    program->lent = sharing->rows;
    program->steps = ra_pool_take(pool, 2, sizeof *program->steps);
    if (!program->steps) return ra_no_memory();
    ra_bound_step *step = &program->steps[0], *closing = &program->steps[1];
    RA_TRY(ra_bind_star(pool, program, 0, RA_LEADER, 1, step));
    RA_TRY(ra_bind_star(pool, program, 1, RA_LEADER, 0, closing));
    if (program->schedule->rank != RA_LEADER) return RA_OK;
    step->waits_first = 1;
    return bind_call(pool, program, step, program->schedule->steps[0].computes);
}
