/* What the processes of a job were asked for: each has a command line of its own, but the files are one. */
#ifndef CLI_REQUEST_H
#define CLI_REQUEST_H

#include "options/options.h"

/* Collective: crew_agree, and then that every rank of `run` was asked for the same files. mine: whether this rank
 * could open its own. When a rank was not asked for an output that rank 0 was, or the other way round, every rank gets
 * the same RA_ERR_ARGUMENT naming it and the option: its rows would be missing from the file. */
ra_status request_agree(ra_comm *comm, const cli_options *options, ra_status mine, double timeout_seconds);

#endif
