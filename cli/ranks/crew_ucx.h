/* Processes over UCX: those that meet without MPI, and those that mpirun started. */
#ifndef CLI_CREW_UCX_H
#define CLI_CREW_UCX_H

#include "ranks/crew.h"

/* Whether mpirun started the processes, and nothing says that they meet in another way: then MPI brings addresses
 * round. */
int crew_ucx_wants_mpi(const cli_options *options);

/* Meets the other processes, in --rendezvous or as the environment says; sets crew->processes, process, by_ucx and
 * comm. */
ra_status crew_ucx_open(cli_crew *crew);

/* Collective: the ranks of host, which brings the addresses round and must outlive it. */
ra_status crew_ucx_beside(ra_comm *host, double timeout_seconds, ra_comm **comm_out);

#endif
