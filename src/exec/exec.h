/* Running programs: the only layer that runs. */
#ifndef RA_EXEC_EXEC_H
#define RA_EXEC_EXEC_H

#include "exec/program.h"

typedef struct ra_forward_io {
    ra_view q, k, v; /* of dtype */
    ra_view o;       /* of out_dtype; may be summed in, and is NaN after a failure that came later */
    ra_view lse;     /* one element a row, accumulation type; NaN where o is after a failure. data NULL: not wanted */
} ra_forward_io;

typedef struct ra_backward_io {
    ra_view q, k, v, dout; /* of dtype */
    ra_view o;             /* of out_dtype */
    ra_view lse;           /* as the forward pass wrote it */
    ra_view dq, dk, dv;    /* of out_dtype, as o in the forward pass */
} ra_backward_io;

/* On an asynchronous device a pass returns when all of its work is on the stream. sent_out: what it sent, set on
 * success too where that is nothing. Nothing of a program is changed by running it. */
ra_status ra_exec_forward(const ra_program *program, const ra_forward_io *io, void *stream, ra_traffic *sent_out);

/* states_again: the forward program, with tags of its own, for problems whose softmaxes are kept apart. */
ra_status ra_exec_backward(const ra_program *program, const ra_program *states_again, const ra_backward_io *io,
                           void *stream, ra_traffic *sent_out);

/* The shape by which row operations take arrays of the accumulation type for outputs, and change nothing. */
ra_shape ra_sums_shape(const ra_shape *shape);

/* Makes the outputs of a pass NaN, in stream order. */
void ra_exec_spoil_forward(const ra_program *program, const ra_forward_io *io, void *stream);
void ra_exec_spoil_backward(const ra_program *program, const ra_backward_io *io, void *stream);

/* One run of a pass over its steps: the program, and what this run brings to it, the rank's own queries and keys.
 * compute is called for every compute of a step while its messages are in flight, with the queries and the rows of keys
 * and values that its tiles refer to; begin is called before that, for the results of queries that visit. */
typedef struct ra_pass_run {
    const ra_program *program;
    ra_context context;
    const char *name; /* of the pass, for errors */
    void (*begin)(const struct ra_pass_run *run, const ra_queries *visitors);
    void (*compute)(const struct ra_pass_run *run, const ra_queries *queries, const ra_kv_rows *parts,
                    const ra_bound_compute *bound);
    ra_queries queries;
    ra_kv_rows own;
    ra_view dq_out, dk_out, dv_out;    /* backward: the outputs, where queries and own have sums */
    const ra_forward_results *results; /* forward: for the compute that finishes; NULL: the state is wanted */
    ra_traffic sent;                   /* bytes_sent and messages_sent count up */
} ra_pass_run;
ra_status ra_run_steps(ra_pass_run *run);

/* After the steps: until every rank has done with the others' memory. What follows on the stream may write to what this
 * rank lends, and finds whole what others have added to. */
ra_status ra_run_close(const ra_pass_run *run);

/* Fails, and gives the comm up, when the device has refused something of this pass. */
ra_status ra_program_check(const ra_program *program, ra_place place);

/* The program's context: threads and scratch; the run adds what is called between blocks. */
ra_context ra_program_context(const ra_program *program, void *stream);

/* The forward pass's state, with o where it is kept: in the workspace, or in the output when o is given. */
ra_state ra_program_state(const ra_program *program, const ra_view *o);

/* Runs a forward program from an empty state, for these queries with these keys and values, and adds what it sends to
 * *sent. The state is what is wanted: no compute finishes. */
ra_status ra_exec_states(const ra_program *program, ra_view q, ra_view k, ra_view v, ra_state state, const char *name,
                         ra_context context, ra_traffic *sent);

#endif
