/* Processes over UCX: those that meet without MPI, and those that mpirun started. */
#ifndef CLI_LAUNCH_UCX_H
#define CLI_LAUNCH_UCX_H

#include "launch.h"

/* Whether mpirun started the processes, and nothing says that they meet in another way: then MPI brings addresses
 * round. */
int launch_ucx_wants_mpi(const cli_options *options);

/* Meets the other processes, in --rendezvous or as the environment says; sets launch->processes, process, by_ucx and
 * comm. */
ra_status launch_ucx_open(cli_launch *launch);

/* Collective: the ranks of host, which brings the addresses round and must outlive it. */
ra_status launch_ucx_beside(ra_comm *host, double timeout_seconds, ra_comm **comm_out);

#endif
