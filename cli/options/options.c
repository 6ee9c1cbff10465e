/* From argv to cli_options: the command, its options one after another, and what they say together. */
#include "options/options.h"

#include "cli.h"
#include "options/option_checks.h"
#include "options/option_store.h"
#include "options/option_values.h"

#include <stdio.h>
#include <string.h>

static ra_status unknown_flag(const char *arg, cli_command command) {
    char choices[700] = "";
    for (int i = 0; flag_at(i); ++i) {
        if (!(flag_at(i)->commands & (unsigned)command)) continue;
        size_t used = strlen(choices);
        snprintf(choices + used, sizeof choices - used, "%s%s", used ? " " : "", flag_at(i)->name);
    }
    CLI_RETURN_REFUSAL("%.100s: %s has no such option; it takes %s", arg, command_name(command), choices);
}

/* Takes argv[*at] and, where it has one, its value; moves *at behind them. */
static ra_status take_flag(int argc, const char *const *argv, int *at, cli_options *options) {
    const char *arg = argv[(*at)++];
    if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
        options->help = 1;
        return RA_OK;
    }
    const flag *f = flag_find(arg);
    if (arg[0] != '-')
        CLI_RETURN_REFUSAL("'%.100s': unexpected argument; %s takes options only, see ringattn %s --help", arg,
                           command_name(options->command), command_name(options->command));
    if (!f || !(f->commands & (unsigned)options->command)) return unknown_flag(arg, options->command);
    const char *value = strchr(arg, '=');
    if (f->kind == KIND_SWITCH) {
        if (value) CLI_RETURN_REFUSAL("%s: takes no value", f->name);
        return flag_store(f, NULL, options);
    }
    if (value) return flag_store(f, value + 1, options);
    if (*at >= argc || strncmp(argv[*at], "--", 2) == 0) CLI_RETURN_REFUSAL("%s: needs a value after it", f->name);
    return flag_store(f, argv[(*at)++], options);
}

static ra_status parse_command(const char *arg, cli_options *options) {
    options->help = strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0 || strcmp(arg, "help") == 0;
    options->version = strcmp(arg, "--version") == 0;
    options->command = command_find(arg);
    if (options->help || options->version || options->command != CLI_NONE) return RA_OK;
    CLI_RETURN_REFUSAL(
        "there is no command '%.100s'; choose one of run, plan, bench, verify, info, random, launch, or see ringattn "
        "--help",
        arg);
}

/* What is started must be right in itself, and leave it to launch to say which rank each process is. */
static ra_status check_forwarded(int argc, const char *const *argv) {
    cli_options forwarded;
    ra_status status = cli_options_parse(argc, argv, &forwarded);
    if (status == RA_OK && (!(forwarded.command & COMMANDS_ON_RANKS) || forwarded.help))
        status = ra_fail(RA_ERR_ARGUMENT, "launch: starts run, bench or verify, not '%.100s'", argc ? argv[0] : "");
    if (status == RA_OK && (forwarded.transport.count || forwarded.ranks.count || forwarded.rank.count))
        status = ra_fail(RA_ERR_ARGUMENT, "launch: leave --transport, --ranks and --rank out; it says them itself");
    cli_options_free(&forwarded);
    return status;
}

/* launch -n N -- COMMAND [options] */
static ra_status parse_launch(int argc, const char *const *argv, cli_options *options) {
    int64_t processes = 0;
    int at = 1;
    for (; at < argc && strcmp(argv[at], "--") != 0; ++at) {
        options->help |= strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0;
        if (options->help) return RA_OK;
        if (strcmp(argv[at], "-n") != 0)
            CLI_RETURN_REFUSAL("'%.100s': launch takes -n N, and after -- the command to run", argv[at]);
        if (++at == argc) CLI_RETURN_REFUSAL("-n: needs a value after it");
        CLI_RETURN_ON_ERROR(value_int("-n", argv[at], 1, 4096, &processes));
    }
    if (!processes) CLI_RETURN_REFUSAL("-n: is missing; say how many processes to start");
    if (at + 1 >= argc) CLI_RETURN_REFUSAL("launch: the command to run is missing; put it after --");
    options->processes = (int)processes;
    options->forwarded = argv + at + 1;
    options->forwarded_count = argc - at - 1;
    return check_forwarded(options->forwarded_count, options->forwarded);
}

ra_status cli_options_parse(int argc, const char *const *argv, cli_options *options_out) {
    *options_out = (cli_options){0};
    if (argc < 1)
        CLI_RETURN_REFUSAL("a command is missing; choose one of run, plan, bench, verify, info, random, launch, or see "
                           "ringattn --help");
    CLI_RETURN_ON_ERROR(parse_command(argv[0], options_out));
    if (options_out->command == CLI_NONE) return RA_OK;
    if (options_out->command == CLI_LAUNCH) return parse_launch(argc, argv, options_out);
    for (int at = 1; at < argc && !options_out->help;) CLI_RETURN_ON_ERROR(take_flag(argc, argv, &at, options_out));
    return options_out->help ? RA_OK : options_check(options_out);
}
