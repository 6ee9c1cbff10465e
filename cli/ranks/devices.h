/* The devices that ranks compute on. */
#ifndef CLI_DEVICES_H
#define CLI_DEVICES_H

#include "options/options.h"
#include "report/json.h"

/* Which GPU a rank has: --device cuda:N gives all of them one, --device cuda deals the ranks to all there are. -1: the
 * CPU. Fails where there is none, or where this command was built without CUDA. */
ra_status devices_ordinal(const cli_options *options, int rank, int *ordinal_out);

/* Sets how->backend for a rank. */
ra_status devices_choose(const cli_options *options, int rank, ra_options *how);

/* comm over NCCL beside an MPI comm, for a rank's GPU. */
ra_status devices_nccl(const cli_options *options, ra_comm *host, double timeout_seconds, ra_comm **comm_out);

/* Whether the command has ranks over NCCL, which takes MPI to start them. */
int devices_have_nccl(void);

/* For ringattn info: the GPUs, and the kernels for the first of them. */
void devices_write_json(json_writer *json);
void devices_print(void);

#endif
