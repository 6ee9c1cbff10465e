/* ringattn launch: processes of this machine. */
#ifndef CLI_LOCAL_H
#define CLI_LOCAL_H

#include "options.h"

/* Starts the processes, waits for them, ends the others when one fails, and returns the exit code: 0, or that of the
 * first that failed. */
int local_run(const cli_options *options);

#endif
