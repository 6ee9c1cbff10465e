/* Running programs: the only layer that runs. */
#ifndef RA_EXEC_EXEC_H
#define RA_EXEC_EXEC_H

#include "exec/program.h"

typedef struct ra_forward_io {
    ra_view q, k, v; /* of dtype */
    ra_view o;       /* of out_dtype, written on success only */
    void *lse;       /* or NULL; likewise */
} ra_forward_io;

typedef struct ra_backward_io {
    ra_view q, k, v, dout; /* of dtype */
    ra_view o;             /* of out_dtype */
    const void *lse;
    ra_view dq, dk, dv; /* of out_dtype, written on success only */
} ra_backward_io;

ra_status ra_exec_forward(ra_program *program, const ra_forward_io *io, void *stream);
ra_status ra_exec_backward(ra_program *program, const ra_backward_io *io, void *stream);

/* What the two passes share: one walk over the steps. compute is called for every compute of a step while its messages
 * are in flight; parts are those its tiles refer to. */
typedef struct ra_walk {
    ra_program *program;
    ra_launch launch;
    const char *name; /* of the pass, for errors */
    void (*compute)(struct ra_walk *walk, const ra_compute *compute, const ra_kv_part *parts);
    const void *io;
} ra_walk;
ra_status ra_walk_steps(ra_walk *walk);

/* The program's launch: threads, scratch, and a pulse that lets messages move. */
ra_launch ra_program_launch(ra_program *program, void *stream);

#endif
