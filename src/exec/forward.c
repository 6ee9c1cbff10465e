/* The forward pass: the state (m, l, O) is accumulated from step to step and cast once, at the end. Where keys stay
 * (keys_stay.h), the leader's call makes the states of all ranks, or what becomes of them. */
#include "base/status.h"
#include "exec/exec.h"
#include "exec/lent_rows.h"

#include <math.h>

/* all: the queries of all ranks, which the call is with; NULL: it is with `queries`. */
static void call_kernel(const ra_pass_run *run, const ra_queries *queries, const ra_kv_rows *parts,
                        const ra_bound_compute *bound, const ra_query_rows *all) {
    ra_forward_call call = {.shape = &queries->shape,
                            .q = queries->q,
                            .parts = parts,
                            .tiles = bound->tiles,
                            .prepared = bound->prepared,
                            .state = queries->state,
                            .results = bound == run->program->finishing ? run->results : NULL,
                            .queries = all,
                            .context = run->context};
    run->program->setup->kernel->forward(&call);
}

/* What visitors' queries accumulate into. */
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

/* How the state of a rank's rows comes about, and what becomes of it. */
typedef struct state_way {
    void (*compute)(const ra_pass_run *run, const ra_queries *queries, const ra_kv_rows *parts,
                    const ra_bound_compute *bound);
    void (*start)(const ra_pass_run *run);  /* before the steps */
    void (*finish)(const ra_pass_run *run); /* when the pass has closed */
    int lends_outputs;                      /* others may have written to them when a step fails */
} state_way;

static void finish_state(const ra_pass_run *run) {
    const ra_setup *setup = run->program->setup;
    setup->kernel->finish(&setup->shape, run->queries.state, run->results->o, run->results->lse, &run->context);
}

/* ---- by the rank's own computes ---------------------------------------------------------------------------------- */

static void compute_own(const ra_pass_run *run, const ra_queries *queries, const ra_kv_rows *parts,
                        const ra_bound_compute *bound) {
    call_kernel(run, queries, parts, bound, NULL);
}

static void start_own(const ra_pass_run *run) {
    if (!run->results || !run->results->begins) begin(run, &run->queries);
}

static void finish_own(const ra_pass_run *run) {
    if (!run->program->finishing) finish_state(run);
}

static const state_way own_way = {.compute = compute_own, .start = start_own, .finish = finish_own};

/* ---- by the leader's call, where keys stay (keys_stay.h) --------------------------------------------------------- */

/* The leader alone knows whether its call begins states, and sees to all ranks'. */
static void begin_all(const ra_pass_run *run) {
    const ra_program *program = run->program;
    for (int r = 0; r < program->setup->ranks; r++) {
        const ra_query_rows *rows = &program->lenders[r].rows->queries;
        ra_shape shape = program->setup->shape;
        shape.rows_q = rows->rows;
        program->setup->kernel->begin(&shape, rows->state, &run->context);
    }
}

static void compute_for_all(const ra_pass_run *run, const ra_queries *queries, const ra_kv_rows *parts,
                            const ra_bound_compute *bound) {
    (void)parts; /* they have no places before this run */
    if (!run->program->finishing) begin_all(run);
    call_kernel(run, queries, ra_lent_keys(run), bound, ra_lent_queries(run));
}

static void leave_to_leader(const ra_pass_run *run) {
    (void)run;
}

static void finish_unless_finished(const ra_pass_run *run) {
    if (!ra_lent_rows_are_finished(run->program)) finish_state(run);
}

static const state_way leaders_way = {
    .compute = compute_for_all, .start = leave_to_leader, .finish = finish_unless_finished, .lends_outputs = 1};

static const state_way *way_of(const ra_program *program) {
    return program->stays ? &leaders_way : &own_way;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* The rank's own queries and keys, with what each run brings. */
static ra_pass_run run_of(const ra_program *program, ra_view q, ra_view k, ra_view v, ra_state state,
                          const ra_forward_results *results, const char *name, ra_context context) {
    ra_pass_run run = {.program = program,
                       .context = context,
                       .name = name,
                       .begin = begin,
                       .compute = way_of(program)->compute,
                       .queries = {.shape = program->setup->shape, .q = q, .state = state},
                       .own = program->own,
                       .results = results};
    run.own.k = k;
    run.own.v = v;
    return run;
}

static ra_status run_all(ra_pass_run *run, ra_traffic *sent) {
    way_of(run->program)->start(run);
    ra_status status = ra_run_steps(run);
    if (status == RA_OK) status = ra_run_close(run);
    sent->bytes_sent += run->sent.bytes_sent;
    sent->messages_sent += run->sent.messages_sent;
    return status;
}

ra_status ra_exec_states(const ra_program *program, ra_view q, ra_view k, ra_view v, ra_state state, const char *name,
                         ra_context context, ra_traffic *sent) {
    ra_pass_run run = run_of(program, q, k, v, state, NULL, name, context);
    return run_all(&run, sent);
}

ra_status ra_exec_forward(const ra_program *program, const ra_forward_io *io, void *stream, ra_traffic *sent_out) {
    const ra_setup *setup = program->setup;
    const state_way *way = way_of(program);
    int in_output = setup->o_target == RA_TARGET_OUTPUT;
    int written = program->finishing || in_output || way->lends_outputs;
    ra_forward_results results = {.o = io->o, .lse = io->lse, .begins = program->finishing_alone};
    RA_TRY(ra_comm_check(program->comm));
    ra_state state = ra_program_state(program, in_output ? &io->o : NULL);
    ra_pass_run run =
        run_of(program, io->q, io->k, io->v, state, &results, "the forward pass", ra_program_context(program, stream));
    sent_out->bytes_sent = sent_out->messages_sent = 0;
    ra_status status = run_all(&run, sent_out);
    if (status == RA_OK) {
        written = 1;
        way->finish(&run);
        status = ra_program_check(program, (ra_place){run.name, -1});
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
