/* The command line as data. Parsing is a pure function: it reads its arguments and the library's tables of names,
 * touches no file and never exits, so that a fuzzer can drive it. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <ringattn/ringattn.h>

/* The most that the library takes, beside RA_MAX_DIM: what is more is refused where the option or file has a name. */
#define CLI_SEQ_MAX ((int64_t)1 << 40)
enum { CLI_BATCH_MAX = 1 << 20, CLI_HEADS_MAX = 1 << 16 };

/* Bits, so that a flag can say which commands take it. */
typedef enum cli_command {
    CLI_NONE = 0,
    CLI_RUN = 1,
    CLI_PLAN = 2,
    CLI_BENCH = 4,
    CLI_VERIFY = 8,
    CLI_INFO = 16,
    CLI_RANDOM = 32,
    CLI_LAUNCH = 64
} cli_command;

typedef enum cli_transport {
    CLI_TRANSPORT_THREAD,
    CLI_TRANSPORT_SELF,
    CLI_TRANSPORT_MPI,
    CLI_TRANSPORT_NCCL,
    CLI_TRANSPORT_UCX
} cli_transport;

/* What --device stands for; CLI_DEVICE_CUDA + 1 + N is cuda:N. */
enum { CLI_DEVICE_CPU, CLI_DEVICE_CUDA };

/* What a flag was given; empty when it was not. Numbers as they stand, names as the value they stand for. */
typedef struct cli_list {
    int64_t *values;
    int64_t count;
} cli_list;

typedef struct cli_options {
    cli_command command;
    int help, version;
    int json, backward, causal;
    const char *q, *k, *v, *dout;                  /* inputs of run */
    const char *out, *lse, *dq, *dk, *dv, *report; /* outputs of run; out of random */
    cli_list batch, seq, seq_k, heads, kv_heads, dim, dim_v;
    cli_list ranks, rank, threads, repeat, check, seed;
    const char *rendezvous;       /* a folder that the processes of --transport ucx meet in */
    int processes;                /* launch: how many to start */
    const char *const *forwarded; /* launch: the command that they run, in argv */
    int forwarded_count;
    cli_list dtype, strategy, layout; /* ra_dtype, ra_strategy, ra_layout */
    const char *kernel;               /* names with commas between them; which there are depends on the device */
    cli_list transport, device;       /* cli_transport; see CLI_DEVICE_CUDA */
    cli_list window;                  /* left, right */
    cli_list cu_q, cu_k;              /* documents + 1 entries */
    cli_list dilated;                 /* segment, rate, segment, rate, ... */
    cli_list dilated_heads, dilated_offset, dilated_combine;
    cli_list shape; /* batch, rows, heads, dim */
    double scale, timeout;
    int scale_given, timeout_given;
} cli_options;

/* argv: without the program's name. Fills *options_out, which keeps pointers into argv; release it with
 * cli_options_free whether this succeeds or not. */
ra_status cli_options_parse(int argc, const char *const *argv, cli_options *options_out);
void cli_options_free(cli_options *options);

/* The i-th value, or what holds when the flag was not given. */
int64_t cli_list_at(cli_list list, int64_t i, int64_t otherwise);

/* How many words with commas between them there are, 0 for NULL; and the i-th, shortened to fit. */
int64_t cli_words_count(const char *words);
void cli_words_at(const char *words, int64_t i, char *word_out, size_t bytes);

/* What --help prints for a command, or for all of them together for CLI_NONE. */
const char *cli_usage(cli_command command);

#endif
