/* The kernel table: what a device must be able to compute. A kernel is given views of memory and a list of tiles and
 * knows nothing else: no layouts, no documents, no ranks, no transports.
 *
 * Types. Inputs have shape->dtype. Everything that is summed over steps has the accumulation type: float, or double
 * when dtype is f64. It is cast to the output type once, by finish or store.
 */
#ifndef RA_KERNEL_KERNEL_H
#define RA_KERNEL_KERNEL_H

#include "core/tile.h"

#include <ringattn/ringattn.h>

typedef struct ra_shape {
    int64_t batch, heads_q, heads_kv, dim, dim_v;
    int64_t rows_q; /* of this rank: what the state's arrays are sized by */
    int64_t states; /* softmaxes that are kept apart: what the state of a round of tiles indexes; at least 1 */
    double scale;
    double weight; /* of each softmax in the output, and so of every gradient */
    ra_dtype dtype, out_dtype;
} ra_shape;

/* Bytes of one element of the accumulation type. */
static inline size_t ra_shape_acc_bytes(const ra_shape *shape) {
    return shape->dtype == RA_F64 ? 8 : 4;
}

/* Element [i, j, h, d] is `i * batch + j * row + h * head + d * dim` elements after data. */
typedef struct ra_view {
    void *data;
    int64_t batch, row, head, dim; /* strides in elements, any sign */
} ra_view;

/* An array [batch, heads_q, rows_q] as a view of one element a row. */
static inline ra_view ra_array_view(const ra_shape *shape, void *array) {
    return (ra_view){array, shape->heads_q * shape->rows_q, 1, shape->rows_q, 1};
}

/* Rows of keys and values: a rank's own, or a piece of a slot. Key/value head g is head (g - heads.first) /
 * heads.stride of the views. */
typedef struct ra_kv_rows {
    ra_view k, v;   /* of dtype */
    ra_view dk, dv; /* backward only: of the accumulation type, or of out_dtype where a call finishes them */
    ra_span heads;  /* the key/value heads it holds */
} ra_kv_rows;

/* What the forward pass carries from step to step, of the accumulation type; m and l: [states, batch, heads_q, rows_q].
 *   o   a view, so that it may be the output itself: sum of e^{s - m} v, not normalised
 *   m   the largest score s so far; -inf: nothing seen
 *   l   sum of e^{s - m}; 0: nothing seen; NaN: a score was NaN or +inf
 */
typedef struct ra_state {
    ra_view o;       /* of state 0 */
    int64_t o_state; /* elements from one state's o to the next one's */
    void *m, *l;
} ra_state;

/* What a pass gives every kernel call. progress, where not NULL, is called now and then from the calling thread between
 * blocks, so that the caller can see to other work (a message in flight). When it returns nonzero, the results are not
 * wanted any more: the kernel sets *stop, which is given with progress, and returns soon, with its outputs half done.
 */
typedef struct ra_context {
    int threads;   /* at least 1 */
    void *scratch; /* scratch_bytes(shape, threads, ...) of it, 64-byte aligned */
    void *stream;  /* device kernels only */
    int (*progress)(void *user);
    void *progress_user;
    int *stop;
} ra_context;

/* A device kernel's own form of a compute's tiles and parts: see prepare. */
typedef struct ra_prepared ra_prepared;

/* The device memory of a prepared object, in bytes. */
typedef struct ra_list_size {
    size_t lists;    /* written at plan time, read by calls */
    size_t counters; /* written by calls, whatever they hold before */
} ra_list_size;

enum { RA_LIST_ALIGNMENT = 256 }; /* of both on the device */

/* Where the last forward call of a pass puts what finish would: see finish and ra_forward_call. */
typedef struct ra_forward_results {
    ra_view o, lse;
    int begins; /* it is the first call, too: the state has not been begun */
} ra_forward_results;

/* Query rows of one rank, in a call with those of several, of one state: what a call with them alone is given. */
typedef struct ra_query_rows {
    ra_view q; /* of dtype */
    int64_t rows;
    ra_state state;          /* forward: accumulated into */
    ra_view o_out, lse_out;  /* forward: as o and lse of results, where the call is given some */
    ra_view dout;            /* backward: of dtype */
    const void *lse, *delta; /* backward: [batch, heads_q, rows] of the accumulation type: see ra_backward_call */
    ra_view dq;              /* backward: of the accumulation type, added to; may be the output itself */
    ra_view dq_out;          /* backward: of out_dtype, where the call finishes dq */
} ra_query_rows;

typedef struct ra_forward_call {
    const ra_shape *shape;
    ra_view q;
    const ra_kv_rows *parts; /* tile.part indexes it; read before the call returns */
    ra_tile_list tiles;
    ra_state state; /* accumulated into */
    ra_context context;
    const ra_prepared *prepared; /* of these tiles; NULL on the CPU */

    /* Not NULL, where the kernel finishes these tiles: nothing is accumulated into the state after them. The call does
     * what finish would do, and it may leave anything in the state. */
    const ra_forward_results *results;

    /* Not NULL: queries of several ranks, instead of q, state, and o and lse of results; tile.queries indexes it.
     * Device kernels take them, and read them before the call returns. */
    const ra_query_rows *queries;
} ra_forward_call;

/* For every tile, with p = e^{s - lse}, dp = dout . v, ds = p * (dp - delta):
 *   dq += scale * ds k,  dk += scale * ds^T q,  dv += p^T dout.
 * Rows with lse = -inf contribute nothing; an lse of +inf counts as NaN. Nothing reaches what does not see it. */
typedef struct ra_backward_call {
    const ra_shape *shape;
    ra_view q, dout;
    const void *lse;         /* [states, batch, heads_q, rows_q], accumulation type */
    const void *delta;       /* likewise: sum over d of dout * o, where o is that softmax's own output */
    const ra_kv_rows *parts; /* dk and dv are added to; see overwrite */
    ra_tile_list tiles;
    ra_view dq; /* accumulation type, added to; may be the output itself */
    ra_context context;
    const ra_prepared *prepared; /* of these tiles; NULL on the CPU */
    int overwrite;               /* dk and dv hold nothing yet: the kernel writes its first sums over what is there */

    const ra_query_rows *queries; /* as in ra_forward_call, instead of q, dout, lse, delta and dq */

    /* Set only where the kernel finishes these tiles, which are all that adds to the part's rows: dk and dv are the
     * outputs, and the call overwrites all of them as store would. */
    int finish;

    int overwrite_queries; /* dq holds nothing yet: likewise, where the kernel overwrites all of its rows */

    /* Set only where the kernel finishes dq of these tiles, which are all that adds to it: the call overwrites all of
     * dq_out, or of that of each of the queries, as store would, and may leave anything in dq. */
    int finish_queries;
    ra_view dq_out;
} ra_backward_call;

typedef struct ra_kernel {
    const char *name;

    /* Whether this machine has the instructions. */
    int (*usable)(void);

    /* Scratch that forward or backward need, whatever the tiles; must not depend on rows_q. */
    size_t (*scratch_bytes)(const ra_shape *shape, int threads, int backward);

    /* Device kernels; all four are NULL on the CPU. What forward or backward need of these tiles is listed at plan
     * time, so that calls upload nothing:
     *
     *     prepare ──► list_size ──► place ──► the caller's copy ──► forward or backward, any number ──► discard
     *
     * prepare lists on the host, and neither allocates device memory nor waits. tiles and parts stay until place. parts
     * [part_count]: pieces of slots, whose addresses stay; where one has no k.data, all come with every call, heads, dk
     * and dv as here. NULL: one part, the rank's own rows, which comes with every call. Objects can share a block.
     * Where tiles are of several ranks' queries, the shape's rows_q counts those of all. */
    ra_status (*prepare)(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts, int64_t part_count,
                         ra_pass pass, ra_prepared **prepared_out);
    ra_list_size (*list_size)(const ra_prepared *prepared);

    /* Once. lists and counters: device memory of list_size, the object's until it is discarded. lists_out: host memory;
     * gets what is to be copied to lists before the first call. */
    void (*place)(ra_prepared *prepared, void *lists, void *counters, void *lists_out);
    void (*discard)(ra_prepared *prepared); /* NULL is allowed */

    /* How many rows of the parts' dk and dv, over their heads, a backward call writes first where it may overwrite. In
     * a round of tiles any two of which have the same keys, or none in common, it adds to a row once, what it adds
     * being rounded before. NULL: none, and it adds in any way. */
    int64_t (*overwrites)(const ra_prepared *prepared);

    /* Whether a forward call can be given results, and whether a backward call can finish dk and dv, where the caller
     * has nothing else to add to the rows. NULL: none can. */
    int (*finishes)(const ra_prepared *prepared);

    /* From so many key rows on, over heads, batches and ranks, a pass of ranks that see each other's memory is better
     * done by one call with the keys and queries of all. 0: no call takes queries of several ranks. */
    int64_t busy_keys;

    void (*forward)(const ra_forward_call *call);
    void (*backward)(const ra_backward_call *call);

    /* state = nothing seen: m = -inf, l = 0, o = 0; kernels that read no o where m = -inf may leave o as it is. */
    void (*begin)(const ra_shape *shape, ra_state state, const ra_context *context);

    /* Row rows[i] of state = its merge with row i of from, whose m and l are [states, batch, heads_q, rows.count] and
     * whose o is read only where its l is not 0. For every state, batch and head. */
    void (*merge)(const ra_shape *shape, ra_state state, ra_span rows, ra_state from, const ra_context *context);

    /* o_out [batch, rows_q, heads_q, dim_v] of out_dtype = weight * sum over states of o / l, 0 where nothing was seen;
     * lse_out, a view of one element a row, accumulation type, = log of the sum of l e^m; its data NULL: not wanted.
     * o_out may be the state's own o. */
    void (*finish)(const ra_shape *shape, ra_state state, ra_view o_out, ra_view lse_out, const ra_context *context);

    /* delta_out [batch, heads_q, rows_q], accumulation type, = sum over d of dout * o / weight; o has out_dtype. For
     * one state. */
    void (*delta)(const ra_shape *shape, ra_view dout, ra_view o, void *delta_out, const ra_context *context);

    /* For several, what the backward pass takes over: lse_out and delta_out [states, batch, heads_q, rows_q] from the
     * forward pass's state. */
    void (*carry)(const ra_shape *shape, ra_state state, ra_view dout, void *lse_out, void *delta_out,
                  const ra_context *context);

    /* Records. to [heads.count, rows.count, batch, dim + dim_v], C-order, of dtype = those rows and heads of k and v.
     */
    void (*pack)(const ra_shape *shape, void *to, ra_view k, ra_view v, ra_span rows, ra_span heads,
                 const ra_context *context);

    /* dk and dv [rows and heads] += from [heads.count, rows.count, batch, dim + dim_v], accumulation type. */
    void (*add_rows)(const ra_shape *shape, ra_view dk, ra_view dv, const void *from, ra_span rows, ra_span heads,
                     const ra_context *context);

    /* to[i] += from[i], accumulation type. */
    void (*add)(const ra_shape *shape, void *to, const void *from, int64_t count, const ra_context *context);

    /* to [batch, rows, heads, width] of out_dtype = weight * from, a view of the accumulation type, which may be to. */
    void (*store)(const ra_shape *shape, ra_view to, ra_view from, int64_t rows, int64_t heads, int64_t width,
                  const ra_context *context);

    /* to [batch, rows, heads, width] of out_dtype = value. */
    void (*fill)(const ra_shape *shape, ra_view to, int64_t rows, int64_t heads, int64_t width, double value,
                 const ra_context *context);

    /* How many rows of dq, over the query heads, a backward call writes first where it may overwrite them, as
     * `overwrites` says of dk and dv. NULL: none. */
    int64_t (*overwrites_queries)(const ra_prepared *prepared);

    /* Whether a backward call can finish dq, where it overwrites all of its rows. NULL: none can. */
    int (*finishes_queries)(const ra_prepared *prepared);
} ra_kernel;

/* The CPU's kernels, best last. NULL past the end. */
const ra_kernel *ra_kernel_at(int index);

#endif
