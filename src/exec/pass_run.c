/* The run of a pass over its schedule's steps: pack, post, compute, wait, reduce. Where gradients are added to sums
 * that arrive in the same step, the wait comes before the compute.
 *
 * On an asynchronous device packs, computes and reduces are put on the caller's stream. The post lets a step's messages
 * start behind what is there so far, packs included; the wait is for the peers' posts, and puts what follows behind the
 * messages. So the device does what the CPU does, later, and the host runs ahead of it:
 *
 *     host      pack post compute wait reduce │ pack post compute wait reduce │ ...
 *     stream    pack ──────── compute ────────────┬ reduce, pack ──── compute ────────────┬ ...
 *     messages       └────────────────────────────┘                  └────────────────────┘
 */
#include "base/status.h"
#include "exec/exec.h"
#include "exec/lent_rows.h"

/* Between the blocks of a kernel: lets messages move, and tells peers that wait for this rank that it is alive. Returns
 * nonzero when a peer has failed, so that the kernel stops. */
static int make_progress(void *user) {
    ra_comm *comm = user;
    ra_comm_progress(comm);
    return ra_comm_has_failed(comm);
}

ra_context ra_program_context(const ra_program *program, void *stream) {
    return (ra_context){
        .threads = program->setup->threads, .scratch = program->memory + program->workspace->scratch, .stream = stream};
}

/* The shape by which row operations see records of `dim` elements instead of keys with values. */
static ra_shape narrow_shape(const ra_shape *shape, int64_t dim) {
    ra_shape narrow = *shape;
    narrow.dim = dim;
    narrow.dim_v = 0;
    return narrow;
}

/* Rows of an array [states, batch, heads_q, rows_q] of the accumulation type to [states, batch, heads_q, rows.count].
 */
static void pack_array(const ra_pass_run *run, unsigned char *to, const void *array, ra_span rows) {
    const ra_setup *setup = run->program->setup;
    const ra_shape *shape = &setup->shape;
    size_t acc = ra_shape_acc_bytes(shape);
    ra_shape one = narrow_shape(shape, 1);
    one.batch = 1;
    one.dtype = shape->dtype == RA_F64 ? RA_F64 : RA_F32;
    for (int64_t i = 0; i < shape->states * shape->batch; i++) {
        int64_t band = i * shape->heads_q;
        ra_view from = {(unsigned char *)array + (size_t)(band * shape->rows_q) * acc, 0, 1, shape->rows_q, 1};
        setup->kernel->pack(&one, to + (size_t)(band * rows.count) * acc, from, from, rows,
                            (ra_span){0, 1, shape->heads_q}, &run->context);
    }
}

/* Own rows of one piece into a slot. */
static void pack_piece(const ra_pass_run *run, ra_cargo cargo, unsigned char *to, const ra_piece *piece) {
    const ra_program *program = run->program;
    const ra_setup *setup = program->setup;
    const ra_queries *own = &run->queries;
    ra_shape queries_only = narrow_shape(&setup->shape, setup->shape.dim);
    if (cargo == RA_CARGO_KV) {
        setup->kernel->pack(&setup->shape, to, run->own.k, run->own.v, piece->rows, piece->heads, &run->context);
    } else if (cargo == RA_CARGO_QUERY && program->schedule->pass == RA_FORWARD) {
        setup->kernel->pack(&queries_only, to, own->q, own->q, piece->rows, piece->heads, &run->context);
    } else if (cargo == RA_CARGO_QUERY) {
        setup->kernel->pack(&setup->shape, to, own->q, own->dout, piece->rows, piece->heads, &run->context);
    } else {
        int64_t elements = setup->shape.states * setup->shape.batch * ra_piece_records(piece);
        pack_array(run, to, own->lse, piece->rows);
        pack_array(run, to + (size_t)elements * ra_shape_acc_bytes(&setup->shape), own->delta, piece->rows);
    }
}

/* Bytes of a piece as that cargo. */
static size_t piece_bytes(const ra_program *program, ra_cargo cargo, const ra_piece *piece) {
    const ra_problem *problem = &program->setup->problem;
    int64_t elements = ra_piece_records(piece) * ra_cargo_record(problem, cargo, program->schedule->pass);
    return (size_t)elements * ra_cargo_bytes(problem, cargo);
}

static void pack(const ra_pass_run *run, const ra_pack *pack) {
    if (pack->cargo == RA_CARGO_KV && ra_lends_keys(run->program)) return;
    unsigned char *to = ra_program_slot(run->program, pack->cargo, pack->slot);
    for (int64_t i = 0; i < pack->parcel.piece_count; i++) {
        pack_piece(run, pack->cargo, to, &pack->parcel.pieces[i]);
        to += piece_bytes(run->program, pack->cargo, &pack->parcel.pieces[i]);
    }
}

/* What came home of one piece goes to this rank's rows: gradients are added, states are merged. */
static void reduce_piece(const ra_pass_run *run, const ra_reduce *reduce, const unsigned char *from,
                         const ra_piece *piece, int64_t records) {
    const ra_setup *setup = run->program->setup;
    const ra_queries *own = &run->queries;
    ra_shape dq_only = narrow_shape(&setup->shape, setup->shape.dim);
    if (reduce->cargo == RA_CARGO_GRAD) {
        setup->kernel->add_rows(&setup->shape, run->own.dk, run->own.dv, from, piece->rows, piece->heads,
                                &run->context);
    } else if (reduce->cargo == RA_CARGO_DQ) {
        setup->kernel->add_rows(&dq_only, own->dq, own->dq, from, piece->rows, piece->heads, &run->context);
    } else {
        ra_queries came = ra_program_queries(run->program, 0, reduce->from, piece->rows.count, records);
        setup->kernel->merge(&setup->shape, own->state, piece->rows, came.state, &run->context);
    }
}

static void reduce_home(const ra_pass_run *run, const ra_reduce *reduce, const unsigned char *from) {
    for (int64_t i = 0; i < reduce->parcel.piece_count; i++) {
        reduce_piece(run, reduce, from, &reduce->parcel.pieces[i], ra_parcel_records(&reduce->parcel, i));
        from += piece_bytes(run->program, reduce->cargo, &reduce->parcel.pieces[i]);
    }
}

static void reduce(const ra_pass_run *run, const ra_reduce *r, const unsigned char *from) {
    const ra_program *program = run->program;
    if (!from) return; /* a compute has added to it */
    if (r->to == RA_OWN) {
        reduce_home(run, r, from);
        return;
    }
    program->setup->kernel->add(&program->setup->shape, ra_program_slot(program, r->cargo, r->to), from,
                                r->parcel.elements, &run->context);
}

/* The keys and values of a call: the rank's own, those of slots, or those that are lent. */
static const ra_kv_rows *parts_of(const ra_pass_run *run, const ra_bound_compute *bound) {
    if (!bound->parts) return &run->own;
    if (!bound->lent) return bound->parts;
    for (int64_t i = 0; i < bound->part_count; i++)
        run->program->call_parts[i] = ra_lent_part_rows(run, &bound->lent[i], bound->parts[i]);
    return run->program->call_parts;
}

static void compute_one(const ra_pass_run *run, const ra_bound_compute *bound) {
    const ra_program *program = run->program;
    const ra_setup *setup = program->setup;
    if (bound->zeroed)
        setup->device->zero(setup->device, bound->zeroed,
                            (size_t)bound->compute->parcel.elements * ra_cargo_bytes(&setup->problem, RA_CARGO_GRAD),
                            run->context.stream);
    if (bound->visitors) run->begin(run, bound->visitors);
    if (bound->tiles.tile_count == 0) return;
    run->compute(run, bound->visitors ? bound->visitors : &run->queries, parts_of(run, bound), bound);
}

/* Once a peer's failure is known, which progress between blocks may find, the rest of the step is not computed. */
static void compute_all(ra_pass_run *run, const ra_bound_step *bound) {
    const ra_program *program = run->program;
    int computes_here = !ra_device_is_asynchronous(program->setup->device);
    int stop = 0;
    run->context.progress = computes_here && ra_comm_ranks(program->comm) > 1 ? make_progress : NULL;
    run->context.progress_user = program->comm;
    run->context.stop = &stop;
    for (int64_t i = 0; i < bound->compute_count && !ra_comm_has_failed(program->comm); i++) {
        compute_one(run, &bound->computes[i]);
        ra_comm_progress(program->comm);
    }
    run->context.progress = NULL;
    run->context.stop = NULL;
}

ra_status ra_program_check(const ra_program *program, ra_place place) {
    const ra_device *device = program->setup->device;
    if (!device->check || device->check(device) == RA_OK) return RA_OK;
    return ra_comm_lose_at(program->comm, RA_ERR_DEVICE, place);
}

/* What a step puts on the stream may use other ranks' memory. */
static ra_status borrow(const ra_pass_run *run, ra_place place) {
    const ra_program *program = run->program;
    return program->closing_count ? ra_comm_borrow(program->comm, place) : RA_OK;
}

static ra_status give_back(const ra_pass_run *run, ra_place place) {
    const ra_program *program = run->program;
    return program->closing_count ? ra_comm_give_back(program->comm, run->context.stream, place) : RA_OK;
}

static ra_status compute_step(ra_pass_run *run, const ra_bound_step *bound, ra_place place) {
    if (bound->compute_count == 0) return RA_OK;
    RA_TRY(borrow(run, place));
    compute_all(run, bound);
    return give_back(run, place);
}

static ra_status wait_for(const ra_pass_run *run, const ra_bound_step *bound, ra_place place) {
    const ra_program *program = run->program;
    return ra_comm_wait(program->comm, bound->messages, bound->message_count, program->setup->timeout_seconds, place);
}

static ra_status post(const ra_pass_run *run, const ra_bound_step *bound, ra_place place) {
    const ra_program *program = run->program;
    ra_queue queue = {program->setup->device, run->context.stream};
    return ra_comm_post(program->comm, bound->messages, bound->message_count, &queue, place);
}

/* Groups without data, the first of them at `first` of the program's. */
static ra_status run_rounds(const ra_pass_run *run, int first, int count, ra_place place) {
    const ra_program *program = run->program;
    for (int i = 0; i < count; i++) {
        RA_TRY(post(run, &program->steps[first + i], place));
        RA_TRY(wait_for(run, &program->steps[first + i], place));
    }
    return RA_OK;
}

/* Behind what the first step packs: all of it, where there is an opening. */
static ra_status open_run(const ra_pass_run *run, ra_place place) {
    const ra_program *program = run->program;
    int first = program->schedule->step_count + program->closing_count;
    return place.step == 0 ? run_rounds(run, first, program->opening_count, place) : RA_OK;
}

/* A step sends nothing, and a pass does not finish, after the device has refused any of its work. */
static ra_status run_step(ra_pass_run *run, const ra_step *step, const ra_bound_step *bound, ra_place place) {
    const ra_program *program = run->program;
    for (int64_t i = 0; i < step->pack_count; i++) pack(run, &step->packs[i]);
    RA_TRY(ra_program_check(program, place));
    RA_TRY(open_run(run, place));
    RA_TRY(post(run, bound, place));
    if (bound->waits_first)
        RA_TRY(wait_for(run, bound, place));
    else
        ra_comm_watch(program->comm, bound->messages, bound->message_count, program->setup->timeout_seconds);
    RA_TRY(compute_step(run, bound, place));
    if (!bound->waits_first) RA_TRY(wait_for(run, bound, place));
    run->sent.bytes_sent += bound->sent_bytes;
    run->sent.messages_sent += bound->sent_messages;
    if (step->reduce_count == 0) return RA_OK;
    RA_TRY(borrow(run, place));
    for (int64_t i = 0; i < step->reduce_count; i++) reduce(run, &step->reduces[i], bound->reduced[i]);
    return give_back(run, place);
}

ra_status ra_run_close(const ra_pass_run *run) {
    const ra_program *program = run->program;
    RA_TRY(run_rounds(run, program->schedule->step_count, program->closing_count, (ra_place){run->name, -1}));
    if (program->closing_count) ra_comm_settle(program->comm);
    return RA_OK;
}

ra_status ra_run_steps(ra_pass_run *run) {
    const ra_program *program = run->program;
    ra_lend_rows(run);
    for (int s = 0; s < program->schedule->step_count; s++)
        RA_TRY(run_step(run, &program->schedule->steps[s], &program->steps[s], (ra_place){run->name, s}));
    return ra_program_check(program, (ra_place){run->name, -1});
}
