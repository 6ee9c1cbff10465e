/* The forward pass: the state (m, l, O) is folded from step to step and cast once, at the end. */
#include "base/status.h"
#include "exec/exec.h"

static ra_state state_of(const ra_program *program) {
    const ra_workspace *w = program->workspace;
    return (ra_state){program->memory + w->o, program->memory + w->m, program->memory + w->l};
}

static void compute(ra_walk *walk, const ra_compute *compute, const ra_kv_part *parts) {
    const ra_forward_io *io = walk->io;
    const ra_setup *setup = walk->program->setup;
    ra_forward_call call = {.shape = &setup->shape, .q = io->q, .parts = parts, .tiles = compute->tiles,
                            .state = state_of(walk->program), .launch = walk->launch};
    setup->kernel->forward(&call);
}

ra_status ra_exec_forward(ra_program *program, const ra_forward_io *io, void *stream) {
    const ra_setup *setup = program->setup;
    RA_TRY(ra_comm_check(program->comm));
    program->own.k = io->k;
    program->own.v = io->v;
    ra_walk walk = {program, ra_program_launch(program, stream), "the forward pass", compute, io};
    setup->kernel->begin(&setup->shape, state_of(program), &walk.launch);
    RA_TRY(ra_walk_steps(&walk));
    walk.launch.pulse = NULL;
    setup->kernel->finish(&setup->shape, state_of(program), io->o, io->lse, &walk.launch);
    return RA_OK;
}
