/* The backward pass: dQ stays and is summed over the steps; dK and dV of this rank's rows are summed from its own tiles
 * and from what comes home. All are cast once, at the end; dK and dV by the kernel, where one call has the whole of
 * them and can. Where keys stay (keys_stay.h), the leader's call makes the gradients of all ranks.
 *
 * Where softmaxes are kept apart (a mean of branches), each needs its own lse and delta, which the forward pass does
 * not leave behind: its states are computed once more first. */
#include "base/status.h"
#include "exec/exec.h"
#include "exec/lent_rows.h"

#include <math.h>

typedef void (*output_visit)(const ra_program *program, ra_view to, ra_view sum, int64_t rows, int64_t heads,
                             int64_t width, const ra_context *context);

/* What is added to starts at zero, unless the kernel overwrites it; so do slots, when they are computed into. */
static void start_at_zero(const ra_program *program, ra_view to, ra_view sum, int64_t rows, int64_t heads,
                          int64_t width, const ra_context *context) {
    const ra_setup *setup = program->setup;
    size_t elements = (size_t)(setup->shape.batch * rows * heads * width);
    if (setup->gradient_target == RA_TARGET_OUTPUT)
        setup->kernel->fill(&setup->shape, to, rows, heads, width, 0, context);
    else
        setup->device->zero(setup->device, sum.data, elements * ra_shape_acc_bytes(&setup->shape), context->stream);
}

/* What visitors' queries add to dq starts at zero. */
static void begin(const ra_pass_run *run, const ra_queries *visitors) {
    const ra_setup *setup = run->program->setup;
    const ra_shape *shape = &visitors->shape;
    size_t elements = (size_t)(shape->batch * shape->heads_q * shape->rows_q * shape->dim);
    setup->device->zero(setup->device, visitors->dq.data, elements * ra_shape_acc_bytes(shape), run->context.stream);
}

/* dq [batch, heads_q, rows_q, dim] of the workspace, as a view. */
static ra_view kept_dq(const ra_program *program) {
    const ra_shape *shape = &program->setup->shape;
    int64_t head = shape->rows_q * shape->dim;
    return (ra_view){program->memory + program->workspace->dq, shape->heads_q * head, shape->dim, head, 1};
}

/* Whether a view of one element a row is an array [batch, heads_q, rows_q]. */
static int is_array(const ra_shape *shape, ra_view view) {
    ra_view array = ra_array_view(shape, NULL);
    return (shape->batch == 1 || view.batch == array.batch) && (shape->heads_q == 1 || view.head == array.head) &&
           (shape->rows_q == 1 || view.row == array.row);
}

/* The lse that was given as kernels read it: where it has other strides, a copy in the workspace. */
static const void *lse_array(const ra_pass_run *run, ra_view given) {
    const ra_program *program = run->program;
    const ra_shape *shape = &program->setup->shape;
    if (is_array(shape, given)) return given.data;
    void *array = program->memory + program->workspace->lse;
    ra_shape sums = ra_sums_shape(shape);
    program->setup->kernel->store(&sums, ra_array_view(shape, array), given, shape->rows_q, shape->heads_q, 1,
                                  &run->context);
    return array;
}

/* delta, from the output or, for several softmaxes, from their states; sets the queries' lse and delta. */
static ra_status prepare(ra_pass_run *run, const ra_program *states_again, const ra_backward_io *io, ra_traffic *sent) {
    const ra_program *program = run->program;
    const ra_setup *setup = program->setup;
    void *lse = program->memory + program->workspace->lse, *delta = program->memory + program->workspace->delta;
    run->queries.delta = delta;
    if (setup->shape.states == 1) {
        run->queries.lse = lse_array(run, io->lse);
        setup->kernel->delta(&setup->shape, io->dout, io->o, delta, &run->context);
        return RA_OK;
    }
    ra_state state = ra_program_state(program, NULL);
    const char *name = "the backward pass (computing the states again)";
    RA_TRY(ra_exec_states(states_again, io->q, io->k, io->v, state, name, run->context, sent));
    setup->kernel->carry(&setup->shape, state, io->dout, lse, delta, &run->context);
    run->queries.lse = lse;
    return RA_OK;
}

static void for_key_outputs(const ra_pass_run *run, const ra_backward_io *io, output_visit visit) {
    const ra_program *program = run->program;
    const ra_setup *setup = program->setup;
    const ra_shape *shape = &setup->shape;
    visit(program, io->dk, run->own.dk, setup->rows_k, shape->heads_kv, shape->dim, &run->context);
    visit(program, io->dv, run->own.dv, setup->rows_k, shape->heads_kv, shape->dim_v, &run->context);
}

static void for_query_output(const ra_pass_run *run, const ra_backward_io *io, output_visit visit) {
    const ra_setup *setup = run->program->setup;
    visit(run->program, io->dq, run->queries.dq, setup->rows_q, setup->shape.heads_q, setup->shape.dim, &run->context);
}

static void for_each_output(const ra_pass_run *run, const ra_backward_io *io, output_visit visit) {
    for_query_output(run, io, visit);
    for_key_outputs(run, io, visit);
}

static void store(const ra_program *program, ra_view to, ra_view sum, int64_t rows, int64_t heads, int64_t width,
                  const ra_context *context) {
    const ra_setup *setup = program->setup;
    if (setup->gradient_target == RA_TARGET_OUTPUT && setup->shape.weight == 1) return; /* it is there already */
    setup->kernel->store(&setup->shape, to, sum, rows, heads, width, context);
}

static void spoil(const ra_program *program, ra_view to, ra_view sum, int64_t rows, int64_t heads, int64_t width,
                  const ra_context *context) {
    (void)sum;
    program->setup->kernel->fill(&program->setup->shape, to, rows, heads, width, NAN, context);
}

void ra_exec_spoil_backward(const ra_program *program, const ra_backward_io *io, void *stream) {
    ra_pass_run run = {.program = program, .context = ra_program_context(program, stream)};
    for_each_output(&run, io, spoil);
}

/* all: the queries of all ranks, which the call is with; NULL: it is with `queries`. */
static void call_kernel(const ra_pass_run *run, const ra_queries *queries, const ra_kv_rows *parts,
                        const ra_bound_compute *bound, const ra_query_rows *all) {
    ra_backward_call call = {.shape = &queries->shape,
                             .q = queries->q,
                             .dout = queries->dout,
                             .lse = queries->lse,
                             .delta = queries->delta,
                             .parts = parts,
                             .tiles = bound->tiles,
                             .prepared = bound->prepared,
                             .overwrite = bound->overwrite,
                             .overwrite_queries = bound->overwrite_queries,
                             .finish = bound == run->program->finishing,
                             .finish_queries = bound == run->program->finishing && run->program->finishing_queries,
                             .dq = queries->dq,
                             .dq_out = run->dq_out,
                             .queries = all,
                             .context = run->context};
    run->program->setup->kernel->backward(&call);
}

/* How the gradients of a rank's rows come about. */
typedef struct gradient_way {
    void (*compute)(const ra_pass_run *run, const ra_queries *queries, const ra_kv_rows *parts,
                    const ra_bound_compute *bound);
    void (*start)(const ra_pass_run *run, const ra_backward_io *io);        /* before the steps */
    void (*store_open)(const ra_pass_run *run, const ra_backward_io *io);   /* while others may still add to dq */
    void (*store_closed)(const ra_pass_run *run, const ra_backward_io *io); /* when the pass has closed */
    /* Whether dk and dv of the rank's own rows are summed, or finished, in the outputs. */
    int (*has_keys_in_output)(const ra_program *program);
    int lends_outputs; /* others may have written to them when a step fails */
} gradient_way;

/* ---- by the rank's own computes ---------------------------------------------------------------------------------- */

static void compute_own(const ra_pass_run *run, const ra_queries *queries, const ra_kv_rows *parts,
                        const ra_bound_compute *bound) {
    call_kernel(run, queries, parts, bound, NULL);
}

static void start_own(const ra_pass_run *run, const ra_backward_io *io) {
    const ra_program *program = run->program;
    if (!ra_program_overwrites_own_queries(program)) for_query_output(run, io, start_at_zero);
    if (!ra_program_overwrites_own(program)) for_key_outputs(run, io, start_at_zero);
}

static void store_own_keys(const ra_pass_run *run, const ra_backward_io *io) {
    if (!run->program->finishing) for_key_outputs(run, io, store);
}

static void store_own_queries(const ra_pass_run *run, const ra_backward_io *io) {
    if (!run->program->finishing_queries) for_query_output(run, io, store);
}

static int sums_or_finishes_in_output(const ra_program *program) {
    return program->setup->gradient_target == RA_TARGET_OUTPUT || program->finishing;
}

static const gradient_way own_way = {.compute = compute_own,
                                     .start = start_own,
                                     .store_open = store_own_keys,
                                     .store_closed = store_own_queries,
                                     .has_keys_in_output = sums_or_finishes_in_output};

/* ---- by the leader's call, where keys stay (keys_stay.h) --------------------------------------------------------- */

/* The leader alone knows what its call overwrites, and sees to all ranks' gradients. */
static void start_all_at_zero(const ra_pass_run *run, const ra_bound_compute *bound) {
    const ra_program *program = run->program;
    const ra_shape *shape = &program->setup->shape;
    for (int r = 0; r < program->setup->ranks; r++) {
        const ra_lent_rows *lent = program->lenders[r].rows;
        ra_view dq = lent->queries.dq, dk = lent->keys.dk, dv = lent->keys.dv;
        if (!bound->overwrite_queries)
            start_at_zero(program, dq, dq, lent->queries.rows, shape->heads_q, shape->dim, &run->context);
        if (bound->overwrite) continue;
        start_at_zero(program, dk, dk, lent->keys_rows, shape->heads_kv, shape->dim, &run->context);
        start_at_zero(program, dv, dv, lent->keys_rows, shape->heads_kv, shape->dim_v, &run->context);
    }
}

static void compute_for_all(const ra_pass_run *run, const ra_queries *queries, const ra_kv_rows *parts,
                            const ra_bound_compute *bound) {
    (void)parts; /* they have no places before this run */
    start_all_at_zero(run, bound);
    call_kernel(run, queries, ra_lent_keys(run), bound, ra_lent_queries(run));
}

static void leave_to_leader(const ra_pass_run *run, const ra_backward_io *io) {
    (void)run;
    (void)io;
}

/* The leader writes dk and dv until the pass has closed. */
static void store_all(const ra_pass_run *run, const ra_backward_io *io) {
    if (!ra_lent_rows_are_finished(run->program)) for_key_outputs(run, io, store);
    if (!ra_lent_queries_are_finished(run->program)) for_query_output(run, io, store);
}

/* Where the leader's call finishes them, it writes to the outputs, which are lent beside the sums. */
static int sums_in_output(const ra_program *program) {
    return program->setup->gradient_target == RA_TARGET_OUTPUT;
}

static const gradient_way leaders_way = {.compute = compute_for_all,
                                         .start = leave_to_leader,
                                         .store_open = leave_to_leader,
                                         .store_closed = store_all,
                                         .has_keys_in_output = sums_in_output,
                                         .lends_outputs = 1};

static const gradient_way *way_of(const ra_program *program) {
    return program->stays ? &leaders_way : &own_way;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* The rank's own queries and keys, with what each run brings. */
static ra_pass_run run_of(const ra_program *program, const ra_backward_io *io, void *stream) {
    int in_output = program->setup->gradient_target == RA_TARGET_OUTPUT;
    ra_pass_run run = {.program = program,
                       .context = ra_program_context(program, stream),
                       .name = "the backward pass",
                       .begin = begin,
                       .compute = way_of(program)->compute,
                       .own = program->own};
    run.queries = (ra_queries){
        .shape = program->setup->shape, .q = io->q, .dout = io->dout, .dq = in_output ? io->dq : kept_dq(program)};
    run.own.k = io->k;
    run.own.v = io->v;
    run.dq_out = io->dq;
    run.dk_out = io->dk;
    run.dv_out = io->dv;
    if (way_of(program)->has_keys_in_output(program)) {
        run.own.dk = io->dk;
        run.own.dv = io->dv;
    }
    return run;
}

ra_status ra_exec_backward(const ra_program *program, const ra_program *states_again, const ra_backward_io *io,
                           void *stream, ra_traffic *sent_out) {
    const gradient_way *way = way_of(program);
    RA_TRY(ra_comm_check(program->comm));
    ra_pass_run run = run_of(program, io, stream);
    sent_out->bytes_sent = sent_out->messages_sent = 0;
    RA_TRY(prepare(&run, states_again, io, sent_out));
    way->start(&run, io);
    ra_status status = ra_run_steps(&run);
    int written = way->lends_outputs || way->has_keys_in_output(program);
    sent_out->bytes_sent += run.sent.bytes_sent;
    sent_out->messages_sent += run.sent.messages_sent;
    if (status == RA_OK) {
        written = 1;
        way->store_open(&run, io);
        status = ra_run_close(&run);
    }
    if (status == RA_OK) {
        way->store_closed(&run, io);
        status = ra_program_check(program, (ra_place){run.name, -1});
    }
    if (status != RA_OK && written) ra_exec_spoil_backward(program, io, stream);
    return status;
}
