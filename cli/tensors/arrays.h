/* The arrays that one rank holds: its own rows of everything, C-order; in this process's memory or a device's. */
#ifndef CLI_ARRAYS_H
#define CLI_ARRAYS_H

#include <ringattn/ringattn.h>

enum { ARRAY_Q, ARRAY_K, ARRAY_V, ARRAY_DOUT, ARRAY_O, ARRAY_LSE, ARRAY_DQ, ARRAY_DK, ARRAY_DV, ARRAYS };

typedef struct rank_arrays {
    ra_layout layout;          /* never auto */
    const ra_backend *backend; /* whose memory they are in; NULL: this process's */
    void *stream;              /* of that device, for whoever works on them; else NULL */
    int64_t rows_q, rows_k;
    int64_t *positions_q, *positions_k; /* [rows_q], [rows_k] */
    void *q, *k, *v;                    /* [batch, rows, heads, dim] of dtype */
    void *o;                            /* likewise of out_dtype */
    void *lse;                          /* [batch, heads, rows_q] float, double for f64 */
    void *dout, *dq, *dk, *dv;          /* NULL unless backward; dq may be o */
    size_t size[ARRAYS];                /* of each in bytes */
    int64_t bytes;                      /* of all of them, positions aside */
} rank_arrays;

/* Allocates what this rank of `ranks` holds, in the memory of backend; zero in this process's memory, anything in a
 * device's. Free it whether this succeeds or not. */
ra_status arrays_create(const ra_problem *problem, const ra_options *how, int ranks, int rank,
                        const ra_backend *backend, rank_arrays *arrays_out);
void arrays_free(rank_arrays *arrays);

/* Adds what the backward pass needs to arrays that were made without it. dq takes o's place where their shapes are
 * equal: o must have been written out by then, and is gone when the pass has run. */
ra_status arrays_add_gradients(const ra_problem *problem, rank_arrays *arrays);

/* Between the arrays of one rank in two places: those that both have. Done when the call returns. */
ra_status arrays_copy_inputs(const rank_arrays *to, const rank_arrays *from);
ra_status arrays_copy_outputs(const rank_arrays *to, const rank_arrays *from);

/* The arrays as arguments of the library. */
ra_tensors arrays_tensors(const rank_arrays *arrays);
ra_gradients arrays_gradients(const rank_arrays *arrays);

#endif
