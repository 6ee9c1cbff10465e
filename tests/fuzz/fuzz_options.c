/* Any text, a line per argument, as a command line: options or a sentence, never a crash or a leak. What is accepted
 * must make cases and problems without one either. */
#include "options/cases.h"
#include "options/options.h"

#include <ringattn/ringattn.h>
#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS_MAX = 64, CASES_MAX = 8 };

static void require(int holds) {
    if (!holds) abort();
}

/* Cuts text at its newlines; returns how many arguments there are. */
static int split(char *text, const char **arguments) {
    int count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, "\n", &rest); word && count < ARGUMENTS_MAX; word = strtok_r(NULL, "\n", &rest))
        arguments[count++] = word;
    return count;
}

static void try_cases(const cli_options *options) {
    int64_t count = cases_count(options);
    require(count >= 1 || options->command == CLI_BENCH);
    for (int64_t i = 0; i < count && i < CASES_MAX; ++i) {
        cli_case one = cases_at(options, i, 64, 2);
        ra_problem problem;
        ra_layout layout;
        if (cases_problem(options, &one, &problem) != RA_OK) continue;
        /* Planning takes time that grows with ranks and segments, as it must; what is fuzzed here is the reading. */
        if (one.ranks > 8 || one.seq_q > 2048 || one.seq_k > 2048) continue;
        ra_options how = cases_options(options, &one, 1);
        if (ra_layout_resolve(&problem, &how, one.ranks, &layout) == RA_OK) require(layout != RA_LAYOUT_AUTO);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *arguments[ARGUMENTS_MAX];
    cli_options options;
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    int count = split(text, arguments);
    if (cli_options_parse(count, arguments, &options) != RA_OK)
        require(ra_last_error()[0] != '\0');
    else if (options.command & (CLI_PLAN | CLI_BENCH | CLI_VERIFY) && !options.help)
        try_cases(&options);
    cli_options_free(&options);
    free(text);
    return 0;
}
