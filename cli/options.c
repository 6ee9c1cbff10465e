/* One table says which flags there are, which commands take them and what values they allow; the rest of the file
 * walks it. */
#include "options.h"

#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROBLEM = CLI_PLAN | CLI_BENCH | CLI_VERIFY,
    ATTENTION = CLI_RUN | PROBLEM,
    RANKS = CLI_RUN | CLI_BENCH | CLI_VERIFY
};

typedef enum flag_kind {
    KIND_SWITCH, /* int, no value */
    KIND_PATH,   /* const char * */
    KIND_REAL,   /* double, followed by nothing: its *_given is set through `given` */
    KIND_INTS,   /* cli_list of numbers */
    KIND_NAMES,  /* cli_list of names */
    KIND_PAIRS,  /* cli_list of numbers, two for each item A:B */
    KIND_WORDS   /* const char *, as it stands; checked when all flags are known */
} flag_kind;

/* One entry of a list: the item as text to the number that stands for it. */
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

/* ---- single values --------------------------------------------------------------------------------------------- */

/* Decimal digits with at most a minus before them: no blanks, no plus, nothing after. */
static ra_status parse_int(const char *flag_name, const char *item, int64_t min, int64_t max, int64_t *value_out) {
    const char *digits = item[0] == '-' ? item + 1 : item;
    if (digits[0] < '0' || digits[0] > '9') CLI_REFUSE("%s: '%s' is not a whole number", flag_name, item);
    char *end;
    errno = 0;
    long long value = strtoll(item, &end, 10);
    if (*end != '\0') CLI_REFUSE("%s: '%s' is not a whole number", flag_name, item);
    if (errno == ERANGE || value < min || value > max)
        CLI_REFUSE("%s: %s is out of range; give a number from %lld to %lld", flag_name, item, (long long)min,
                   (long long)max);
    *value_out = value;
    return RA_OK;
}

static ra_status parse_real(const char *flag_name, const char *item, double *value_out) {
    if (strspn(item, "+-.0123456789eE") != strlen(item) || item[0] == '\0')
        CLI_REFUSE("%s: '%s' is not a number", flag_name, item);
    char *end;
    double value = strtod(item, &end);
    if (*end != '\0') CLI_REFUSE("%s: '%s' is not a number", flag_name, item);
    if (!isfinite(value)) CLI_REFUSE("%s: %s is too large", flag_name, item);
    *value_out = value;
    return RA_OK;
}

/* Puts the flag's name before the library's sentence, which lists the choices. */
static ra_status name_flag(const char *flag_name, ra_status status) {
    return status == RA_OK ? RA_OK : ra_fail(status, "%s: %s", flag_name, ra_last_error());
}

static ra_status parse_dtype(const char *flag_name, const char *item, int64_t *value_out) {
    ra_dtype dtype = RA_F32;
    CLI_TRY(name_flag(flag_name, ra_dtype_parse(item, &dtype)));
    *value_out = dtype;
    return RA_OK;
}

static ra_status parse_layout(const char *flag_name, const char *item, int64_t *value_out) {
    ra_layout layout = RA_LAYOUT_AUTO;
    CLI_TRY(name_flag(flag_name, ra_layout_parse(item, &layout)));
    *value_out = layout;
    return RA_OK;
}

static ra_status parse_strategy(const char *flag_name, const char *item, int64_t *value_out) {
    ra_strategy strategy = RA_STRATEGY_AUTO;
    CLI_TRY(name_flag(flag_name, ra_strategy_parse(item, &strategy)));
    *value_out = strategy;
    return RA_OK;
}

static ra_status parse_transport(const char *flag_name, const char *item, int64_t *value_out) {
    static const char *const names[] = {"thread", "self", "mpi", "nccl", "ucx"};
    for (int i = 0; i < 5; ++i) {
        *value_out = i;
        if (strcmp(item, names[i]) == 0) return RA_OK;
    }
    CLI_REFUSE("%s: there is no transport '%s'; choose one of thread, self, mpi, nccl, ucx", flag_name, item);
}

static ra_status parse_device(const char *flag_name, const char *item, int64_t *value_out) {
    *value_out = CLI_DEVICE_CPU;
    if (strcmp(item, "cpu") == 0) return RA_OK;
    *value_out = CLI_DEVICE_CUDA;
    if (strcmp(item, "cuda") == 0) return RA_OK;
    if (strncmp(item, "cuda:", 5) != 0)
        CLI_REFUSE("%s: there is no device '%s'; choose one of cpu, cuda, cuda:N", flag_name, item);
    CLI_TRY(parse_int(flag_name, item + 5, 0, 1023, value_out));
    *value_out += CLI_DEVICE_CUDA + 1;
    return RA_OK;
}

static ra_status parse_dilated_heads(const char *flag_name, const char *item, int64_t *value_out) {
    ra_dilated_heads heads = RA_DILATED_ALL;
    CLI_TRY(name_flag(flag_name, ra_dilated_heads_parse(item, &heads)));
    *value_out = heads;
    return RA_OK;
}

static ra_status parse_dilated_offset(const char *flag_name, const char *item, int64_t *value_out) {
    ra_dilated_offset offset = RA_DILATED_HEAD;
    CLI_TRY(name_flag(flag_name, ra_dilated_offset_parse(item, &offset)));
    *value_out = offset;
    return RA_OK;
}

static ra_status parse_dilated_combine(const char *flag_name, const char *item, int64_t *value_out) {
    ra_dilated_combine combine = RA_DILATED_LSE;
    CLI_TRY(name_flag(flag_name, ra_dilated_combine_parse(item, &combine)));
    *value_out = combine;
    return RA_OK;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

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
    {"--batch", PROBLEM, KIND_INTS, AT(batch), 0, 1, LENGTH_MAX, SWEEP, NULL},
    {"--seq", PROBLEM, KIND_INTS, AT(seq), 0, 1, LENGTH_MAX, SWEEP, NULL},
    {"--seq-k", PROBLEM, KIND_INTS, AT(seq_k), 0, 1, LENGTH_MAX, SWEEP, NULL},
    {"--heads", PROBLEM, KIND_INTS, AT(heads), 0, 1, 1 << 20, SWEEP, NULL},
    {"--kv-heads", PROBLEM, KIND_INTS, AT(kv_heads), 0, 1, 1 << 20, SWEEP, NULL},
    {"--dim", PROBLEM, KIND_INTS, AT(dim), 0, 1, 256, SWEEP, NULL},
    {"--dim-v", PROBLEM, KIND_INTS, AT(dim_v), 0, 1, 256, SWEEP, NULL},
    {"--ranks", ATTENTION, KIND_INTS, AT(ranks), 0, 1, 4096, SWEEP, NULL},
    {"--rank", RANKS, KIND_INTS, AT(rank), 0, 0, 4095, 1, NULL},
    {"--rendezvous", RANKS, KIND_PATH, AT(rendezvous), 0, 0, 0, 0, NULL},
    {"--threads", ATTENTION, KIND_INTS, AT(threads), 0, 1, 4096, 1, NULL},
    {"--transport", ATTENTION, KIND_NAMES, AT(transport), 0, 0, 0, 1, parse_transport},
    {"--strategy", ATTENTION, KIND_NAMES, AT(strategy), 0, 0, 0, SWEEP, parse_strategy},
    {"--layout", ATTENTION, KIND_NAMES, AT(layout), 0, 0, 0, SWEEP, parse_layout},
    {"--causal", ATTENTION, KIND_SWITCH, AT(causal), 0, 0, 0, 0, NULL},
    {"--window", ATTENTION, KIND_INTS, AT(window), 0, -1, LENGTH_MAX, 2, NULL},
    {"--cu-seqlens", ATTENTION, KIND_INTS, AT(cu_q), 0, 0, LENGTH_MAX, ANY, NULL},
    {"--cu-seqlens-k", ATTENTION, KIND_INTS, AT(cu_k), 0, 0, LENGTH_MAX, ANY, NULL},
    {"--scale", ATTENTION, KIND_REAL, AT(scale), AT(scale_given), 0, 0, 0, NULL},
    {"--dilated", ATTENTION, KIND_PAIRS, AT(dilated), 0, 1, (int64_t)1 << 40, ANY, NULL},
    {"--dilated-heads", ATTENTION, KIND_NAMES, AT(dilated_heads), 0, 0, 0, 1, parse_dilated_heads},
    {"--dilated-offset", ATTENTION, KIND_NAMES, AT(dilated_offset), 0, 0, 0, 1, parse_dilated_offset},
    {"--dilated-combine", ATTENTION, KIND_NAMES, AT(dilated_combine), 0, 0, 0, 1, parse_dilated_combine},
    {"--dtype", ATTENTION | CLI_RANDOM, KIND_NAMES, AT(dtype), 0, 0, 0, SWEEP, parse_dtype},
    {"--device", ATTENTION, KIND_NAMES, AT(device), 0, 0, 0, 1, parse_device},
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

/* ---- walking it ------------------------------------------------------------------------------------------------ */

/* A:B, both numbers. Cuts the item, which is a copy of the argument's, at the colon. */
static ra_status parse_pair(const flag *f, char *item, int64_t *values_out) {
    char *colon = strchr(item, ':');
    if (!colon) CLI_REFUSE("%s: '%s' is not SEGMENT:RATE, two numbers with a colon between them", f->name, item);
    *colon = '\0';
    CLI_TRY(parse_int(f->name, item, f->min, f->max, &values_out[0]));
    return parse_int(f->name, colon + 1, f->min, f->max, &values_out[1]);
}

static int64_t values_per_item(const flag *f) {
    return f->kind == KIND_PAIRS ? 2 : 1;
}

static ra_status parse_item(const flag *f, char *item, int64_t *values_out) {
    if (f->kind == KIND_PAIRS) return parse_pair(f, item, values_out);
    return f->kind == KIND_INTS ? parse_int(f->name, item, f->min, f->max, values_out)
                                : f->parse(f->name, item, values_out);
}

static ra_status check_entries(const flag *f, cli_command command, int64_t count) {
    if (f->entries == ANY || (f->entries == SWEEP && command == CLI_BENCH)) return RA_OK;
    int64_t wanted = f->entries == SWEEP ? 1 : f->entries;
    if (count != wanted)
        CLI_REFUSE("%s: takes %lld value%s, not %lld%s", f->name, (long long)wanted, wanted == 1 ? "" : "s",
                   (long long)count, f->entries == SWEEP ? "; only bench takes lists" : "");
    return RA_OK;
}

/* value: items with commas between them; none may be empty. */
static ra_status parse_list(const flag *f, cli_command command, const char *value, cli_list *list) {
    int64_t count = 1, width = values_per_item(f);
    for (const char *at = value; *at; ++at) count += *at == ',';
    CLI_TRY(check_entries(f, command, count));
    count *= width;
    char *text = malloc(strlen(value) + 1);
    free(list->values);
    list->count = 0;
    list->values = malloc((size_t)count * sizeof *list->values);
    ra_status status = RA_OK;
    if (!text || !list->values)
        status = ra_fail(RA_ERR_MEMORY, "%s: no memory for %lld values", f->name, (long long)count);
    if (status == RA_OK) strcpy(text, value);
    for (char *item = text; status == RA_OK && list->count < count;) {
        char *comma = strchr(item, ',');
        if (comma) *comma = '\0';
        status = parse_item(f, item, &list->values[list->count]);
        list->count += status == RA_OK ? width : 0;
        item = comma ? comma + 1 : item;
    }
    free(text);
    return status;
}

static ra_status store(const flag *f, const char *value, cli_options *options) {
    void *field = (char *)options + f->offset;
    switch (f->kind) {
    case KIND_SWITCH:
        *(int *)field = 1;
        return RA_OK;
    case KIND_PATH:
        if (value[0] == '\0') CLI_REFUSE("%s: the file's name is empty", f->name);
        *(const char **)field = value;
        return RA_OK;
    case KIND_WORDS:
        CLI_TRY(check_entries(f, options->command, cli_words_count(value)));
        *(const char **)field = value;
        return RA_OK;
    case KIND_REAL:
        *(int *)((char *)options + f->given) = 1;
        return parse_real(f->name, value, field);
    case KIND_INTS:
    case KIND_NAMES:
    case KIND_PAIRS:
        break;
    }
    return parse_list(f, options->command, value, field);
}

/* Finds `--name` or the `--name` of `--name=value`. */
static const flag *find_flag(const char *arg) {
    size_t length = strcspn(arg, "=");
    for (int i = 0; i < FLAGS; ++i)
        if (strlen(flags[i].name) == length && strncmp(flags[i].name, arg, length) == 0) return &flags[i];
    return NULL;
}

static const char *command_name(cli_command command) {
    for (int i = 0; i < COMMANDS; ++i)
        if (commands[i].command == command) return commands[i].name;
    return "";
}

static ra_status unknown_flag(const char *arg, cli_command command) {
    char choices[700] = "";
    for (int i = 0; i < FLAGS; ++i) {
        if (!(flags[i].commands & (unsigned)command)) continue;
        size_t used = strlen(choices);
        snprintf(choices + used, sizeof choices - used, "%s%s", used ? " " : "", flags[i].name);
    }
    CLI_REFUSE("%.100s: %s has no such option; it takes %s", arg, command_name(command), choices);
}

/* Takes argv[*at] and, where it has one, its value; moves *at behind them. */
static ra_status take_flag(int argc, const char *const *argv, int *at, cli_options *options) {
    const char *arg = argv[(*at)++];
    if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
        options->help = 1;
        return RA_OK;
    }
    const flag *f = find_flag(arg);
    if (arg[0] != '-')
        CLI_REFUSE("'%.100s': unexpected argument; %s takes options only, see ringattn %s --help", arg,
                   command_name(options->command), command_name(options->command));
    if (!f || !(f->commands & (unsigned)options->command)) return unknown_flag(arg, options->command);
    const char *value = strchr(arg, '=');
    if (f->kind == KIND_SWITCH) {
        if (value) CLI_REFUSE("%s: takes no value", f->name);
        return store(f, NULL, options);
    }
    if (value) return store(f, value + 1, options);
    if (*at >= argc || strncmp(argv[*at], "--", 2) == 0) CLI_REFUSE("%s: needs a value after it", f->name);
    return store(f, argv[(*at)++], options);
}

/* ---- what the flags say together ------------------------------------------------------------------------------- */

/* Equal neighbours are a document without rows. */
static ra_status check_ascending(const char *name, cli_list list) {
    if (list.count == 0) return RA_OK;
    if (list.count < 2) CLI_REFUSE("%s: needs at least two entries, 0 and the length of the sequence", name);
    if (list.values[0] != 0) CLI_REFUSE("%s: starts with %lld; the first entry is 0", name, (long long)list.values[0]);
    for (int64_t i = 1; i < list.count; ++i)
        if (list.values[i] < list.values[i - 1])
            CLI_REFUSE("%s: %lld after %lld; the entries must not decrease", name, (long long)list.values[i],
                       (long long)list.values[i - 1]);
    return RA_OK;
}

static ra_status check_documents(const cli_options *options) {
    CLI_TRY(check_ascending("--cu-seqlens", options->cu_q));
    CLI_TRY(check_ascending("--cu-seqlens-k", options->cu_k));
    if (options->cu_k.count && !options->cu_q.count) CLI_REFUSE("--cu-seqlens-k: needs --cu-seqlens beside it");
    if (options->cu_k.count && options->cu_k.count != options->cu_q.count)
        CLI_REFUSE("--cu-seqlens-k: has %lld entries and --cu-seqlens %lld; queries and keys have the same documents",
                   (long long)options->cu_k.count, (long long)options->cu_q.count);
    return RA_OK;
}

static ra_status check_dilation(const cli_options *options) {
    const char *orphan = options->dilated_heads.count     ? "--dilated-heads"
                         : options->dilated_offset.count  ? "--dilated-offset"
                         : options->dilated_combine.count ? "--dilated-combine"
                                                          : NULL;
    if (orphan && !options->dilated.count) CLI_REFUSE("%s: needs --dilated beside it", orphan);
    if (options->dilated.count > 2 * 64)
        CLI_REFUSE("--dilated: has %lld branches; at most 64 are supported", (long long)options->dilated.count / 2);
    return RA_OK;
}

/* The CPU's kernels are known; those of a device the library refuses. */
static ra_status check_kernel(const char *name) {
    char choices[256] = "auto";
    if (strcmp(name, "auto") == 0) return RA_OK;
    for (int i = 0; ra_kernel_name(i); ++i) {
        if (strcmp(name, ra_kernel_name(i)) == 0) return RA_OK;
        size_t used = strlen(choices);
        snprintf(choices + used, sizeof choices - used, ", %s", ra_kernel_name(i));
    }
    CLI_REFUSE("--kernel: there is no kernel '%s'; choose one of %s", name, choices);
}

static ra_status check_device(const cli_options *options) {
    int on_cpu = cli_list_at(options->device, 0, CLI_DEVICE_CPU) == CLI_DEVICE_CPU;
    if (on_cpu && cli_list_at(options->transport, 0, 0) == CLI_TRANSPORT_NCCL)
        CLI_REFUSE("--transport: nccl moves the memory of GPUs; add --device cuda, or use mpi");
    for (int64_t i = 0; i < cli_words_count(options->kernel); ++i) {
        char name[64];
        cli_words_at(options->kernel, i, name, sizeof name);
        if (name[0] == '\0') CLI_REFUSE("--kernel: a name is empty");
        if (on_cpu) CLI_TRY(check_kernel(name));
    }
    return RA_OK;
}

/* Processes that meet in a folder are told there who they are; others by their environment, or by mpirun. */
static ra_status check_meeting(const cli_options *options) {
    const char *orphan = options->rank.count ? "--rank" : options->rendezvous ? "--rendezvous" : NULL;
    if (!orphan) return RA_OK;
    if (cli_list_at(options->transport, 0, 0) != CLI_TRANSPORT_UCX)
        CLI_REFUSE("%s: is for processes that meet over ucx; add --transport ucx", orphan);
    if (!options->rank.count) CLI_REFUSE("--rank: is missing; --rendezvous needs --rank and --ranks beside it");
    if (!options->rendezvous) CLI_REFUSE("--rendezvous: is missing; --rank needs it, and --ranks");
    if (options->ranks.count != 1) CLI_REFUSE("--ranks: say how many processes meet in --rendezvous");
    if (options->rank.values[0] >= options->ranks.values[0])
        CLI_REFUSE("--rank: %lld is out of range; %lld ranks are numbered from 0", (long long)options->rank.values[0],
                   (long long)options->ranks.values[0]);
    return RA_OK;
}

static ra_status check_run(const cli_options *options) {
    if (!options->q) CLI_REFUSE("--q: is missing; run needs --q, --k, --v and --out");
    if (!options->k) CLI_REFUSE("--k: is missing; run needs --q, --k, --v and --out");
    if (!options->v) CLI_REFUSE("--v: is missing; run needs --q, --k, --v and --out");
    if (!options->out) CLI_REFUSE("--out: is missing; run needs --q, --k, --v and --out");
    const char *orphan = options->dq ? "--dq" : options->dk ? "--dk" : options->dv ? "--dv" : NULL;
    if (orphan && !options->dout) CLI_REFUSE("%s: needs --dout, the gradient of the output", orphan);
    return RA_OK;
}

static ra_status check_together(const cli_options *options) {
    if (options->timeout_given && !(options->timeout > 0 && options->timeout <= 1e9))
        CLI_REFUSE("--timeout: %g is out of range; give seconds above 0", options->timeout);
    CLI_TRY(check_documents(options));
    CLI_TRY(check_dilation(options));
    CLI_TRY(check_device(options));
    CLI_TRY(check_meeting(options));
    for (int64_t i = 0; i < options->ranks.count; ++i)
        if (cli_list_at(options->transport, 0, 0) == CLI_TRANSPORT_SELF && options->ranks.values[i] != 1)
            CLI_REFUSE("--ranks: --transport self has one rank, not %lld; use --transport thread",
                       (long long)options->ranks.values[i]);
    if (options->command == CLI_RUN) return check_run(options);
    if (options->command == CLI_RANDOM && !options->shape.count)
        CLI_REFUSE("--shape: is missing; random needs --shape and --out");
    if (options->command == CLI_RANDOM && !options->out)
        CLI_REFUSE("--out: is missing; random needs --shape and --out");
    return RA_OK;
}

/* ---- the front ------------------------------------------------------------------------------------------------- */

static ra_status parse_command(const char *arg, cli_options *options) {
    options->help = strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0 || strcmp(arg, "help") == 0;
    options->version = strcmp(arg, "--version") == 0;
    for (int i = 0; i < COMMANDS; ++i)
        if (strcmp(arg, commands[i].name) == 0) options->command = commands[i].command;
    if (options->help || options->version || options->command != CLI_NONE) return RA_OK;
    CLI_REFUSE(
        "there is no command '%.100s'; choose one of run, plan, bench, verify, info, random, launch, or see ringattn "
        "--help",
        arg);
}

/* What is started must be right in itself, and leave it to launch to say which rank each process is. */
static ra_status check_passed(int argc, const char *const *argv) {
    cli_options passed;
    ra_status status = cli_options_parse(argc, argv, &passed);
    if (status == RA_OK && (!(passed.command & RANKS) || passed.help))
        status = ra_fail(RA_ERR_ARGUMENT, "launch: starts run, bench or verify, not '%.100s'", argc ? argv[0] : "");
    if (status == RA_OK && (passed.transport.count || passed.ranks.count || passed.rank.count))
        status = ra_fail(RA_ERR_ARGUMENT, "launch: leave --transport, --ranks and --rank out; it says them itself");
    cli_options_free(&passed);
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
            CLI_REFUSE("'%.100s': launch takes -n N, and after -- the command to run", argv[at]);
        if (++at == argc) CLI_REFUSE("-n: needs a value after it");
        CLI_TRY(parse_int("-n", argv[at], 1, 4096, &processes));
    }
    if (!processes) CLI_REFUSE("-n: is missing; say how many processes to start");
    if (at + 1 >= argc) CLI_REFUSE("launch: the command to run is missing; put it after --");
    options->processes = (int)processes;
    options->passed = argv + at + 1;
    options->passed_count = argc - at - 1;
    return check_passed(options->passed_count, options->passed);
}

ra_status cli_options_parse(int argc, const char *const *argv, cli_options *options_out) {
    *options_out = (cli_options){0};
    if (argc < 1)
        CLI_REFUSE("a command is missing; choose one of run, plan, bench, verify, info, random, launch, or see "
                   "ringattn --help");
    CLI_TRY(parse_command(argv[0], options_out));
    if (options_out->command == CLI_NONE) return RA_OK;
    if (options_out->command == CLI_LAUNCH) return parse_launch(argc, argv, options_out);
    for (int at = 1; at < argc && !options_out->help;) CLI_TRY(take_flag(argc, argv, &at, options_out));
    return options_out->help ? RA_OK : check_together(options_out);
}

void cli_options_free(cli_options *options) {
    for (int i = 0; i < FLAGS; ++i) {
        if (flags[i].kind != KIND_INTS && flags[i].kind != KIND_NAMES && flags[i].kind != KIND_PAIRS) continue;
        cli_list *list = (cli_list *)((char *)options + flags[i].offset);
        free(list->values);
        *list = (cli_list){0};
    }
}

int64_t cli_list_at(cli_list list, int64_t i, int64_t otherwise) {
    return i < list.count ? list.values[i] : otherwise;
}

int64_t cli_words_count(const char *words) {
    int64_t count = words != NULL;
    for (; words && *words; ++words) count += *words == ',';
    return count;
}

void cli_words_at(const char *words, int64_t i, char *word_out, size_t bytes) {
    for (; words && i > 0; --i) words += strcspn(words, ",") + 1;
    snprintf(word_out, bytes, "%.*s", words ? (int)strcspn(words, ",") : 0, words ? words : "");
}
