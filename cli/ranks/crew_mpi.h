/* The processes that mpirun started: MPI from its start to its end, which takes no longer than the deadline. Where the
 * command is built without MPI, sentences that say so. */
#ifndef CLI_CREW_MPI_H
#define CLI_CREW_MPI_H

#include "ranks/crew.h"

int crew_mpi_built(void);

/* Starts MPI; sets crew->processes, process and comm. */
ra_status crew_mpi_open(cli_crew *crew);

/* Calls body on the processes' comm or, for --transport nccl and ucx, on one beside it. */
ra_status crew_mpi_run(const cli_crew *crew, ra_rank_body body, void *user);

/* Ends MPI. gone: the processes have lost each other, so the job is aborted. code: what this process will exit with. */
void crew_mpi_close(cli_crew *crew, int gone, int code);

/* See crew_withdraw. */
void crew_mpi_withdraw(int code);

#endif
