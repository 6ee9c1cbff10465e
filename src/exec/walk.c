/* The walk over a schedule's steps: pack, post, compute, wait, fold.
 *
 * On an asynchronous device packs, computes and folds are put on the caller's stream. The post lets a step's messages
 * start behind what is there so far, packs included; the wait is for the peers' posts, and puts what follows behind the
 * messages. So the device does what the CPU does, later, and the host runs ahead of it:
 *
 *     host      pack post compute wait fold │ pack post compute wait fold │ ...
 *     stream    pack ──────── compute ──────────┬ fold, pack ──── compute ──────────┬ ...
 *     messages       └──────────────────────────┘                └──────────────────┘
 */
#include "base/status.h"
#include "exec/exec.h"

/* Between the blocks of a kernel: lets messages move, and tells peers that wait for this rank that it is alive. */
static void make_progress(void *user) {
    ra_comm_progress(user);
}

ra_launch ra_program_launch(ra_program *program, void *stream) {
    return (ra_launch){.threads = program->setup->threads,
                       .scratch = program->memory + program->workspace->scratch,
                       .stream = stream};
}

/* Own rows into a slot, piece by piece. */
static void pack(const ra_walk *walk, const ra_pack *pack) {
    const ra_program *program = walk->program;
    const ra_setup *setup = program->setup;
    size_t bytes = ra_cargo_bytes(&setup->problem, RA_CARGO_KV);
    unsigned char *to = ra_program_slot(program, RA_CARGO_KV, pack->slot);
    for (int64_t i = 0; i < pack->parcel.piece_count; i++) {
        const ra_piece *piece = &pack->parcel.pieces[i];
        setup->kernel->pack(&setup->shape, to, program->own.k, program->own.v, piece->rows, piece->heads, &walk->launch);
        to += (size_t)ra_piece_elements(&setup->problem, piece) * bytes;
    }
}

/* Gradients that came home are added to this rank's rows, piece by piece. */
static void fold_home(const ra_walk *walk, const ra_fold *fold) {
    const ra_program *program = walk->program;
    const ra_setup *setup = program->setup;
    size_t bytes = ra_cargo_bytes(&setup->problem, RA_CARGO_GRAD);
    const unsigned char *from = ra_program_slot(program, RA_CARGO_GRAD, fold->from);
    for (int64_t i = 0; i < fold->parcel.piece_count; i++) {
        const ra_piece *piece = &fold->parcel.pieces[i];
        setup->kernel->add_rows(&setup->shape, program->own.dk, program->own.dv, from, piece->rows, piece->heads,
                                &walk->launch);
        from += (size_t)ra_piece_elements(&setup->problem, piece) * bytes;
    }
}

static void fold(const ra_walk *walk, const ra_fold *f) {
    const ra_program *program = walk->program;
    if (f->to == RA_OWN) {
        fold_home(walk, f);
        return;
    }
    program->setup->kernel->add(&program->setup->shape, ra_program_slot(program, RA_CARGO_GRAD, f->to),
                                ra_program_slot(program, RA_CARGO_GRAD, f->from), f->parcel.elements, &walk->launch);
}

/* What a peer's failure, heard of in passing, has made pointless is not computed. */
static void compute_step(ra_walk *walk, const ra_step *step, const ra_bound_step *bound) {
    ra_program *program = walk->program;
    int computes_here = !ra_device_is_asynchronous(program->setup->device);
    walk->launch.pulse = computes_here && program->comm->ranks > 1 ? make_progress : NULL;
    walk->launch.pulse_user = program->comm;
    for (int64_t i = 0; i < step->compute_count && program->comm->failure == RA_OK; i++) {
        const ra_compute *compute = &step->computes[i];
        if (program->schedule->pass == RA_BACKWARD && compute->grad_slot != RA_OWN && !bound->computes[i].fresh)
            program->setup->device->zero(
                program->setup->device, ra_program_slot(program, RA_CARGO_GRAD, compute->grad_slot),
                (size_t)compute->parcel.elements * ra_cargo_bytes(&program->setup->problem, RA_CARGO_GRAD),
                walk->launch.stream);
        if (compute->tiles.tile_count == 0) continue;
        walk->compute(walk, compute, &bound->computes[i]);
        ra_comm_progress(program->comm);
    }
}

ra_status ra_program_check(ra_program *program, ra_place place) {
    const ra_device *device = program->setup->device;
    if (!device->check || device->check(device) == RA_OK) return RA_OK;
    return ra_comm_lose_at(program->comm, RA_ERR_TRANSPORT, place);
}

/* Nothing is sent, and no pass is finished, that the device has refused a part of. */
ra_status ra_walk_steps(ra_walk *walk) {
    ra_program *program = walk->program;
    ra_queue queue = {program->setup->device, walk->launch.stream};
    program->traffic.bytes_sent = program->traffic.messages_sent = 0;
    for (int s = 0; s < program->schedule->step_count; s++) {
        const ra_step *step = &program->schedule->steps[s];
        const ra_bound_step *bound = &program->steps[s];
        ra_place place = {walk->name, s};
        for (int64_t i = 0; i < step->pack_count; i++) pack(walk, &step->packs[i]);
        RA_TRY(ra_program_check(program, place));
        RA_TRY(ra_comm_post(program->comm, bound->messages, bound->message_count, &queue, place));
        compute_step(walk, step, bound);
        RA_TRY(
            ra_comm_wait(program->comm, bound->messages, bound->message_count, program->setup->timeout_seconds, place));
        program->traffic.bytes_sent += bound->sent_bytes;
        program->traffic.messages_sent += bound->sent_messages;
        for (int64_t i = 0; i < step->fold_count; i++) fold(walk, &step->folds[i]);
    }
    return ra_program_check(program, (ra_place){walk->name, -1});
}
