/* The forward pass: the state (m, l, O) is folded from step to step and cast once, at the end. */
#include "base/status.h"
#include "exec/exec.h"

#include <math.h>

static void compute(ra_walk *walk, const ra_compute *compute, const ra_bound_compute *bound) {
    const ra_setup *setup = walk->program->setup;
    ra_forward_call call = {.shape = &setup->shape, .q = walk->q, .parts = ra_walk_parts(walk, bound),
                            .tiles = compute->tiles, .prepared = bound->prepared, .state = walk->state, .launch = walk->launch};
    setup->kernel->forward(&call);
}

ra_state ra_program_state(const ra_program *program, const ra_view *o) {
    const ra_workspace *w = program->workspace;
    const ra_shape *shape = &program->setup->shape;
    int64_t head = shape->rows_q * shape->dim_v, batch = shape->heads_q * head;
    ra_view kept = {program->memory + w->o, batch, shape->dim_v, head, 1};
    return (ra_state){.o = o ? *o : kept, .o_state = shape->batch * batch, .m = program->memory + w->m,
                      .l = program->memory + w->l};
}

ra_status ra_exec_states(ra_program *program, ra_view q, ra_state state, const char *name, ra_launch launch) {
    const ra_setup *setup = program->setup;
    ra_walk walk = {.program = program, .launch = launch, .name = name, .compute = compute, .q = q, .state = state};
    setup->kernel->begin(&setup->shape, state, &launch);
    return ra_walk_steps(&walk);
}

ra_status ra_exec_forward(ra_program *program, const ra_forward_io *io, void *stream) {
    const ra_setup *setup = program->setup;
    const ra_shape *shape = &setup->shape;
    int in_output = setup->in_place && shape->states == 1;
    RA_TRY(ra_comm_check(program->comm));
    program->own.k = io->k;
    program->own.v = io->v;
    ra_launch launch = ra_program_launch(program, stream);
    ra_state state = ra_program_state(program, in_output ? &io->o : NULL);
    const char *name = "the forward pass";
    ra_status status = ra_exec_states(program, io->q, state, name, launch);
    int written = in_output;
    if (status == RA_OK) {
        written = 1;
        setup->kernel->finish(shape, state, io->o, io->lse, &launch);
        status = ra_program_check(program, (ra_place){name, -1});
    }
    if (status != RA_OK && written) ra_exec_spoil_forward(program, io, stream);
    return status;
}

void ra_exec_spoil_forward(ra_program *program, const ra_forward_io *io, void *stream) {
    const ra_setup *setup = program->setup;
    const ra_shape *shape = &setup->shape;
    ra_launch launch = ra_program_launch(program, stream);
    setup->kernel->fill(shape, io->o, setup->rows_q, shape->heads_q, shape->dim_v, NAN, &launch);
    if (!io->lse) return;
    int64_t rows = setup->rows_q;
    ra_view lse = {io->lse, shape->heads_q * rows, 1, rows, 1};
    ra_shape sums = *shape; /* lse has the accumulation type */
    sums.out_dtype = shape->dtype == RA_F64 ? RA_F64 : RA_F32;
    setup->kernel->fill(&sums, lse, rows, shape->heads_q, 1, NAN, &launch);
}
