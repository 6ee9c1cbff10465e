#include "exec/program.h"

#include "base/status.h"
#include "exec/keys_stay.h"
#include "exec/merge_computes.h"
#include "exec/slot_memory.h"
#include "exec/step_messages.h"

unsigned char *ra_program_slot(const ra_program *program, ra_cargo cargo, int slot) {
    return program->memory + program->workspace->slots[cargo][slot];
}

/* The place behind so many records of a slot. */
static unsigned char *behind_records(const ra_program *program, ra_cargo cargo, int slot, int64_t records) {
    const ra_problem *problem = &program->setup->problem;
    int64_t elements = records * ra_cargo_record(problem, cargo, program->schedule->pass);
    return ra_program_slot(program, cargo, slot) + (size_t)elements * ra_cargo_bytes(problem, cargo);
}

/* Records [heads, rows, batch, width] as a view. */
static ra_view view_of_records(void *data, int64_t batch, int64_t rows, int64_t width) {
    return (ra_view){data, width, batch * width, rows * batch * width, 1};
}

ra_queries ra_program_queries(const ra_program *program, int from, int to, int64_t rows, int64_t records) {
    ra_queries queries = {.shape = program->setup->shape};
    ra_shape *shape = &queries.shape;
    int64_t each = shape->batch * shape->heads_q * rows, arrays = shape->states * each;
    size_t acc = ra_shape_acc_bytes(shape);
    unsigned char *q = behind_records(program, RA_CARGO_QUERY, from, records);
    shape->rows_q = rows;
    if (program->schedule->pass == RA_FORWARD) {
        unsigned char *o = behind_records(program, RA_CARGO_STATE, to, records);
        unsigned char *m = o + (size_t)(arrays * shape->dim_v) * acc;
        queries.q = view_of_records(q, shape->batch, rows, shape->dim);
        queries.state = (ra_state){.o = {o, shape->heads_q * rows * shape->dim_v, shape->dim_v, rows * shape->dim_v, 1},
                                   .o_state = each * shape->dim_v,
                                   .m = m,
                                   .l = m + (size_t)arrays * acc};
        return queries;
    }
    unsigned char *lse = behind_records(program, RA_CARGO_STATS, from, records);
    queries.q = queries.dout = view_of_records(q, shape->batch, rows, shape->dim + shape->dim_v);
    queries.dout.data = q + (size_t)shape->dim * ra_dtype_bytes(shape->dtype);
    queries.lse = lse;
    queries.delta = lse + (size_t)arrays * acc;
    queries.dq = view_of_records(behind_records(program, RA_CARGO_DQ, to, records), shape->batch, rows, shape->dim);
    return queries;
}

/* [heads, batch, rows, width], C-order. */
static ra_view packed_view(void *data, int64_t batch, int64_t rows, int64_t width) {
    return (ra_view){data, rows * width, width, batch * rows * width, 1};
}

/* The keys and values, or their gradients, of records [heads, rows, batch, dim + dim_v] that start `offset` elements
 * into a slot; `rows` from one head to the next. */
static void record_views(const ra_shape *shape, unsigned char *slot, int64_t offset, int64_t rows, size_t bytes,
                         ra_view *k_out, ra_view *v_out) {
    int64_t each = shape->dim + shape->dim_v, record = shape->batch * each;
    *k_out = (ra_view){slot + (size_t)offset * bytes, each, record, rows * record, 1};
    *v_out = *k_out;
    v_out->data = slot + (size_t)(offset + shape->dim) * bytes;
}

/* ---- computes ---------------------------------------------------------------------------------------------------- */

/* A part: a piece of the slot, or the whole slot as one array of records, in which every head finds its keys by index.
 */
static ra_kv_rows bind_part(const ra_program *program, const ra_compute *compute, const ra_slot_memory *at,
                            int64_t piece, int64_t offset) {
    const ra_setup *setup = program->setup;
    const ra_piece *p = piece == RA_ALL_RECORDS ? NULL : &compute->parcel.pieces[piece];
    int64_t rows = p ? p->rows.count : 0;
    ra_kv_rows part = {.heads = p ? p->heads : (ra_span){0, 1, setup->shape.heads_kv}};
    record_views(&setup->shape, at->slots[RA_CARGO_KV][compute->kv_slot], offset, rows,
                 ra_cargo_bytes(&setup->problem, RA_CARGO_KV), &part.k, &part.v);
    if (program->schedule->pass == RA_BACKWARD)
        record_views(&setup->shape, at->slots[RA_CARGO_GRAD][compute->grad_slot], offset, rows,
                     ra_cargo_bytes(&setup->problem, RA_CARGO_GRAD), &part.dk, &part.dv);
    return part;
}

static ra_status bind_visitors(ra_pool *pool, const ra_program *program, const ra_visit *visit,
                               ra_queries **visitors_out) {
    *visitors_out = NULL;
    if (visit->slot == RA_OWN) return RA_OK;
    ra_queries *visitors = ra_pool_take(pool, 1, sizeof *visitors);
    if (!visitors) return ra_no_memory();
    *visitors = ra_program_queries(program, visit->slot, visit->result, visit->rows.count, visit->records);
    *visitors_out = visitors;
    return RA_OK;
}

/* The places of k and v come with each run; here they stand for the case that the owner packs. */
static ra_status bind_lent(ra_pool *pool, const ra_compute *compute, ra_bound_compute *bound) {
    bound->lent = ra_pool_take(pool, bound->part_count, sizeof *bound->lent);
    if (!bound->lent) return ra_no_memory();
    for (int64_t i = 0; i < bound->part_count; i++) {
        const ra_piece *piece = &compute->parcel.pieces[compute->parts[i]];
        ra_kv_rows *part = &bound->parts[i];
        bound->lent[i] = (ra_lent_part){compute->parcel.owner, piece->rows, piece->heads, part->k, part->v};
        part->k.data = part->v.data = NULL;
    }
    return RA_OK;
}

static ra_status bind_parts(ra_pool *pool, const ra_program *program, const ra_compute *compute,
                            const ra_slot_memory *at, ra_bound_compute *bound) {
    const ra_problem *problem = &program->setup->problem;
    if (compute->kv_slot == RA_OWN) return RA_OK;
    ra_kv_rows *parts = ra_pool_take(pool, compute->part_count, sizeof *parts);
    int64_t *offsets = ra_pool_take(pool, compute->parcel.piece_count, sizeof *offsets), offset = 0;
    if (!parts || !offsets) return ra_no_memory();
    for (int64_t i = 0; i < compute->parcel.piece_count; i++) {
        offsets[i] = offset;
        offset += ra_piece_elements(problem, &compute->parcel.pieces[i]);
    }
    for (int64_t i = 0; i < compute->part_count; i++) {
        int64_t piece = compute->parts[i];
        parts[i] = bind_part(program, compute, at, piece, piece == RA_ALL_RECORDS ? 0 : offsets[piece]);
    }
    bound->parts = parts;
    return program->lenders ? bind_lent(pool, compute, bound) : RA_OK;
}

/* Device kernels list what they need of the tiles; lists.h brings it to the device. */
ra_status ra_program_prepare(const ra_program *program, const ra_shape *shape, ra_bound_compute *bound) {
    const ra_setup *setup = program->setup;
    if (!setup->kernel->prepare || bound->tiles.tile_count == 0) return RA_OK;
    return setup->kernel->prepare(shape, &bound->tiles, bound->parts, bound->part_count, program->schedule->pass,
                                  &bound->prepared);
}

/* A call with the queries of one rank. */
static ra_status prepare_call(const ra_program *program, ra_bound_compute *bound) {
    const ra_shape *shape = bound->visitors ? &bound->visitors->shape : &program->setup->shape;
    return ra_program_prepare(program, shape, bound);
}

/* The first compute of a pass; NULL: it has none. */
static const ra_compute *first_compute(const ra_schedule *schedule) {
    for (int s = 0; s < schedule->step_count; s++)
        if (schedule->steps[s].compute_count > 0) return schedule->steps[s].computes;
    return NULL;
}

/* Whether the kernel overwrites all that the compute's dk and dv hold. Into the rank's own rows only the pass's first
 * compute can: later there may be something in them. */
int ra_program_overwrites(const ra_program *program, const ra_bound_compute *bound) {
    const ra_setup *setup = program->setup;
    const ra_shape *shape = &setup->shape;
    const ra_compute *compute = bound->compute;
    int64_t rows = setup->rows_k * shape->heads_kv;
    if (program->schedule->pass != RA_BACKWARD || !bound->prepared || !setup->kernel->overwrites) return 0;
    if (compute->grad_slot == RA_OWN && compute != first_compute(program->schedule)) return 0;
    if (compute->grad_slot != RA_OWN) rows = compute->parcel.elements / (shape->batch * (shape->dim + shape->dim_v));
    return setup->kernel->overwrites(bound->prepared) == rows;
}

/* Whether the kernel overwrites all of the rank's own dq: only the pass's first compute can. What other ranks compute
 * for these queries comes home later. */
static int overwrites_queries(const ra_program *program, const ra_bound_compute *bound) {
    const ra_setup *setup = program->setup;
    if (!bound->prepared || bound->visitors || !setup->kernel->overwrites_queries) return 0;
    if (bound->compute != first_compute(program->schedule)) return 0;
    return setup->kernel->overwrites_queries(bound->prepared) == setup->rows_q * setup->shape.heads_q;
}

/* The compute that finishes, being the pass's last: none where the kernel cannot, and where other ranks compute for
 * these queries, or this rank for theirs. */
static void choose_finishing_forward(ra_program *program) {
    const ra_kernel *kernel = program->setup->kernel;
    const ra_bound_compute *last = NULL;
    int64_t count = 0;
    for (int s = 0; s < program->schedule->step_count; s++) {
        const ra_bound_step *step = &program->steps[s];
        if (program->schedule->steps[s].reduce_count > 0) return;
        for (int64_t i = 0; i < step->compute_count; i++) {
            if (step->computes[i].visitors) return;
            if (!step->computes[i].prepared) continue; /* it has no tiles */
            last = &step->computes[i];
            count++;
        }
    }
    if (!last || !kernel->finishes(last->prepared)) return;
    program->finishing = last;
    program->finishing_alone = count == 1;
}

/* Whether gradients of this rank's keys come home in that step. */
static int reduces_own_gradients(const ra_step *step) {
    for (int64_t i = 0; i < step->reduce_count; i++)
        if (step->reduces[i].cargo == RA_CARGO_GRAD && step->reduces[i].to == RA_OWN) return 1;
    return 0;
}

/* Whether a pass is one compute of the rank's own, with nothing that comes home. */
static int has_one_compute(const ra_schedule *schedule) {
    int64_t count = 0;
    for (int s = 0; s < schedule->step_count; s++) {
        if (schedule->steps[s].reduce_count > 0) return 0;
        count += schedule->steps[s].compute_count;
    }
    return count == 1;
}

int ra_program_finishes_queries(const ra_program *program) {
    const ra_kernel *kernel = program->setup->kernel;
    const ra_bound_compute *call = program->finishing;
    return call && call->overwrite_queries && kernel->finishes_queries && kernel->finishes_queries(call->prepared);
}

/* The compute that overwrites this rank's own dk and dv, where nothing is added to them later: none where the sums are
 * the outputs anyway, and where the kernel cannot. */
static void choose_finishing_backward(ra_program *program) {
    const ra_setup *setup = program->setup;
    const ra_bound_compute *own = NULL;
    if (setup->gradient_target == RA_TARGET_OUTPUT) return;
    for (int s = 0; s < program->schedule->step_count; s++) {
        const ra_bound_step *step = &program->steps[s];
        if (reduces_own_gradients(&program->schedule->steps[s])) return;
        for (int64_t i = 0; i < step->compute_count; i++) {
            if (step->computes[i].compute->grad_slot != RA_OWN || !step->computes[i].prepared) continue;
            if (own) return;
            own = &step->computes[i];
        }
    }
    if (!own || !own->overwrite || own->parts) return;
    if (setup->kernel->finishes(own->prepared)) program->finishing = own;
    program->finishing_queries = has_one_compute(program->schedule) && ra_program_finishes_queries(program);
}

static void choose_finishing(ra_program *program) {
    if (!program->setup->kernel->finishes) return;
    if (program->schedule->pass == RA_FORWARD)
        choose_finishing_forward(program);
    else
        choose_finishing_backward(program);
}

/* As it is bound; NULL: there is none. */
static const ra_bound_compute *first_bound(const ra_program *program) {
    for (int s = 0; s < program->schedule->step_count; s++)
        if (program->steps[s].compute_count > 0) return program->steps[s].computes;
    return NULL;
}

int ra_program_overwrites_own(const ra_program *program) {
    const ra_bound_compute *first = first_bound(program);
    return first && first->compute->grad_slot == RA_OWN && first->overwrite;
}

int ra_program_overwrites_own_queries(const ra_program *program) {
    const ra_bound_compute *first = first_bound(program);
    return first && first->overwrite_queries;
}

/* All but what the kernel makes of it. */
static ra_status bind_compute(ra_pool *pool, const ra_program *program, const ra_compute *compute,
                              const ra_slot_memory *at, ra_bound_compute *bound) {
    bound->compute = compute;
    bound->tiles = compute->tiles;
    bound->part_count = compute->kv_slot == RA_OWN ? 1 : compute->part_count;
    RA_TRY(bind_visitors(pool, program, &compute->visit, &bound->visitors));
    return bind_parts(pool, program, compute, at, bound);
}

static ra_status finish_compute(const ra_program *program, const ra_step *step, const ra_slot_memory *at,
                                ra_bound_compute *bound) {
    const ra_compute *compute = bound->compute;
    RA_TRY(prepare_call(program, bound));
    bound->overwrite_queries = overwrites_queries(program, bound);
    if (at->shared[RA_CARGO_GRAD] && ra_step_sum_of(step, compute)) return RA_OK; /* it adds to what is there */
    bound->overwrite = ra_program_overwrites(program, bound);
    if (program->schedule->pass == RA_BACKWARD && compute->grad_slot != RA_OWN && !bound->overwrite)
        bound->zeroed = at->slots[RA_CARGO_GRAD][compute->grad_slot];
    return RA_OK;
}

static ra_status bind_computes(ra_pool *pool, const ra_program *program, const ra_step *step, const ra_slot_memory *at,
                               ra_bound_step *bound) {
    bound->computes = ra_pool_take(pool, step->compute_count, sizeof *bound->computes);
    if (!bound->computes) return ra_no_memory();
    bound->compute_count = step->compute_count;
    for (int64_t i = 0; i < step->compute_count; i++)
        RA_TRY(bind_compute(pool, program, &step->computes[i], at, &bound->computes[i]));
    for (int64_t i = 0; i < bound->compute_count && program->schedule->pass == RA_BACKWARD; i++)
        RA_TRY(finish_compute(program, step, at, &bound->computes[i]));
    return RA_OK;
}

/* Forward: which computes are one call, then what the kernel makes of each. */
static ra_status bind_calls(ra_pool *pool, ra_program *program, int keys_are_shared) {
    if (program->schedule->pass != RA_FORWARD) return RA_OK;
    if (keys_are_shared) RA_TRY(ra_gather_computes(pool, program));
    for (int s = 0; s < program->schedule->step_count; s++) {
        ra_bound_step *bound = &program->steps[s];
        RA_TRY(ra_merge_computes(pool, bound));
        for (int64_t i = 0; i < bound->compute_count; i++) RA_TRY(prepare_call(program, &bound->computes[i]));
    }
    return RA_OK;
}

/* Memory for the parts of that call, of those whose parts come with each run, which has most. */
static ra_status take_call_parts(ra_pool *pool, ra_program *program) {
    int64_t most = 0;
    for (int s = 0; s < program->schedule->step_count; s++)
        for (int64_t i = 0; i < program->steps[s].compute_count; i++) {
            const ra_bound_compute *c = &program->steps[s].computes[i];
            if (c->lent && c->part_count > most) most = c->part_count;
        }
    program->call_parts = ra_pool_take(pool, most, sizeof *program->call_parts);
    return program->call_parts ? RA_OK : ra_no_memory();
}

/* Whether a compute of the step has added to what the reduce would add. */
static int is_added_already(const ra_step *step, const ra_reduce *reduce, const ra_slot_memory *at) {
    if (reduce->cargo != RA_CARGO_GRAD || !at->shared[RA_CARGO_GRAD]) return 0;
    for (int64_t i = 0; i < step->compute_count; i++)
        if (step->computes[i].grad_slot != RA_OWN && step->computes[i].grad_slot == reduce->to) return 1;
    return 0;
}

static ra_status bind_reduces(ra_pool *pool, const ra_step *step, const ra_slot_memory *at, ra_bound_step *bound) {
    bound->reduced = ra_pool_take(pool, step->reduce_count, sizeof *bound->reduced);
    if (!bound->reduced) return ra_no_memory();
    for (int64_t i = 0; i < step->reduce_count; i++) {
        const ra_reduce *r = &step->reduces[i];
        bound->reduced[i] = is_added_already(step, r, at) ? NULL : at->slots[r->cargo][r->from];
        bound->waits_first |= !bound->reduced[i];
    }
    return RA_OK;
}

static ra_status bind_step(ra_pool *pool, const ra_program *program, const ra_sharing *sharing, const ra_step *step,
                           ra_slot_memory *at, ra_bound_step *bound) {
    RA_TRY(ra_bind_messages(pool, program, step, at, bound));
    if (program->opening_count) bound->message_count = 0; /* counted as sent, and told of by the opening */
    ra_slot_memory_pack(program, sharing, step, at);
    RA_TRY(bind_computes(pool, program, step, at, bound));
    ra_slot_memory_receive(program, sharing, step, at);
    return bind_reduces(pool, step, at, bound);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static int shares_any(const ra_slot_memory *at) {
    int any = 0;
    for (int c = 0; c < RA_CARGO_COUNT; c++) any |= at->shared[c];
    return any;
}

/* Of messages: those of the steps, and those without data. */
static int group_count(const ra_program *program) {
    return program->schedule->step_count + program->closing_count + program->opening_count;
}

/* Steps in which rows travel, or are used where other ranks have them, step by step. */
static ra_status bind_steps(ra_pool *pool, const ra_sharing *sharing, ra_program *program) {
    const ra_schedule *schedule = program->schedule;
    ra_slot_memory at = {0};
    RA_TRY(ra_slot_memory_start(pool, program, sharing, &at));
    /* a rank's memory may be used by ranks that it has no message from, so all wait for all */
    if (shares_any(&at)) program->closing_count = ra_rounds_of(schedule->ranks);
    if (at.shared[RA_CARGO_KV] && sharing->in_place) {
        program->lenders = sharing->lenders;
        program->lent = sharing->rows;
    }
    if (schedule->pass == RA_FORWARD && at.shared[RA_CARGO_KV] && sharing->opens)
        program->opening_count = ra_rounds_of(schedule->ranks);
    program->steps = ra_pool_take(pool, group_count(program), sizeof *program->steps);
    if (!program->steps) return ra_no_memory();
    for (int s = 0; s < schedule->step_count; s++)
        RA_TRY(bind_step(pool, program, sharing, &schedule->steps[s], &at, &program->steps[s]));
    int closing = schedule->step_count, opening = closing + program->closing_count;
    for (int i = 0; i < program->closing_count; i++)
        RA_TRY(ra_bind_round(pool, program, closing + i, i, &program->steps[closing + i]));
    for (int i = 0; i < program->opening_count; i++)
        RA_TRY(ra_bind_round(pool, program, opening + i, i, &program->steps[opening + i]));
    RA_TRY(bind_calls(pool, program, at.shared[RA_CARGO_KV]));
    choose_finishing(program);
    return take_call_parts(pool, program);
}

ra_status ra_program_bind(ra_pool *pool, const ra_setup *setup, const ra_workspace *workspace, void *memory,
                          const ra_schedule *schedule, const ra_sharing *sharing, ra_comm *comm,
                          ra_program *program_out) {
    const ra_shape *shape = &setup->shape;
    ra_program program = {.schedule = schedule, .setup = setup, .workspace = workspace, .memory = memory, .comm = comm};
    program.own.heads = (ra_span){0, 1, shape->heads_kv};
    if (schedule->pass == RA_BACKWARD && setup->gradient_target == RA_TARGET_WORKSPACE) {
        program.own.dk = packed_view(program.memory + workspace->own_dk, shape->batch, setup->rows_k, shape->dim);
        program.own.dv = packed_view(program.memory + workspace->own_dv, shape->batch, setup->rows_k, shape->dim_v);
    }
    *program_out = program;
    if (schedule == sharing->stays[schedule->pass]) return ra_keys_stay_bind(pool, sharing, program_out);
    return bind_steps(pool, sharing, program_out);
}

ra_status ra_program_bind_again(ra_pool *pool, const ra_program *program, ra_pass_tags pass, ra_program *program_out) {
    int count = group_count(program);
    ra_bound_step *steps = ra_pool_take(pool, count, sizeof *steps);
    if (!steps) return ra_no_memory();
    for (int s = 0; s < count; s++) {
        steps[s] = program->steps[s];
        RA_TRY(ra_bind_messages_again(pool, &program->steps[s], pass, &steps[s]));
    }
    *program_out = *program;
    program_out->steps = steps;
    return RA_OK;
}

void ra_program_release(ra_program *program) {
    for (int s = 0; program->steps && s < program->schedule->step_count; s++)
        for (int64_t i = 0; i < program->steps[s].compute_count; i++)
            if (program->steps[s].computes[i].prepared)
                program->setup->kernel->discard(program->steps[s].computes[i].prepared);
}

void ra_program_group_size(const ra_program *program, ra_group_size *most) {
    for (int s = 0; program->steps && s < group_count(program); s++) {
        const ra_bound_step *bound = &program->steps[s];
        size_t bytes[2] = {0};
        for (int i = 0; i < bound->message_count; i++) bytes[!bound->messages[i].is_send] += bound->messages[i].bytes;
        if (bound->message_count > most->messages) most->messages = bound->message_count;
        if (bytes[0] > most->send_bytes) most->send_bytes = bytes[0];
        if (bytes[1] > most->receive_bytes) most->receive_bytes = bytes[1];
    }
}
