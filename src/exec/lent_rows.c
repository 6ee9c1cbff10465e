#include "exec/lent_rows.h"

/* Kernels of devices copy rows in chunks of so many bytes where they lie in such. */
enum { CHUNK = 16 };

static int is_whole(int64_t elements, int64_t count, int64_t bytes) {
    return count == 1 || (elements > 0 && elements * bytes % CHUNK == 0);
}

static int is_in_chunks(const ra_setup *setup, ra_view view) {
    const ra_shape *shape = &setup->shape;
    int64_t bytes = (int64_t)ra_dtype_bytes(shape->dtype);
    return view.dim == 1 && (uintptr_t)view.data % CHUNK == 0 && is_whole(view.row, setup->rows_k, bytes) &&
           is_whole(view.head, shape->heads_kv, bytes) && is_whole(view.batch, shape->batch, bytes);
}

static ra_query_rows own_queries(const ra_pass_run *run) {
    const ra_queries *own = &run->queries;
    ra_query_rows rows = {.q = own->q,
                          .rows = own->shape.rows_q,
                          .state = own->state,
                          .dout = own->dout,
                          .lse = own->lse,
                          .delta = own->delta,
                          .dq = own->dq,
                          .dq_out = run->dq_out};
    if (run->results) rows.o_out = run->results->o, rows.lse_out = run->results->lse;
    return rows;
}

void ra_lend_rows(const ra_pass_run *run) {
    const ra_program *program = run->program;
    if (!program->lent) return;
    ra_lent_rows lent = {.queries = own_queries(run),
                         .keys = run->own,
                         .dk = run->dk_out,
                         .dv = run->dv_out,
                         .keys_rows = program->setup->rows_k};
    if (is_in_chunks(program->setup, run->own.k) && is_in_chunks(program->setup, run->own.v)) {
        lent.k = run->own.k;
        lent.v = run->own.v;
    }
    *program->lent = lent;
}

int ra_lends_keys(const ra_program *program) {
    return program->lent && program->lent->k.data;
}

/* Those rows and heads of a view. */
static ra_view view_within(ra_view view, ra_span rows, ra_span heads, size_t bytes) {
    int64_t first = rows.first * view.row + heads.first * view.head;
    view.data = (unsigned char *)view.data + first * (int64_t)bytes;
    view.row *= rows.stride;
    view.head *= heads.stride;
    return view;
}

ra_kv_rows ra_lent_part_rows(const ra_pass_run *run, const ra_lent_part *lent, ra_kv_rows part) {
    const ra_program *program = run->program;
    size_t bytes = ra_dtype_bytes(program->setup->shape.dtype);
    ra_lent_rows keys = {.k = run->own.k, .v = run->own.v};
    if (lent->owner != program->setup->rank) keys = *program->lenders[lent->owner].rows;
    part.k = keys.k.data ? view_within(keys.k, lent->rows, lent->heads, bytes) : lent->packed_k;
    part.v = keys.k.data ? view_within(keys.v, lent->rows, lent->heads, bytes) : lent->packed_v;
    return part;
}

const ra_query_rows *ra_lent_queries(const ra_pass_run *run) {
    const ra_program *program = run->program;
    for (int r = 0; r < program->setup->ranks; r++) program->call_queries[r] = program->lenders[r].rows->queries;
    return program->call_queries;
}

const ra_kv_rows *ra_lent_keys(const ra_pass_run *run) {
    const ra_program *program = run->program;
    for (int r = 0; r < program->setup->ranks; r++) {
        ra_lent_rows *lent = program->lenders[r].rows;
        program->call_parts[r] = lent->keys;
        lent->finished = program->finishing != NULL;
        lent->finished_queries = program->finishing_queries;
        if (!lent->finished) continue;
        program->call_parts[r].dk = lent->dk;
        program->call_parts[r].dv = lent->dv;
    }
    return program->call_parts;
}

int ra_lent_rows_are_finished(const ra_program *program) {
    return program->lent->finished;
}

int ra_lent_queries_are_finished(const ra_program *program) {
    return program->lent->finished_queries;
}
