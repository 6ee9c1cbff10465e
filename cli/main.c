/* The ringattn command: turns arguments into a command and its status into an exit code. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A program may be started with its standard streams closed, and the next file it opens would then take the place of
 * one: what is meant to be printed would end up in a result. Output that goes to a closed stream fails, as it should.
 */
static void open_standard_streams(void) {
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd < 3; ++fd)
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF) (void)!open("/dev/null", modes[fd]);
}

/* What was printed has arrived. */
static ra_status flush_output(void) {
    int failed = ferror(stdout), error = 0;
    if (fflush(stdout) != 0) failed = 1, error = errno;
    if (!failed) return RA_OK;
    return ra_fail(CLI_FAILED, "standard output could not be written%s%s", error ? ": " : "",
                   error ? strerror(error) : "");
}

static int wrong_use(void) {
    crew_complain(ra_last_error());
    crew_withdraw(2);
    return 2;
}

/* Commands that run on ranks. */
static int run_on_crew(const cli_options *options) {
    cli_crew crew;
    ra_status status = crew_open(options, &crew);
    if (status == RA_OK && options->command == CLI_RUN) status = cli_run(options, &crew);
    if (status == RA_OK && options->command == CLI_BENCH) status = cli_bench(options, &crew);
    if (status == RA_OK && options->command == CLI_VERIFY) status = cli_verify(options, &crew);
    if (status == RA_OK) status = flush_output();
    return crew_close(&crew, status);
}

static int run_alone(const cli_options *options) {
    ra_status status = RA_OK;
    if (options->version)
        printf("ringattn %s\n", ra_version());
    else if (options->help)
        fputs(cli_usage(options->command), stdout);
    else
        status = options->command == CLI_PLAN   ? cli_plan(options)
                 : options->command == CLI_INFO ? cli_info(options)
                                                : cli_random(options);
    if (status == RA_OK) status = flush_output();
    if (status != RA_OK) crew_complain(ra_last_error());
    return crew_exit_code(status);
}

static int dispatch(const cli_options *options) {
    if (options->command == CLI_LAUNCH && !options->help) return cli_launch(options);
    int on_ranks = options->command & (CLI_RUN | CLI_BENCH | CLI_VERIFY);
    return on_ranks && !options->help ? run_on_crew(options) : run_alone(options);
}

int main(int argc, char **argv) {
    open_standard_streams();
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit is an error of its own, with a sentence */
    cli_options options;
    ra_status status = cli_options_parse(argc - 1, (const char *const *)argv + 1, &options);
    int code = status == RA_OK ? dispatch(&options) : wrong_use();
    cli_options_free(&options);
    if (fclose(stdout) != 0 && code == 0) {
        fprintf(stderr, "ringattn: error: standard output could not be written: %s\n", strerror(errno));
        code = 1;
    }
    return code;
}
