#include "options/option_flags.h"

#include "options/option_values.h"

#include <stddef.h>
#include <string.h>

enum { PROBLEM = CLI_PLAN | CLI_BENCH | CLI_VERIFY, ATTENTION = CLI_RUN | PROBLEM };

#define AT(field) offsetof(cli_options, field)
#define LENGTH_MAX ((int64_t)1 << 48)

static const flag flags[] = {
    {"--q", CLI_RUN, KIND_PATH, AT(q), 0, 0, 0, 0, NULL},
    {"--k", CLI_RUN, KIND_PATH, AT(k), 0, 0, 0, 0, NULL},
    {"--v", CLI_RUN, KIND_PATH, AT(v), 0, 0, 0, 0, NULL},
    {"--dout", CLI_RUN, KIND_PATH, AT(dout), 0, 0, 0, 0, NULL},
    {"--out", CLI_RUN | CLI_RANDOM, KIND_PATH, AT(out), 0, 0, 0, 0, NULL},
    {"--lse", CLI_RUN, KIND_PATH, AT(lse), 0, 0, 0, 0, NULL},
    {"--dq", CLI_RUN, KIND_PATH, AT(dq), 0, 0, 0, 0, NULL},
    {"--dk", CLI_RUN, KIND_PATH, AT(dk), 0, 0, 0, 0, NULL},
    {"--dv", CLI_RUN, KIND_PATH, AT(dv), 0, 0, 0, 0, NULL},
    {"--report", CLI_RUN, KIND_PATH, AT(report), 0, 0, 0, 0, NULL},
    {"--check", CLI_RUN, KIND_INTS, AT(check), 0, 1, 1000000, 1, NULL},
    {"--batch", PROBLEM, KIND_INTS, AT(batch), 0, 1, CLI_BATCH_MAX, SWEEP, NULL},
    {"--seq", PROBLEM, KIND_INTS, AT(seq), 0, 1, CLI_SEQ_MAX, SWEEP, NULL},
    {"--seq-k", PROBLEM, KIND_INTS, AT(seq_k), 0, 1, CLI_SEQ_MAX, SWEEP, NULL},
    {"--heads", PROBLEM, KIND_INTS, AT(heads), 0, 1, CLI_HEADS_MAX, SWEEP, NULL},
    {"--kv-heads", PROBLEM, KIND_INTS, AT(kv_heads), 0, 1, CLI_HEADS_MAX, SWEEP, NULL},
    {"--dim", PROBLEM, KIND_INTS, AT(dim), 0, 1, RA_MAX_DIM, SWEEP, NULL},
    {"--dim-v", PROBLEM, KIND_INTS, AT(dim_v), 0, 1, RA_MAX_DIM, SWEEP, NULL},
    {"--ranks", ATTENTION, KIND_INTS, AT(ranks), 0, 1, 4096, SWEEP, NULL},
    {"--rank", COMMANDS_ON_RANKS, KIND_INTS, AT(rank), 0, 0, 4095, 1, NULL},
    {"--rendezvous", COMMANDS_ON_RANKS, KIND_PATH, AT(rendezvous), 0, 0, 0, 0, NULL},
    {"--threads", ATTENTION, KIND_INTS, AT(threads), 0, 1, 4096, 1, NULL},
    {"--transport", ATTENTION, KIND_NAMES, AT(transport), 0, 0, 0, 1, value_transport},
    {"--strategy", ATTENTION, KIND_NAMES, AT(strategy), 0, 0, 0, SWEEP, value_strategy},
    {"--layout", ATTENTION, KIND_NAMES, AT(layout), 0, 0, 0, SWEEP, value_layout},
    {"--causal", ATTENTION, KIND_SWITCH, AT(causal), 0, 0, 0, 0, NULL},
    {"--window", ATTENTION, KIND_INTS, AT(window), 0, -1, LENGTH_MAX, 2, NULL},
    {"--cu-seqlens", ATTENTION, KIND_INTS, AT(cu_q), 0, 0, LENGTH_MAX, ANY, NULL},
    {"--cu-seqlens-k", ATTENTION, KIND_INTS, AT(cu_k), 0, 0, LENGTH_MAX, ANY, NULL},
    {"--scale", ATTENTION, KIND_REAL, AT(scale), AT(scale_given), 0, 0, 0, NULL},
    {"--dilated", ATTENTION, KIND_BRANCHES, AT(dilated), 0, 1, CLI_SEQ_MAX, ANY, NULL},
    {"--dilated-heads", ATTENTION, KIND_NAMES, AT(dilated_heads), 0, 0, 0, 1, value_dilated_heads},
    {"--dilated-offset", ATTENTION, KIND_NAMES, AT(dilated_offset), 0, 0, 0, 1, value_dilated_offset},
    {"--dilated-combine", ATTENTION, KIND_NAMES, AT(dilated_combine), 0, 0, 0, 1, value_dilated_combine},
    {"--dtype", ATTENTION | CLI_RANDOM, KIND_NAMES, AT(dtype), 0, 0, 0, SWEEP, value_dtype},
    {"--device", ATTENTION, KIND_NAMES, AT(device), 0, 0, 0, 1, value_device},
    {"--kernel", ATTENTION, KIND_WORDS, AT(kernel), 0, 0, 0, SWEEP, NULL},
    {"--timeout", ATTENTION, KIND_REAL, AT(timeout), AT(timeout_given), 0, 0, 0, NULL},
    {"--backward", PROBLEM, KIND_SWITCH, AT(backward), 0, 0, 0, 0, NULL},
    {"--repeat", CLI_BENCH, KIND_INTS, AT(repeat), 0, 1, 1000000, 1, NULL},
    {"--json", CLI_PLAN | CLI_BENCH | CLI_INFO, KIND_SWITCH, AT(json), 0, 0, 0, 0, NULL},
    {"--shape", CLI_RANDOM, KIND_INTS, AT(shape), 0, 1, LENGTH_MAX, 4, NULL},
    {"--seed", CLI_RANDOM | CLI_BENCH | CLI_VERIFY, KIND_INTS, AT(seed), 0, 0, INT64_MAX, 1, NULL},
};

static const struct {
    const char *name;
    cli_command command;
} commands[] = {{"run", CLI_RUN},   {"plan", CLI_PLAN},     {"bench", CLI_BENCH},  {"verify", CLI_VERIFY},
                {"info", CLI_INFO}, {"random", CLI_RANDOM}, {"launch", CLI_LAUNCH}};

enum { FLAGS = sizeof flags / sizeof flags[0], COMMANDS = sizeof commands / sizeof commands[0] };

const flag *flag_at(int i) {
    return i < FLAGS ? &flags[i] : NULL;
}

const flag *flag_find(const char *arg) {
    size_t length = strcspn(arg, "=");
    for (int i = 0; i < FLAGS; ++i)
        if (strlen(flags[i].name) == length && strncmp(flags[i].name, arg, length) == 0) return &flags[i];
    return NULL;
}

const char *command_name(cli_command command) {
    for (int i = 0; i < COMMANDS; ++i)
        if (commands[i].command == command) return commands[i].name;
    return "";
}

cli_command command_find(const char *name) {
    for (int i = 0; i < COMMANDS; ++i)
        if (strcmp(name, commands[i].name) == 0) return commands[i].command;
    return CLI_NONE;
}
