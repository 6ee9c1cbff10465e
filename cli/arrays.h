/* The arrays that one rank holds: its own rows of everything, C-order. */
#ifndef CLI_ARRAYS_H
#define CLI_ARRAYS_H

#include <ringattn/ringattn.h>

typedef struct rank_arrays {
    ra_layout layout; /* never auto */
    int64_t rows_q, rows_k;
    int64_t *positions_q, *positions_k; /* [rows_q], [rows_k] */
    void *q, *k, *v;                    /* [batch, rows, heads, dim] of dtype */
    void *o;                            /* likewise of out_dtype */
    void *lse;                          /* [batch, heads, rows_q] float, double for f64 */
    void *dout, *dq, *dk, *dv;          /* NULL unless backward; dq may be o */
    int64_t bytes;                      /* of all of them, positions aside */
} rank_arrays;

/* Allocates what this rank of `ranks` holds; o, lse and the gradients are zero. Free it whether this succeeds or not.
 */
ra_status arrays_create(const ra_problem *problem, const ra_options *how, int ranks, int rank, rank_arrays *arrays_out);
void arrays_free(rank_arrays *arrays);

/* Adds what the backward pass needs to arrays that were made without it. dq takes o's place where their shapes are equal:
 * o must have been written out by then, and is gone when the pass has run. */
ra_status arrays_add_gradients(const ra_problem *problem, rank_arrays *arrays);

/* They as the library takes them. */
ra_tensors arrays_tensors(const rank_arrays *arrays);
ra_gradients arrays_gradients(const rank_arrays *arrays);

#endif
