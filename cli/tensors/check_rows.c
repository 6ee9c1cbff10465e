#include "tensors/check_rows.h"

#include "cli.h"
#include "files/npy_rows.h"

#include <stdlib.h>

/* One key/value head of the problem by itself, as the definition takes it: doubles, C-order [1, rows, heads, dim]. */
typedef struct head_arrays {
    double *q;     /* all heads, for a pattern may depend on the head's number; only what is asked for is filled in,
                    * and the rest, never touched, takes no memory */
    double *k, *v; /* one head */
    double *o;     /* [dim_v] */
    check_rows_tick tick;
    void *user;
} head_arrays;

/* One head of one row, rounded to the type that was computed with. */
static ra_status read_head_row(const npy_file *file, ra_dtype dtype, int64_t b, int64_t row, int64_t head, double *to) {
    const npy_header *h = &file->header;
    char raw[256 * 8], rounded[256 * 8];
    int64_t bytes = h->shape[3] * (int64_t)ra_dtype_bytes(h->dtype);
    int64_t offset = h->data_offset + ((b * h->shape[1] + row) * h->shape[2] + head) * bytes;
    CLI_RETURN_ON_ERROR(rows_pread(file->what, file->fd, raw, (size_t)bytes, offset));
    CLI_RETURN_ON_ERROR(ra_convert(dtype, rounded, h->dtype, raw, h->shape[3]));
    return ra_convert(RA_F64, to, dtype, rounded, h->shape[3]);
}

static ra_status read_keys(const ra_problem *p, const npy_file *k, const npy_file *v, int64_t b, int64_t head,
                           head_arrays *arrays) {
    int64_t head_kv = head / (p->heads_q / p->heads_kv);
    for (int64_t row = 0; row < p->seq_k; ++row) {
        CLI_RETURN_ON_ERROR(read_head_row(k, p->dtype, b, row, head_kv, arrays->k + row * p->dim));
        CLI_RETURN_ON_ERROR(read_head_row(v, p->dtype, b, row, head_kv, arrays->v + row * p->dim_v));
        if (row % 1024 == 0) CLI_RETURN_ON_ERROR(arrays->tick(arrays->user));
    }
    return RA_OK;
}

static ra_status compare_row(const ra_problem *p, const npy_file *q, const output_file *out, int64_t b, int64_t head,
                             int64_t i, head_arrays *arrays, deviation *sum) {
    ra_problem single = *p;
    single.batch = single.heads_kv = 1;
    single.dtype = single.out_dtype = RA_F64;
    double got[256], lse;
    char raw[256 * 8];
    CLI_RETURN_ON_ERROR(read_head_row(q, p->dtype, b, i, head, arrays->q + (i * p->heads_q + head) * p->dim));
    CLI_RETURN_ON_ERROR(ra_reference_row(&single, arrays->q, arrays->k, arrays->v, 0, head, i, arrays->o, &lse));
    int64_t bytes = p->dim_v * (int64_t)ra_dtype_bytes(out->dtype);
    int64_t offset = out->data_offset + ((b * p->seq_q + i) * p->heads_q + head) * bytes;
    CLI_RETURN_ON_ERROR(rows_pread(out->what, out->fd, raw, (size_t)bytes, offset));
    CLI_RETURN_ON_ERROR(ra_convert(RA_F64, got, out->dtype, raw, p->dim_v));
    for (int64_t d = 0; d < p->dim_v; ++d) deviation_add(sum, got[d], arrays->o[d]);
    return RA_OK;
}

/* Head by head, so that a head's keys are read once; within a head the rows are spread evenly, the last among them. */
static ra_status compare_sample(const ra_problem *p, const npy_file *q, const npy_file *k, const npy_file *v,
                                const output_file *out, int64_t rows, head_arrays *arrays, deviation *sum) {
    int64_t heads = p->batch * p->heads_q, used = rows < heads ? rows : heads;
    for (int64_t n = 0; n < used; ++n) {
        int64_t which = n * heads / used, here = rows / used + (n < rows % used);
        if (here > p->seq_q) here = p->seq_q;
        CLI_RETURN_ON_ERROR(read_keys(p, k, v, which / p->heads_q, which % p->heads_q, arrays));
        for (int64_t j = 0; j < here; ++j) {
            int64_t step = p->seq_q / here, i = p->seq_q - 1 - j * step - (j ? n * step / used : 0);
            CLI_RETURN_ON_ERROR(
                compare_row(p, q, out, which / p->heads_q, which % p->heads_q, i < 0 ? 0 : i, arrays, sum));
            CLI_RETURN_ON_ERROR(arrays->tick(arrays->user));
        }
    }
    return RA_OK;
}

ra_status check_rows(const ra_problem *problem, const npy_file *q, const npy_file *k, const npy_file *v,
                     const output_file *out, int64_t rows, check_rows_tick tick, void *user, deviation *deviation_out) {
    *deviation_out = (deviation){0};
    head_arrays arrays = {.tick = tick,
                          .user = user,
                          .q = calloc((size_t)(problem->seq_q * problem->heads_q * problem->dim), sizeof(double)),
                          .k = malloc((size_t)(problem->seq_k * problem->dim) * sizeof(double)),
                          .v = malloc((size_t)(problem->seq_k * problem->dim_v) * sizeof(double)),
                          .o = malloc((size_t)problem->dim_v * sizeof(double))};
    ra_status status = arrays.q && arrays.k && arrays.v && arrays.o
                           ? compare_sample(problem, q, k, v, out, rows, &arrays, deviation_out)
                           : ra_fail(RA_ERR_MEMORY, "--check: no memory for one head in fp64; leave it out");
    free(arrays.q);
    free(arrays.k);
    free(arrays.v);
    free(arrays.o);
    return status;
}
