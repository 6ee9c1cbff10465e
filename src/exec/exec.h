/* Running programs: the only layer that runs. */
#ifndef RA_EXEC_EXEC_H
#define RA_EXEC_EXEC_H

#include "exec/program.h"

typedef struct ra_forward_io {
    ra_view q, k, v; /* of dtype */
    ra_view o;       /* of out_dtype; may be summed in, and is NaN after a failure that came later */
    void *lse;       /* or NULL; NaN where o is after a failure */
} ra_forward_io;

typedef struct ra_backward_io {
    ra_view q, k, v, dout; /* of dtype */
    ra_view o;             /* of out_dtype */
    const void *lse;
    ra_view dq, dk, dv; /* of out_dtype, as o in the forward pass */
} ra_backward_io;

/* On an asynchronous device a pass returns when all of its work is on the stream. */
ra_status ra_exec_forward(ra_program *program, const ra_forward_io *io, void *stream);

/* forward: the same plan's, for problems whose softmaxes are kept apart. */
ra_status ra_exec_backward(ra_program *program, ra_program *forward, const ra_backward_io *io, void *stream);

/* Makes the outputs of a pass NaN, in stream order. */
void ra_exec_spoil_forward(ra_program *program, const ra_forward_io *io, void *stream);
void ra_exec_spoil_backward(ra_program *program, const ra_backward_io *io, void *stream);

/* What the two passes share: one walk over the steps. compute is called for every compute of a step while its messages
 * are in flight. Each pass uses some of what is below. */
typedef struct ra_walk {
    ra_program *program;
    ra_launch launch;
    const char *name; /* of the pass, for errors */
    void (*compute)(struct ra_walk *walk, const ra_compute *compute, const ra_bound_compute *bound);
    ra_view q, dout, dq;
    ra_state state;
    const void *lse, *delta;
} ra_walk;
ra_status ra_walk_steps(ra_walk *walk);

/* The parts that a compute's tiles refer to. */
static inline const ra_kv_part *ra_walk_parts(const ra_walk *walk, const ra_bound_compute *bound) {
    return bound->parts ? bound->parts : &walk->program->own;
}

/* Fails, and gives the comm up, when the device has refused something of this pass. */
ra_status ra_program_check(ra_program *program, ra_place place);

/* The program's launch: threads and scratch; the walk adds what is called between blocks. */
ra_launch ra_program_launch(ra_program *program, void *stream);

/* The forward pass's state, with o where it is kept: in the workspace, or in the output when o is given. */
ra_state ra_program_state(const ra_program *program, const ra_view *o);

/* Walks a forward program from an empty state; own.k and own.v are set. */
ra_status ra_exec_states(ra_program *program, ra_view q, ra_state state, const char *name, ra_launch launch);

#endif
