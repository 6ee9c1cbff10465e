#include "arrays.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* Adds an array of count elements to the rank's; at least one byte, so that NULL always means no memory. */
static ra_status add(rank_arrays *arrays, int64_t count, ra_dtype dtype, void **array_out) {
    size_t bytes = (size_t)count * ra_dtype_bytes(dtype), rounded = (bytes / 64 + 1) * 64;
    *array_out = aligned_alloc(64, rounded);
    if (!*array_out) return ra_fail(RA_ERR_MEMORY, "no memory for an array of %zu bytes; use more ranks", bytes);
    memset(*array_out, 0, rounded);
    arrays->bytes += (int64_t)bytes;
    return RA_OK;
}

static ra_status find_rows(ra_layout layout, int64_t n, int ranks, int rank, int64_t *rows_out,
                           int64_t **positions_out) {
    *rows_out = ra_layout_rows(layout, n, ranks, rank);
    if (*rows_out < 0) CLI_REFUSE("rank %d of %d cannot have rows of a sequence of %lld", rank, ranks, (long long)n);
    *positions_out = malloc((size_t)(*rows_out + 1) * sizeof **positions_out);
    if (!*positions_out) return ra_fail(RA_ERR_MEMORY, "no memory for %lld positions", (long long)*rows_out);
    return ra_layout_positions(layout, n, ranks, rank, *positions_out);
}

static ra_status add_all(const ra_problem *p, int backward, rank_arrays *a) {
    int64_t q = p->batch * a->rows_q * p->heads_q, k = p->batch * a->rows_k * p->heads_kv;
    CLI_TRY(add(a, q * p->dim, p->dtype, &a->q));
    CLI_TRY(add(a, k * p->dim, p->dtype, &a->k));
    CLI_TRY(add(a, k * p->dim_v, p->dtype, &a->v));
    CLI_TRY(add(a, q * p->dim_v, p->out_dtype, &a->o));
    CLI_TRY(add(a, q, p->dtype == RA_F64 ? RA_F64 : RA_F32, &a->lse));
    if (!backward) return RA_OK;
    CLI_TRY(add(a, q * p->dim_v, p->dtype, &a->dout));
    CLI_TRY(add(a, q * p->dim, p->out_dtype, &a->dq));
    CLI_TRY(add(a, k * p->dim, p->out_dtype, &a->dk));
    return add(a, k * p->dim_v, p->out_dtype, &a->dv);
}

ra_status arrays_create(const ra_problem *problem, const ra_options *how, int ranks, int rank,
                        rank_arrays *arrays_out) {
    *arrays_out = (rank_arrays){.layout = how->layout};
    if (how->layout == RA_LAYOUT_AUTO) CLI_TRY(ra_layout_resolve(problem, how, ranks, &arrays_out->layout));
    CLI_TRY(find_rows(arrays_out->layout, problem->seq_q, ranks, rank, &arrays_out->rows_q, &arrays_out->positions_q));
    CLI_TRY(find_rows(arrays_out->layout, problem->seq_k, ranks, rank, &arrays_out->rows_k, &arrays_out->positions_k));
    return add_all(problem, how->backward, arrays_out);
}

ra_status arrays_add_gradients(const ra_problem *p, rank_arrays *a) {
    int64_t q = p->batch * a->rows_q * p->heads_q, k = p->batch * a->rows_k * p->heads_kv;
    CLI_TRY(add(a, q * p->dim_v, p->dtype, &a->dout));
    CLI_TRY(add(a, k * p->dim, p->out_dtype, &a->dk));
    CLI_TRY(add(a, k * p->dim_v, p->out_dtype, &a->dv));
    if (p->dim != p->dim_v) return add(a, q * p->dim, p->out_dtype, &a->dq);
    a->dq = a->o;
    return RA_OK;
}

void arrays_free(rank_arrays *arrays) {
    if (arrays->dq == arrays->o) arrays->dq = NULL;
    void *all[] = {arrays->positions_q, arrays->positions_k, arrays->q,  arrays->k,  arrays->v, arrays->o,
                   arrays->lse,         arrays->dout,        arrays->dq, arrays->dk, arrays->dv};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) free(all[i]);
    *arrays = (rank_arrays){0};
}

ra_tensors arrays_tensors(const rank_arrays *arrays) {
    ra_tensors tensors = RA_TENSORS_INIT;
    tensors.q.data = arrays->q;
    tensors.k.data = arrays->k;
    tensors.v.data = arrays->v;
    tensors.o.data = arrays->o;
    tensors.lse = arrays->lse;
    return tensors;
}

ra_gradients arrays_gradients(const rank_arrays *arrays) {
    ra_gradients gradients = RA_GRADIENTS_INIT;
    gradients.q.data = arrays->q;
    gradients.k.data = arrays->k;
    gradients.v.data = arrays->v;
    gradients.o.data = arrays->o;
    gradients.lse = arrays->lse;
    gradients.dout.data = arrays->dout;
    gradients.dq.data = arrays->dq;
    gradients.dk.data = arrays->dk;
    gradients.dv.data = arrays->dv;
    return gradients;
}
