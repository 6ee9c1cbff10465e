#include "launch.h"

#include "agreement.h"
#include "cli.h"
#include "devices.h"
#include "launch_mpi.h"
#include "launch_ucx.h"
#include "launcher.h"

#include <stdio.h>

void launch_complain(const char *sentence) {
    char line[AGREEMENT_BYTES];
    snprintf(line, sizeof line, "%s", sentence);
    for (char *at = line; *at; ++at)
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
    fprintf(stderr, "ringattn: error: %s\n", line);
    fflush(stderr);
}

int launch_exit_code(ra_status status) {
    if (status == RA_OK) return 0;
    return status == RA_ERR_ARGUMENT || status == RA_ERR_UNSUPPORTED ? 2 : 1;
}

static ra_status run_self(ra_rank_body body, void *user) {
    ra_comm *comm;
    CLI_TRY(ra_comm_create_self(&comm));
    ra_status status = body(comm, user);
    ra_comm_destroy(comm);
    return status;
}

/* What is asked for; else threads, unless a launcher has started several processes, each of which would do the whole
 * job. */
static ra_status choose_transport(const cli_options *options, cli_transport *transport_out) {
    int started = launcher_processes();
    *transport_out = (cli_transport)cli_list_at(options->transport, 0, CLI_TRANSPORT_THREAD);
    if (!options->transport.count && launcher_torchrun_processes() > 1) *transport_out = CLI_TRANSPORT_UCX;
    if (options->transport.count || *transport_out == CLI_TRANSPORT_UCX || started == 1) return RA_OK;
    *transport_out = CLI_TRANSPORT_MPI;
    if (launch_mpi_built()) return RA_OK;
    return ra_fail(RA_ERR_UNSUPPORTED,
                   "--transport: %d processes were started together, and this ringattn, built without MPI, would do "
                   "the whole job in each; start one, or say --transport thread",
                   started);
}

ra_status launch_open(const cli_options *options, cli_launch *launch_out) {
    *launch_out = (cli_launch){.options = options, .timeout_seconds = options->timeout_given ? options->timeout : 60};
    CLI_TRY(choose_transport(options, &launch_out->transport));
    int ordinal, nccl = launch_out->transport == CLI_TRANSPORT_NCCL;
    CLI_TRY(devices_ordinal(options, 0, &ordinal));
    if (nccl && !devices_have_nccl())
        return ra_fail(RA_ERR_UNSUPPORTED,
                       "--transport nccl: there is no NCCL (libnccl.so.2, 2.14 or later) or this ringattn was built "
                       "without it; use --transport mpi");
    if (launch_out->transport == CLI_TRANSPORT_UCX && !launch_ucx_wants_mpi(options))
        return launch_ucx_open(launch_out);
    int mpi = nccl || launch_out->transport == CLI_TRANSPORT_MPI || launch_out->transport == CLI_TRANSPORT_UCX;
    return mpi ? launch_mpi_open(launch_out) : RA_OK;
}

/* Whether the processes can no longer come together: what the comm says, not what this process met. Those that can
 * agree on how it went. status: changed to what was agreed; sentence [AGREEMENT_BYTES]: what is to be said. */
static int part(const cli_launch *launch, ra_status *status, char *sentence) {
    snprintf(sentence, AGREEMENT_BYTES, "%s", *status == RA_OK ? "" : ra_last_error());
    if (!launch->processes) return 0;
    ra_status agreed =
        launch->comm ? agreement_reach(launch->comm, *status, sentence, launch->timeout_seconds) : *status;
    int gone = !launch->comm || agreement_lost(agreed);
    /* What made this process fail says more than that the others are gone. */
    if (gone && *status != RA_OK) return 1;
    if (agreed != RA_OK) snprintf(sentence, AGREEMENT_BYTES, "%s", ra_last_error());
    *status = agreed;
    return gone;
}

int launch_close(cli_launch *launch, ra_status status) {
    char sentence[AGREEMENT_BYTES] = "";
    int gone = part(launch, &status, sentence), code = launch_exit_code(status);
    /* What the ranks agreed on is said once; what tore them apart looks different to each. */
    if (code && (launch->process == 0 || gone)) launch_complain(sentence);
    if (launch->by_ucx)
        ra_comm_destroy(launch->comm);
    else if (launch->processes)
        launch_mpi_close(launch, gone, code);
    else if (code)
        launch_withdraw(code);
    return code;
}

void launch_withdraw(int code) {
    launch_mpi_withdraw(code);
}

ra_status launch_run(const cli_launch *launch, int ranks, ra_rank_body body, void *user) {
    if (launch->by_ucx) return body(launch->comm, user);
    if (launch->processes) return launch_mpi_run(launch, body, user);
    return launch->transport == CLI_TRANSPORT_SELF ? run_self(body, user) : ra_run_threads(ranks, body, user);
}
