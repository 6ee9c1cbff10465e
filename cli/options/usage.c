/* What --help prints. */
#include "options/options.h"

#include <stddef.h>

static const char all_usage[] =
    "ringattn: exact attention over sequences cut across ranks\n"
    "\n"
    "usage: ringattn COMMAND [options]\n"
    "\n"
    "  run      compute attention over .npy files\n"
    "  plan     what each rank would hold, compute and send, without running\n"
    "  bench    time it on random tensors; several values sweep (--seq 4096,8192)\n"
    "  verify   compare with a naive fp64 implementation on random tensors\n"
    "  info     what an issue report begins with: build, machine, kernels, transports, devices, settings\n"
    "  random   write a .npy file of random numbers\n"
    "  launch   start the ranks of a run, bench or verify as processes on this machine\n"
    "\n"
    "  ringattn COMMAND --help    the options of a command\n"
    "  ringattn --version\n"
    "\n"
    "Exit status: 0 success, 1 failed, 2 wrong use.\n";

#define PATTERN_USAGE                                                                                                  \
    "what is seen:\n"                                                                                                  \
    "  --causal                  no key after the query; the last query is aligned with the last key\n"                \
    "  --window LEFT,RIGHT       how many keys before and after its aligned position a query sees; -1: no limit\n"     \
    "  --cu-seqlens 0,a,b,...    packed documents: where each begins, and last the number of queries; the batch is "   \
    "1\n"                                                                                                              \
    "  --cu-seqlens-k 0,a,b,...  likewise for the keys (default: as --cu-seqlens)\n"                                   \
    "  --scale X                 what scores are multiplied by (default 1/sqrt(dim))\n"                                \
    "  --dilated W:R,W:R,...     LongNet: segments of W keys, of each of which every R-th is kept; one W:R for each "  \
    "branch\n"                                                                                                         \
    "  --dilated-heads NAME      all (every head has every branch, default) or groups (heads dealt to branches)\n"     \
    "  --dilated-offset NAME     which key of a segment is kept first, by head (default), block of heads, or branch "  \
    "(group)\n"                                                                                                        \
    "  --dilated-combine NAME    lse (one softmax over all branches, default) or mean\n"
#define WAY_USAGE                                                                                                      \
    "how it is computed:\n"                                                                                            \
    "  --ranks N                 how many ranks the sequence is cut across (default 1, or that of the processes)\n"    \
    "  --transport NAME          thread (default), self, mpi (default for several processes), ucx or nccl\n"           \
    "  --rank R                  with ucx: which of the --ranks N processes this is, from 0\n"                         \
    "  --rendezvous FOLDER       with ucx: the folder in which they meet; without these two, as torchrun's variables " \
    "say\n"                                                                                                            \
    "  --strategy NAME           ring, pairwise, allgather, passq or auto (default)\n"                                 \
    "  --layout NAME             contiguous, zigzag, striped, documents or auto (default)\n"                           \
    "  --kernel NAME             one that `ringattn info` lists, or auto (default)\n"                                  \
    "  --device NAME             cpu (default), cuda (ranks are dealt to the GPUs in turn) or cuda:N (all ranks on "   \
    "that one)\n"                                                                                                      \
    "  --threads N               threads of each rank (default: the cores, divided among the ranks)\n"                 \
    "  --timeout SECONDS         how long a silent rank is waited for (default 60)\n"
#define SHAPE_USAGE                                                                                                    \
    "the problem:\n"                                                                                                   \
    "  --batch N                 sequences (default 1)\n"                                                              \
    "  --seq N, --seq-k N        queries (default 4096, verify 512) and keys (default: --seq)\n"                       \
    "  --heads N, --kv-heads N   heads of the queries (default 8) and of the keys (default: --heads)\n"                \
    "  --dim N, --dim-v N        elements of a query or key (default 64) and of a value (default: --dim)\n"            \
    "  --dtype f64|f32|bf16|f16  of the arrays in memory (default f32)\n"

static const char run_usage[] =
    "usage: ringattn run --q Q.npy --k K.npy --v V.npy --out O.npy [options]\n"
    "\n"
    "Arrays are C-order .npy files [batch, rows, heads, dim] of f2, f4 or f8.\n"
    "\n"
    "files:\n"
    "  --q, --k, --v FILE        queries, keys, values\n"
    "  --out FILE                the output, f4 (f8 with --dtype f64)\n"
    "  --lse FILE                log-sum-exp [batch, heads, rows]\n"
    "  --dout FILE               gradient of the output: the backward pass runs too\n"
    "  --dq, --dk, --dv FILE     the gradients\n"
    "  --report FILE             JSON: what was chosen, held, sent, and how long it took\n"
    "  --check ROWS              compare that many rows of the output with fp64 before it is put in place\n"
    "  --dtype f64|f32|bf16|f16  to compute with (default f32, f64 when Q.npy is f8)\n"
    "\n" PATTERN_USAGE "\n" WAY_USAGE;

static const char plan_usage[] = "usage: ringattn plan [options]\n"
                                 "\n" SHAPE_USAGE "\n" PATTERN_USAGE "\n" WAY_USAGE "\n"
                                 "  --backward                plan for the backward pass too\n"
                                 "  --json                    print JSON\n";

static const char bench_usage[] =
    "usage: ringattn bench [options]\n"
    "\n"
    "Numbers and names may be lists (--seq 4096,8192 --strategy ring,allgather): every combination is timed.\n"
    "\n" SHAPE_USAGE "\n" PATTERN_USAGE "\n" WAY_USAGE "\n"
    "  --backward                time the backward pass too\n"
    "  --repeat K                runs to take the median of (default 3)\n"
    "  --seed N                  of the random tensors (default 1)\n"
    "  --json                    print one JSON array\n";

static const char verify_usage[] = "usage: ringattn verify [options]\n"
                                   "\n"
                                   "Both passes on random tensors against fp64; exit 1 when out of tolerance.\n"
                                   "\n" SHAPE_USAGE "\n" PATTERN_USAGE "\n" WAY_USAGE "\n"
                                   "  --seed N                  of the random tensors (default 1)\n";

static const char info_usage[] =
    "usage: ringattn info [--json]\n"
    "\n"
    "How it was built, the machine, kernels, transports and their libraries, devices, environment variables.\n";

static const char random_usage[] =
    "usage: ringattn random --shape B,S,H,D --out F.npy [--seed N] [--dtype f64|f32|f16]\n"
    "\n"
    "Writes normally distributed numbers; the same seed gives the same numbers.\n";

static const char launch_usage[] =
    "usage: ringattn launch -n N -- COMMAND [options]\n"
    "\n"
    "Starts N processes on this machine, each of which is one rank of a run, bench or verify over ucx, and waits for\n"
    "them. When one fails the others are ended, and its exit status is that of launch.\n";

const char *cli_usage(cli_command command) {
    switch (command) {
    case CLI_RUN:
        return run_usage;
    case CLI_PLAN:
        return plan_usage;
    case CLI_BENCH:
        return bench_usage;
    case CLI_VERIFY:
        return verify_usage;
    case CLI_INFO:
        return info_usage;
    case CLI_RANDOM:
        return random_usage;
    case CLI_LAUNCH:
        return launch_usage;
    case CLI_NONE:
        break;
    }
    return all_usage;
}
