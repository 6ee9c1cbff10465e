#include "options/option_checks.h"

#include "cli.h"

#include <stdio.h>
#include <string.h>

/* Equal neighbours are a document without rows. */
static ra_status check_ascending(const char *name, cli_list list) {
    if (list.count == 0) return RA_OK;
    if (list.count < 2) CLI_RETURN_REFUSAL("%s: needs at least two entries, 0 and the length of the sequence", name);
    if (list.values[0] != 0)
        CLI_RETURN_REFUSAL("%s: starts with %lld; the first entry is 0", name, (long long)list.values[0]);
    for (int64_t i = 1; i < list.count; ++i)
        if (list.values[i] < list.values[i - 1])
            CLI_RETURN_REFUSAL("%s: %lld after %lld; the entries must not decrease", name, (long long)list.values[i],
                               (long long)list.values[i - 1]);
    return RA_OK;
}

static ra_status check_documents(const cli_options *options) {
    CLI_RETURN_ON_ERROR(check_ascending("--cu-seqlens", options->cu_q));
    CLI_RETURN_ON_ERROR(check_ascending("--cu-seqlens-k", options->cu_k));
    if (options->cu_k.count && !options->cu_q.count) CLI_RETURN_REFUSAL("--cu-seqlens-k: needs --cu-seqlens beside it");
    if (options->cu_k.count && options->cu_k.count != options->cu_q.count)
        CLI_RETURN_REFUSAL(
            "--cu-seqlens-k: has %lld entries and --cu-seqlens %lld; queries and keys have the same documents",
            (long long)options->cu_k.count, (long long)options->cu_q.count);
    return RA_OK;
}

static ra_status check_dilation(const cli_options *options) {
    const char *orphan = options->dilated_heads.count     ? "--dilated-heads"
                         : options->dilated_offset.count  ? "--dilated-offset"
                         : options->dilated_combine.count ? "--dilated-combine"
                                                          : NULL;
    if (orphan && !options->dilated.count) CLI_RETURN_REFUSAL("%s: needs --dilated beside it", orphan);
    if (options->dilated.count > 2 * 64)
        CLI_RETURN_REFUSAL("--dilated: has %lld branches; at most 64 are supported",
                           (long long)options->dilated.count / 2);
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
    CLI_RETURN_REFUSAL("--kernel: there is no kernel '%s'; choose one of %s", name, choices);
}

static ra_status check_device(const cli_options *options) {
    int on_cpu = cli_list_at(options->device, 0, CLI_DEVICE_CPU) == CLI_DEVICE_CPU;
    if (on_cpu && cli_list_at(options->transport, 0, 0) == CLI_TRANSPORT_NCCL)
        CLI_RETURN_REFUSAL("--transport: nccl moves the memory of GPUs; add --device cuda, or use mpi");
    for (int64_t i = 0; i < cli_words_count(options->kernel); ++i) {
        char name[64];
        cli_words_at(options->kernel, i, name, sizeof name);
        if (name[0] == '\0') CLI_RETURN_REFUSAL("--kernel: a name is empty");
        if (on_cpu) CLI_RETURN_ON_ERROR(check_kernel(name));
    }
    return RA_OK;
}

/* Processes that meet in a folder are told there who they are; others by their environment, or by mpirun. */
static ra_status check_meeting(const cli_options *options) {
    const char *orphan = options->rank.count ? "--rank" : options->rendezvous ? "--rendezvous" : NULL;
    if (!orphan) return RA_OK;
    if (cli_list_at(options->transport, 0, 0) != CLI_TRANSPORT_UCX)
        CLI_RETURN_REFUSAL("%s: is for processes that meet over ucx; add --transport ucx", orphan);
    if (!options->rank.count) CLI_RETURN_REFUSAL("--rank: is missing; --rendezvous needs --rank and --ranks beside it");
    if (!options->rendezvous) CLI_RETURN_REFUSAL("--rendezvous: is missing; --rank needs it, and --ranks");
    if (options->ranks.count != 1) CLI_RETURN_REFUSAL("--ranks: say how many processes meet in --rendezvous");
    if (options->rank.values[0] >= options->ranks.values[0])
        CLI_RETURN_REFUSAL("--rank: %lld is out of range; %lld ranks are numbered from 0",
                           (long long)options->rank.values[0], (long long)options->ranks.values[0]);
    return RA_OK;
}

static ra_status check_run(const cli_options *options) {
    if (!options->q) CLI_RETURN_REFUSAL("--q: is missing; run needs --q, --k, --v and --out");
    if (!options->k) CLI_RETURN_REFUSAL("--k: is missing; run needs --q, --k, --v and --out");
    if (!options->v) CLI_RETURN_REFUSAL("--v: is missing; run needs --q, --k, --v and --out");
    if (!options->out) CLI_RETURN_REFUSAL("--out: is missing; run needs --q, --k, --v and --out");
    const char *orphan = options->dq ? "--dq" : options->dk ? "--dk" : options->dv ? "--dv" : NULL;
    if (orphan && !options->dout) CLI_RETURN_REFUSAL("%s: needs --dout, the gradient of the output", orphan);
    return RA_OK;
}

ra_status options_check(const cli_options *options) {
    if (options->timeout_given && !(options->timeout > 0 && options->timeout <= 1e9))
        CLI_RETURN_REFUSAL("--timeout: %g is out of range; give seconds above 0", options->timeout);
    CLI_RETURN_ON_ERROR(check_documents(options));
    CLI_RETURN_ON_ERROR(check_dilation(options));
    CLI_RETURN_ON_ERROR(check_device(options));
    CLI_RETURN_ON_ERROR(check_meeting(options));
    for (int64_t i = 0; i < options->ranks.count; ++i)
        if (cli_list_at(options->transport, 0, 0) == CLI_TRANSPORT_SELF && options->ranks.values[i] != 1)
            CLI_RETURN_REFUSAL("--ranks: --transport self has one rank, not %lld; use --transport thread",
                               (long long)options->ranks.values[i]);
    if (options->command == CLI_RUN) return check_run(options);
    if (options->command == CLI_RANDOM && !options->shape.count)
        CLI_RETURN_REFUSAL("--shape: is missing; random needs --shape and --out");
    if (options->command == CLI_RANDOM && !options->out)
        CLI_RETURN_REFUSAL("--out: is missing; random needs --shape and --out");
    return RA_OK;
}
