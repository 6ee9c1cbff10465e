/* The processes that mpirun started: MPI from its start to its end, which takes no longer than the deadline. Where the
 * command is built without MPI, sentences that say so. */
#ifndef CLI_LAUNCH_MPI_H
#define CLI_LAUNCH_MPI_H

#include "launch.h"

int launch_mpi_built(void);

/* Starts MPI; sets launch->processes, process and comm. */
ra_status launch_mpi_open(cli_launch *launch);

/* Calls body on the processes' comm or, for --transport nccl and ucx, on one beside it. */
ra_status launch_mpi_run(const cli_launch *launch, ra_rank_body body, void *user);

/* Ends MPI. gone: the processes have lost each other, so the job is aborted. code: what this process will exit with. */
void launch_mpi_close(cli_launch *launch, int gone, int code);

/* See launch_withdraw. */
void launch_mpi_withdraw(int code);

#endif
