/* The ringattn command: turns arguments into a command and its status into an exit code. */
#include "cli.h"

#include <stdio.h>

static int wrong_use(void) {
    fprintf(stderr, "ringattn: error: %s\n", ra_last_error());
    return 2;
}

/* Commands that run on ranks. */
static int run_launched(const cli_options *options) {
    cli_launch launch;
    ra_status status = launch_open(options, &launch);
    if (status == RA_OK && options->command == CLI_RUN) status = cli_run(options, &launch);
    if (status == RA_OK && options->command == CLI_BENCH) status = cli_bench(options, &launch);
    if (status == RA_OK && options->command == CLI_VERIFY) status = cli_verify(options, &launch);
    fflush(stdout);
    return launch_close(&launch, status);
}

static int run_alone(const cli_options *options) {
    ra_status status = options->command == CLI_PLAN   ? cli_plan(options)
                       : options->command == CLI_INFO ? cli_info(options)
                                                      : cli_random(options);
    if (status != RA_OK) fprintf(stderr, "ringattn: error: %s\n", ra_last_error());
    return launch_exit_code(status);
}

static int dispatch(const cli_options *options) {
    if (options->version) {
        printf("ringattn %s\n", ra_version());
        return 0;
    }
    if (options->help) {
        fputs(cli_usage(options->command), stdout);
        return 0;
    }
    int launched = options->command & (CLI_RUN | CLI_BENCH | CLI_VERIFY);
    return launched ? run_launched(options) : run_alone(options);
}

int main(int argc, char **argv) {
    cli_options options;
    ra_status status = cli_options_parse(argc - 1, (const char *const *)argv + 1, &options);
    int code = status == RA_OK ? dispatch(&options) : wrong_use();
    cli_options_free(&options);
    if (fflush(stdout) != 0 && code == 0) {
        fputs("ringattn: error: standard output could not be written\n", stderr);
        code = 1;
    }
    return code;
}
