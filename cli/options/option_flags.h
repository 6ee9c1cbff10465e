/* The table of options: which there are, which commands take them and what values they allow. */
#ifndef CLI_OPTION_FLAGS_H
#define CLI_OPTION_FLAGS_H

#include "options/options.h"

/* The commands that run on ranks. */
enum { COMMANDS_ON_RANKS = CLI_RUN | CLI_BENCH | CLI_VERIFY };

typedef enum flag_kind {
    KIND_SWITCH,   /* int, no value */
    KIND_PATH,     /* const char * */
    KIND_REAL,     /* double; `given` is where its *_given stands */
    KIND_INTS,     /* cli_list of numbers */
    KIND_NAMES,    /* cli_list of names */
    KIND_BRANCHES, /* cli_list of numbers, two for each item SEGMENT:RATE */
    KIND_WORDS     /* const char *, as it stands; checked when all flags are known */
} flag_kind;

/* One entry of a list: from the item as text to the number that stands for it. */
typedef ra_status (*item_parser)(const char *flag, const char *item, int64_t *value_out);

typedef struct flag {
    const char *name;
    unsigned commands;
    flag_kind kind;
    size_t offset, given; /* in cli_options */
    int64_t min, max;     /* KIND_INTS: of a value */
    int64_t entries; /* KIND_INTS, KIND_NAMES, KIND_WORDS: how many a list has; ANY; SWEEP: one, or several to bench */
    item_parser parse; /* KIND_NAMES */
} flag;

enum { ANY = 0, SWEEP = -1 };

/* The i-th option; NULL behind the last. */
const flag *flag_at(int i);

/* The option that `--name` or `--name=value` means; NULL: none. */
const flag *flag_find(const char *arg);

/* The command of that name, CLI_NONE when there is none; and the other way round. */
cli_command command_find(const char *name);
const char *command_name(cli_command command);

#endif
