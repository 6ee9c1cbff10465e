/* What the files of the command share: how they fail, and the commands themselves.
 *
 * Like the library, no function but main() prints an error or exits: a function that decides on an error describes it
 * with ra_fail, the rest forward it, and main() turns the status into an exit code. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "options/options.h"
#include "ranks/crew.h"

#include <ringattn/transport.h>

/* Something failed that the user did not ask for wrongly (a full disk, a result out of tolerance): exit 1, where
 * RA_ERR_ARGUMENT and RA_ERR_UNSUPPORTED are wrong use: exit 2. */
#define CLI_FAILED RA_ERR_INTERNAL

#define CLI_RETURN_ON_ERROR(expr)                                                                                      \
    do {                                                                                                               \
        ra_status cli_try_status = (expr);                                                                             \
        if (cli_try_status != RA_OK) return cli_try_status;                                                            \
    } while (0)

#define CLI_RETURN_REFUSAL(...) return ra_fail(RA_ERR_ARGUMENT, __VA_ARGS__)

/* Each takes options that cli_options_parse has accepted for it. */
ra_status cli_run(const cli_options *options, cli_crew *crew);
ra_status cli_bench(const cli_options *options, cli_crew *crew);
ra_status cli_verify(const cli_options *options, cli_crew *crew);
ra_status cli_plan(const cli_options *options);
ra_status cli_info(const cli_options *options);
ra_status cli_random(const cli_options *options);

/* Starts the processes of this machine, waits for them, ends the others when one fails, and returns the exit code: 0,
 * or that of the first that failed. */
int cli_launch(const cli_options *options);

#endif
