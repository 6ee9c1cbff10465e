/* The forward pass: the state (m, l, O) is accumulated from step to step and cast once, at the end. */
#include "base/status.h"
#include "exec/exec.h"

#include <math.h>

static void compute(const ra_pass_run *run, const ra_queries *queries, const ra_kv_rows *parts,
                    const ra_bound_compute *bound) {
    ra_forward_call call = {.shape = &queries->shape,
                            .q = queries->q,
                            .parts = parts,
                            .tiles = bound->tiles,
                            .prepared = bound->prepared,
                            .state = queries->state,
                            .results = bound == run->program->finishing ? run->results : NULL,
                            .context = run->context};
    run->program->setup->kernel->forward(&call);
}

static void begin(const ra_pass_run *run, const ra_queries *visitors) {
    run->program->setup->kernel->begin(&visitors->shape, visitors->state, &run->context);
}

ra_state ra_program_state(const ra_program *program, const ra_view *o) {
    const ra_workspace *w = program->workspace;
    const ra_shape *shape = &program->setup->shape;
    int64_t head = shape->rows_q * shape->dim_v, batch = shape->heads_q * head;
    ra_view kept = {program->memory + w->o, batch, shape->dim_v, head, 1};
    return (ra_state){
        .o = o ? *o : kept, .o_state = shape->batch * batch, .m = program->memory + w->m, .l = program->memory + w->l};
}

ra_status ra_exec_states(const ra_program *program, ra_view q, ra_view k, ra_view v, ra_state state,
                         const ra_forward_results *results, const char *name, ra_context context, ra_traffic *sent) {
    const ra_setup *setup = program->setup;
    ra_pass_run run = {.program = program,
                       .context = context,
                       .name = name,
                       .begin = begin,
                       .compute = compute,
                       .queries = {.shape = setup->shape, .q = q, .state = state},
                       .own = program->own,
                       .results = results};
    run.own.k = k;
    run.own.v = v;
    if (!results || !results->begins) setup->kernel->begin(&setup->shape, state, &context);
    ra_status status = ra_run_steps(&run);
    if (status == RA_OK) status = ra_run_close(&run);
    sent->bytes_sent += run.sent.bytes_sent;
    sent->messages_sent += run.sent.messages_sent;
    return status;
}

ra_status ra_exec_forward(const ra_program *program, const ra_forward_io *io, void *stream, ra_traffic *sent_out) {
    const ra_setup *setup = program->setup;
    int finishing = program->finishing != NULL;
    ra_forward_results results = {.o = io->o, .lse = io->lse, .begins = program->finishing_alone};
    int written = finishing || setup->o_target == RA_TARGET_OUTPUT;
    RA_TRY(ra_comm_check(program->comm));
    ra_context context = ra_program_context(program, stream);
    ra_state state = ra_program_state(program, setup->o_target == RA_TARGET_OUTPUT ? &io->o : NULL);
    const char *name = "the forward pass";
    sent_out->bytes_sent = sent_out->messages_sent = 0;
    ra_status status =
        ra_exec_states(program, io->q, io->k, io->v, state, finishing ? &results : NULL, name, context, sent_out);
    if (status == RA_OK) {
        written = 1;
        if (!finishing) setup->kernel->finish(&setup->shape, state, io->o, io->lse, &context);
        status = ra_program_check(program, (ra_place){name, -1});
    }
    if (status != RA_OK && written) ra_exec_spoil_forward(program, io, stream);
    return status;
}

ra_shape ra_sums_shape(const ra_shape *shape) {
    ra_shape sums = *shape;
    sums.out_dtype = shape->dtype == RA_F64 ? RA_F64 : RA_F32;
    sums.weight = 1;
    return sums;
}

void ra_exec_spoil_forward(const ra_program *program, const ra_forward_io *io, void *stream) {
    const ra_setup *setup = program->setup;
    const ra_shape *shape = &setup->shape;
    ra_context context = ra_program_context(program, stream);
    setup->kernel->fill(shape, io->o, setup->rows_q, shape->heads_q, shape->dim_v, NAN, &context);
    ra_shape sums = ra_sums_shape(shape);
    if (io->lse.data) setup->kernel->fill(&sums, io->lse, setup->rows_q, shape->heads_q, 1, NAN, &context);
}
