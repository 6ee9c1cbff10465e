/* The backward pass: dQ stays and is summed over the steps; dK and dV of this rank's rows are summed from its own tiles
 * and from what comes home. All are cast once, at the end. */
#include "base/status.h"
#include "exec/exec.h"

static void compute(ra_walk *walk, const ra_compute *compute, const ra_kv_part *parts) {
    const ra_backward_io *io = walk->io;
    const ra_program *program = walk->program;
    const ra_setup *setup = program->setup;
    ra_backward_call call = {.shape = &setup->shape,
                             .q = io->q,
                             .dout = io->dout,
                             .lse = io->lse,
                             .delta = program->memory + program->workspace->delta,
                             .parts = parts,
                             .tiles = compute->tiles,
                             .dq = program->memory + program->workspace->dq,
                             .launch = walk->launch};
    setup->kernel->backward(&call);
}

/* Everything that is added to starts at zero; slots are zeroed when they are computed into. */
static void zero_sums(const ra_program *program, void *stream) {
    const ra_setup *setup = program->setup;
    const ra_shape *shape = &setup->shape;
    size_t acc = ra_shape_acc_bytes(shape);
    size_t rows_q = (size_t)(shape->batch * shape->heads_q * setup->rows_q);
    size_t rows_k = (size_t)(shape->batch * shape->heads_kv * setup->rows_k);
    setup->device->zero(program->memory + program->workspace->dq, rows_q * (size_t)shape->dim * acc, stream);
    setup->device->zero(program->own.dk.data, rows_k * (size_t)shape->dim * acc, stream);
    setup->device->zero(program->own.dv.data, rows_k * (size_t)shape->dim_v * acc, stream);
}

/* dq [batch, heads_q, rows_q, dim] of the workspace, as a view. */
static ra_view dq_view(const ra_program *program) {
    const ra_shape *shape = &program->setup->shape;
    int64_t head = shape->rows_q * shape->dim;
    return (ra_view){program->memory + program->workspace->dq, shape->heads_q * head, shape->dim, head, 1};
}

ra_status ra_exec_backward(ra_program *program, const ra_backward_io *io, void *stream) {
    const ra_setup *setup = program->setup;
    const ra_kernel *kernel = setup->kernel;
    const ra_shape *shape = &setup->shape;
    RA_TRY(ra_comm_check(program->comm));
    program->own.k = io->k;
    program->own.v = io->v;
    ra_walk walk = {program, ra_program_launch(program, stream), "the backward pass", compute, io};
    zero_sums(program, stream);
    kernel->delta(shape, io->dout, io->o, program->memory + program->workspace->delta, &walk.launch);
    RA_TRY(ra_walk_steps(&walk));
    walk.launch.pulse = NULL;
    kernel->store(shape, io->dq, dq_view(program), setup->rows_q, shape->heads_q, shape->dim, &walk.launch);
    kernel->store(shape, io->dk, program->own.dk, setup->rows_k, shape->heads_kv, shape->dim, &walk.launch);
    kernel->store(shape, io->dv, program->own.dv, setup->rows_k, shape->heads_kv, shape->dim_v, &walk.launch);
    return RA_OK;
}
