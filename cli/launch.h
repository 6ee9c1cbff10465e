/* The ranks that a command runs on: threads of this process, this process alone, or the processes that mpirun started,
 * over MPI or, for GPUs, over NCCL.
 * The body is the same for all of them. */
#ifndef CLI_LAUNCH_H
#define CLI_LAUNCH_H

#include "options.h"

#include <ringattn/ringattn.h>

typedef struct cli_launch {
    const cli_options *options;
    cli_transport transport;
    int processes; /* under MPI how many there are, each one rank; otherwise 0: every rank is in this process */
    int process;   /* which one this is */
    double timeout_seconds;
} cli_launch;

/* Starts MPI where it is asked for. Refuses a --ranks that disagrees with the number of processes. */
ra_status launch_open(const cli_options *options, cli_launch *launch_out);

/* Reports a failed command on stderr, once, ends MPI and returns the exit code. Where the processes have lost each
 * other every one of them reports what it knows, and the job is aborted. */
int launch_close(cli_launch *launch, ra_status status);

/* The ranks that are in this process call body, each with its comm. */
ra_status launch_run(const cli_launch *launch, int ranks, ra_rank_body body, void *user);

/* Collective: RA_OK on every rank when all come with RA_OK, else the status and the sentence of the lowest rank that
 * failed, on every rank. */
ra_status launch_agree(ra_comm *comm, ra_status mine, double timeout_seconds);

/* The exit code for a status. */
int launch_exit_code(ra_status status);

#endif
