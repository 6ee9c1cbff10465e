/* The backward pass: dQ stays and is summed over the steps; dK and dV of this rank's rows are summed from its own tiles
 * and from what comes home. All are cast once, at the end.
 *
 * Where softmaxes are kept apart (a mean of branches), each needs its own lse and delta, which the forward pass does not
 * leave behind: its states are computed once more first. */
#include "base/status.h"
#include "exec/exec.h"

#include <math.h>

static void compute(ra_walk *walk, const ra_compute *compute, const ra_bound_compute *bound) {
    const ra_setup *setup = walk->program->setup;
    ra_backward_call call = {.shape = &setup->shape,
                             .q = walk->q,
                             .dout = walk->dout,
                             .lse = walk->lse,
                             .delta = walk->delta,
                             .parts = ra_walk_parts(walk, bound),
                             .tiles = compute->tiles,
                             .prepared = bound->prepared,
                             .fresh = bound->fresh,
                             .dq = walk->dq,
                             .launch = walk->launch};
    setup->kernel->backward(&call);
}

/* dq [batch, heads_q, rows_q, dim] of the workspace, as a view. */
static ra_view kept_dq(const ra_program *program) {
    const ra_shape *shape = &program->setup->shape;
    int64_t head = shape->rows_q * shape->dim;
    return (ra_view){program->memory + program->workspace->dq, shape->heads_q * head, shape->dim, head, 1};
}

/* delta, from the output or, for several softmaxes, from their states; sets walk->lse and walk->delta. */
static ra_status prepare(ra_program *program, ra_program *forward, const ra_backward_io *io, ra_walk *walk) {
    const ra_setup *setup = program->setup;
    void *lse = program->memory + program->workspace->lse, *delta = program->memory + program->workspace->delta;
    walk->delta = delta;
    walk->lse = io->lse;
    if (setup->shape.states == 1) {
        setup->kernel->delta(&setup->shape, io->dout, io->o, delta, &walk->launch);
        return RA_OK;
    }
    ra_state state = ra_program_state(program, NULL);
    forward->own.k = io->k;
    forward->own.v = io->v;
    ra_program_tag(forward, RA_TAGS_STATES_AGAIN);
    ra_status status =
        ra_exec_states(forward, io->q, state, "the backward pass (computing the states again)", walk->launch);
    ra_program_tag(forward, RA_TAGS_FORWARD);
    if (status != RA_OK) return status;
    setup->kernel->resume(&setup->shape, state, io->dout, lse, delta, &walk->launch);
    walk->lse = lse;
    return RA_OK;
}

typedef void (*output_visit)(const ra_program *program, ra_view to, ra_view sum, int64_t rows, int64_t heads,
                             int64_t width, const ra_launch *launch);

static void for_key_outputs(const ra_walk *walk, const ra_backward_io *io, output_visit visit) {
    const ra_program *program = walk->program;
    const ra_setup *setup = program->setup;
    const ra_shape *shape = &setup->shape;
    visit(program, io->dk, program->own.dk, setup->rows_k, shape->heads_kv, shape->dim, &walk->launch);
    visit(program, io->dv, program->own.dv, setup->rows_k, shape->heads_kv, shape->dim_v, &walk->launch);
}

static void for_query_output(const ra_walk *walk, const ra_backward_io *io, output_visit visit) {
    const ra_setup *setup = walk->program->setup;
    visit(walk->program, io->dq, walk->dq, setup->rows_q, setup->shape.heads_q, setup->shape.dim, &walk->launch);
}

static void for_each_output(const ra_walk *walk, const ra_backward_io *io, output_visit visit) {
    for_query_output(walk, io, visit);
    for_key_outputs(walk, io, visit);
}

/* What is added to starts at zero, unless the kernel starts it; so do slots, when they are computed into. */
static void start_at_zero(const ra_program *program, ra_view to, ra_view sum, int64_t rows, int64_t heads, int64_t width,
                          const ra_launch *launch) {
    const ra_setup *setup = program->setup;
    size_t elements = (size_t)(setup->shape.batch * rows * heads * width);
    if (setup->in_place) setup->kernel->fill(&setup->shape, to, rows, heads, width, 0, launch);
    else setup->device->zero(setup->device, sum.data, elements * ra_shape_acc_bytes(&setup->shape), launch->stream);
}

static void store(const ra_program *program, ra_view to, ra_view sum, int64_t rows, int64_t heads, int64_t width,
                  const ra_launch *launch) {
    const ra_setup *setup = program->setup;
    if (setup->in_place && setup->shape.weight == 1) return; /* it is there already */
    setup->kernel->store(&setup->shape, to, sum, rows, heads, width, launch);
}

static void spoil(const ra_program *program, ra_view to, ra_view sum, int64_t rows, int64_t heads, int64_t width,
                  const ra_launch *launch) {
    (void)sum;
    program->setup->kernel->fill(&program->setup->shape, to, rows, heads, width, NAN, launch);
}

void ra_exec_spoil_backward(ra_program *program, const ra_backward_io *io, void *stream) {
    ra_walk walk = {.program = program, .launch = ra_program_launch(program, stream)};
    for_each_output(&walk, io, spoil);
}

ra_status ra_exec_backward(ra_program *program, ra_program *forward, const ra_backward_io *io, void *stream) {
    int in_place = program->setup->in_place;
    RA_TRY(ra_comm_check(program->comm));
    program->own.k = io->k;
    program->own.v = io->v;
    if (in_place) {
        program->own.dk = io->dk;
        program->own.dv = io->dv;
    }
    ra_walk walk = {.program = program, .launch = ra_program_launch(program, stream), .name = "the backward pass",
                    .compute = compute, .q = io->q, .dout = io->dout, .dq = in_place ? io->dq : kept_dq(program)};
    RA_TRY(prepare(program, forward, io, &walk));
    for_query_output(&walk, io, start_at_zero);
    if (!ra_program_starts_own(program)) for_key_outputs(&walk, io, start_at_zero);
    ra_status status = ra_walk_steps(&walk);
    int written = in_place;
    if (status == RA_OK && program->setup->shape.states > 1) {
        program->traffic.bytes_sent += forward->traffic.bytes_sent;
        program->traffic.messages_sent += forward->traffic.messages_sent;
    }
    walk.launch.pulse = NULL;
    if (status == RA_OK) {
        written = 1;
        for_each_output(&walk, io, store);
        status = ra_program_check(program, (ra_place){walk.name, -1});
    }
    if (status != RA_OK && written) ra_exec_spoil_backward(program, io, stream);
    return status;
}
