/* The ranks that a command runs on: threads of this process, this process alone, the processes that mpirun started,
 * over MPI or, beside it, UCX or NCCL; or processes that meet without MPI, over UCX. The body is the same for all of
 * them. */
#ifndef CLI_CREW_H
#define CLI_CREW_H

#include "options/options.h"

#include <ringattn/ringattn.h>

typedef struct cli_crew {
    const cli_options *options;
    cli_transport transport;
    int processes; /* how many there are, each one rank; 0: every rank is in this process */
    int process;   /* which one this is */
    double timeout_seconds;
    int by_ucx;    /* they met without MPI */
    ra_comm *comm; /* of the processes, over MPI or UCX; NULL: none */
} cli_crew;

/* Starts MPI where it is asked for, or where a launcher has started several processes and nobody asks for anything
 * else. Refuses a --ranks that disagrees with the number of processes, on every process when one of them says so. */
ra_status crew_open(const cli_options *options, cli_crew *crew_out);

/* Collective: the processes agree on how it went, report a failed command on stderr, once, end MPI and return the exit
 * code. Where they have lost each other every one of them reports what it knows, and the job is aborted. Ends within
 * the deadline whatever the others do. */
int crew_close(cli_crew *crew, ra_status status);

/* The ranks that are in this process call body, each with its comm. */
ra_status crew_run(const cli_crew *crew, int ranks, ra_rank_body body, void *user);

/* Collective: RA_OK on every rank when all come with RA_OK, else the status and the sentence of the lowest rank that
 * failed, on every rank; the sentence names that rank unless all ranks say the same. */
ra_status crew_agree(ra_comm *comm, ra_status mine, double timeout_seconds);

/* For a rank that the others wait for in crew_agree, called more often than the deadline is long: it is at work, and
 * they go on waiting. Fails when one of them is lost. */
ra_status crew_at_work(ra_comm *comm, double timeout_seconds);

/* For a process that fails before it has taken part in MPI: sees to it that the others, who wait for it there, end too.
 */
void crew_withdraw(int code);

/* One line on stderr, whatever characters the names of files have brought into the sentence. */
void crew_complain(const char *sentence);

/* The exit code for a status. */
int crew_exit_code(ra_status status);

#endif
