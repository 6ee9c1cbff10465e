#include "tensors/arrays.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

static void **field(rank_arrays *a, int which) {
    void **fields[ARRAYS] = {&a->q, &a->k, &a->v, &a->dout, &a->o, &a->lse, &a->dq, &a->dk, &a->dv};
    return fields[which];
}

static void *array(const rank_arrays *a, int which) {
    return *field((rank_arrays *)a, which);
}

/* Adds an array of count elements to the rank's; at least one byte, so that NULL always means no memory. */
static ra_status add(rank_arrays *arrays, int64_t count, ra_dtype dtype, int which) {
    size_t bytes = (size_t)count * ra_dtype_bytes(dtype), rounded = (bytes / 64 + 1) * 64;
    if (ra_backend_allocate(arrays->backend, rounded, field(arrays, which)) != RA_OK)
        return ra_fail(RA_ERR_MEMORY, "no memory for an array of %zu bytes; use more ranks", bytes);
    if (!arrays->backend) memset(array(arrays, which), 0, rounded);
    arrays->size[which] = bytes;
    arrays->bytes += (int64_t)bytes;
    return RA_OK;
}

static ra_status find_rows(ra_layout layout, int64_t n, int64_t documents, const int64_t *cu_seqlens, int ranks,
                           int rank, int64_t *rows_out, int64_t **positions_out) {
    *rows_out = ra_layout_rows(layout, n, ranks, rank);
    if (*rows_out < 0)
        CLI_RETURN_REFUSAL("rank %d of %d cannot have rows of a sequence of %lld", rank, ranks, (long long)n);
    *positions_out = malloc((size_t)(*rows_out + 1) * sizeof **positions_out);
    if (!*positions_out) return ra_fail(RA_ERR_MEMORY, "no memory for %lld positions", (long long)*rows_out);
    return ra_packed_positions(layout, n, documents, cu_seqlens, ranks, rank, *positions_out);
}

/* Keys have the queries' documents, unless they have their own or there is but one, which has all of them. */
static const int64_t *documents_of_keys(const ra_problem *p) {
    return p->cu_seqlens_k || p->documents < 2 ? p->cu_seqlens_k : p->cu_seqlens_q;
}

static ra_status add_all(const ra_problem *p, int backward, rank_arrays *a) {
    int64_t q = p->batch * a->rows_q * p->heads_q, k = p->batch * a->rows_k * p->heads_kv;
    CLI_RETURN_ON_ERROR(add(a, q * p->dim, p->dtype, ARRAY_Q));
    CLI_RETURN_ON_ERROR(add(a, k * p->dim, p->dtype, ARRAY_K));
    CLI_RETURN_ON_ERROR(add(a, k * p->dim_v, p->dtype, ARRAY_V));
    CLI_RETURN_ON_ERROR(add(a, q * p->dim_v, p->out_dtype, ARRAY_O));
    CLI_RETURN_ON_ERROR(add(a, q, p->dtype == RA_F64 ? RA_F64 : RA_F32, ARRAY_LSE));
    if (!backward) return RA_OK;
    CLI_RETURN_ON_ERROR(add(a, q * p->dim_v, p->dtype, ARRAY_DOUT));
    CLI_RETURN_ON_ERROR(add(a, q * p->dim, p->out_dtype, ARRAY_DQ));
    CLI_RETURN_ON_ERROR(add(a, k * p->dim, p->out_dtype, ARRAY_DK));
    return add(a, k * p->dim_v, p->out_dtype, ARRAY_DV);
}

ra_status arrays_create(const ra_problem *problem, const ra_options *how, int ranks, int rank,
                        const ra_backend *backend, rank_arrays *arrays_out) {
    *arrays_out = (rank_arrays){.layout = how->layout, .backend = backend};
    CLI_RETURN_ON_ERROR(ra_backend_stream_create(backend, &arrays_out->stream));
    if (how->layout == RA_LAYOUT_AUTO) CLI_RETURN_ON_ERROR(ra_layout_resolve(problem, how, ranks, &arrays_out->layout));
    const int64_t *cu_k = documents_of_keys(problem);
    CLI_RETURN_ON_ERROR(find_rows(arrays_out->layout, problem->seq_q, problem->documents, problem->cu_seqlens_q, ranks,
                                  rank, &arrays_out->rows_q, &arrays_out->positions_q));
    CLI_RETURN_ON_ERROR(find_rows(arrays_out->layout, problem->seq_k, problem->documents, cu_k, ranks, rank,
                                  &arrays_out->rows_k, &arrays_out->positions_k));
    return add_all(problem, how->backward, arrays_out);
}

ra_status arrays_add_gradients(const ra_problem *p, rank_arrays *a) {
    int64_t q = p->batch * a->rows_q * p->heads_q, k = p->batch * a->rows_k * p->heads_kv;
    CLI_RETURN_ON_ERROR(add(a, q * p->dim_v, p->dtype, ARRAY_DOUT));
    CLI_RETURN_ON_ERROR(add(a, k * p->dim, p->out_dtype, ARRAY_DK));
    CLI_RETURN_ON_ERROR(add(a, k * p->dim_v, p->out_dtype, ARRAY_DV));
    if (p->dim != p->dim_v) return add(a, q * p->dim, p->out_dtype, ARRAY_DQ);
    a->dq = a->o;
    a->size[ARRAY_DQ] = a->size[ARRAY_O];
    return RA_OK;
}

void arrays_free(rank_arrays *arrays) {
    if (arrays->dq == arrays->o) arrays->dq = NULL;
    for (int i = 0; i < ARRAYS; ++i) ra_backend_release(arrays->backend, array(arrays, i));
    ra_backend_stream_destroy(arrays->backend, arrays->stream);
    free(arrays->positions_q);
    free(arrays->positions_k);
    *arrays = (rank_arrays){0};
}

static ra_status copy(const rank_arrays *to, const rank_arrays *from, int first, int end) {
    const ra_backend *backend = to->backend ? to->backend : from->backend;
    for (int i = first; i < end; ++i)
        if (array(to, i) && array(from, i))
            CLI_RETURN_ON_ERROR(ra_backend_copy(backend, array(to, i), array(from, i), from->size[i]));
    return RA_OK;
}

ra_status arrays_copy_inputs(const rank_arrays *to, const rank_arrays *from) {
    return copy(to, from, ARRAY_Q, ARRAY_DOUT + 1);
}

ra_status arrays_copy_outputs(const rank_arrays *to, const rank_arrays *from) {
    return copy(to, from, ARRAY_O, ARRAYS);
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
