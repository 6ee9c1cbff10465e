#include "ranks/crew.h"

#include "cli.h"
#include "ranks/agreement.h"
#include "ranks/crew_mpi.h"
#include "ranks/crew_ucx.h"
#include "ranks/devices.h"
#include "ranks/launcher.h"

#include <stdio.h>

void crew_complain(const char *sentence) {
    char line[AGREEMENT_BYTES];
    snprintf(line, sizeof line, "%s", sentence);
    for (char *at = line; *at; ++at)
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
    fprintf(stderr, "ringattn: error: %s\n", line);
    fflush(stderr);
}

int crew_exit_code(ra_status status) {
    if (status == RA_OK) return 0;
    return status == RA_ERR_ARGUMENT || status == RA_ERR_UNSUPPORTED ? 2 : 1;
}

static ra_status run_self(ra_rank_body body, void *user) {
    ra_comm *comm;
    CLI_RETURN_ON_ERROR(ra_comm_create_self(&comm));
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
    if (crew_mpi_built()) return RA_OK;
    return ra_fail(RA_ERR_UNSUPPORTED,
                   "--transport: %d processes were started together, and this ringattn, built without MPI, would do "
                   "the whole job in each; start one, or say --transport thread",
                   started);
}

ra_status crew_open(const cli_options *options, cli_crew *crew_out) {
    *crew_out = (cli_crew){.options = options, .timeout_seconds = options->timeout_given ? options->timeout : 60};
    CLI_RETURN_ON_ERROR(choose_transport(options, &crew_out->transport));
    int ordinal, nccl = crew_out->transport == CLI_TRANSPORT_NCCL;
    CLI_RETURN_ON_ERROR(devices_ordinal(options, 0, &ordinal));
    if (nccl && !devices_have_nccl())
        return ra_fail(RA_ERR_UNSUPPORTED,
                       "--transport nccl: there is no NCCL (libnccl.so.2, 2.14 or later) or this ringattn was built "
                       "without it; use --transport mpi");
    if (crew_out->transport == CLI_TRANSPORT_UCX && !crew_ucx_wants_mpi(options)) return crew_ucx_open(crew_out);
    int mpi = nccl || crew_out->transport == CLI_TRANSPORT_MPI || crew_out->transport == CLI_TRANSPORT_UCX;
    return mpi ? crew_mpi_open(crew_out) : RA_OK;
}

/* Whether the processes can no longer come together: what the comm says, not what this process met. Those that can
 * agree on how it went. status: changed to what was agreed; sentence [AGREEMENT_BYTES]: what is to be said. */
static int settle(const cli_crew *crew, ra_status *status, char *sentence) {
    snprintf(sentence, AGREEMENT_BYTES, "%s", *status == RA_OK ? "" : ra_last_error());
    if (!crew->processes || (*status != RA_OK && agreement_failed())) return 0;
    ra_status agreed = crew->comm ? agreement_reach(crew->comm, *status, sentence, crew->timeout_seconds) : *status;
    int gone = !crew->comm || agreement_lost(agreed);
    /* What made this process fail says more than that the others are gone. */
    if (gone && *status != RA_OK) return 1;
    if (agreed != RA_OK) snprintf(sentence, AGREEMENT_BYTES, "%s", ra_last_error());
    *status = agreed;
    return gone;
}

int crew_close(cli_crew *crew, ra_status status) {
    char sentence[AGREEMENT_BYTES] = "";
    int gone = settle(crew, &status, sentence), code = crew_exit_code(status);
    /* What the ranks agreed on is said once; what tore them apart looks different to each. */
    if (code && (crew->process == 0 || gone)) crew_complain(sentence);
    if (crew->by_ucx)
        ra_comm_destroy(crew->comm);
    else if (crew->processes)
        crew_mpi_close(crew, gone, code);
    else if (code)
        crew_withdraw(code);
    return code;
}

void crew_withdraw(int code) {
    crew_mpi_withdraw(code);
}

ra_status crew_run(const cli_crew *crew, int ranks, ra_rank_body body, void *user) {
    if (crew->by_ucx) return body(crew->comm, user);
    if (crew->processes) return crew_mpi_run(crew, body, user);
    return crew->transport == CLI_TRANSPORT_SELF ? run_self(body, user) : ra_run_threads(ranks, body, user);
}
