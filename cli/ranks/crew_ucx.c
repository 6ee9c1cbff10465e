#include "ranks/crew_ucx.h"

#include "cli.h"
#include "ranks/crew_mpi.h"
#include "ranks/launcher.h"

#include <ringattn/ucx.h>
#include <stdlib.h>

int crew_ucx_wants_mpi(const cli_options *options) {
    return !options->rendezvous && !getenv("RANK") && launcher_processes() > 1 && crew_mpi_built();
}

static ra_ucx_options limits(double timeout_seconds) {
    ra_ucx_options options = RA_UCX_OPTIONS_INIT;
    options.create_seconds = timeout_seconds;
    options.destroy_seconds = timeout_seconds < 5 ? timeout_seconds : 5;
    return options;
}

static ra_status meet(const cli_crew *crew, ra_rendezvous **meeting_out) {
    const cli_options *options = crew->options;
    if (!options->rendezvous) return ra_rendezvous_environment(crew->timeout_seconds, meeting_out);
    return ra_rendezvous_folder(options->rendezvous, crew->process, crew->processes, crew->timeout_seconds,
                                meeting_out);
}

/* --ranks against the processes that met. */
static ra_status check_processes(const cli_crew *crew) {
    const cli_list *ranks = &crew->options->ranks;
    for (int64_t i = 0; i < ranks->count; ++i)
        if (ranks->values[i] != crew->processes)
            CLI_RETURN_REFUSAL("--ranks: %lld ranks, but WORLD_SIZE is %d; leave --ranks out",
                               (long long)ranks->values[i], crew->processes);
    return RA_OK;
}

static ra_status connect_all(cli_crew *crew, ra_rendezvous *meeting) {
    ra_ucx_options options = limits(crew->timeout_seconds);
    crew->process = ra_rendezvous_rank(meeting);
    crew->processes = ra_rendezvous_ranks(meeting);
    CLI_RETURN_ON_ERROR(
        ra_comm_create_ucx(crew->process, crew->processes, ra_rendezvous_allgather, meeting, &options, &crew->comm));
    return crew_agree(crew->comm, check_processes(crew), crew->timeout_seconds);
}

ra_status crew_ucx_open(cli_crew *crew) {
    const cli_options *options = crew->options;
    ra_rendezvous *meeting = NULL;
    crew->by_ucx = 1;
    crew->process = (int)cli_list_at(options->rank, 0, 0);
    crew->processes = options->rendezvous ? (int)options->ranks.values[0] : 1;
    CLI_RETURN_ON_ERROR(meet(crew, &meeting));
    ra_status status = connect_all(crew, meeting);
    ra_rendezvous_destroy(meeting);
    return status;
}

/* user: what ra_comm_allgather needs beside the bytes. */
typedef struct host_exchange {
    ra_comm *host;
    double timeout_seconds;
} host_exchange;

static ra_status over_host(void *user, const void *mine, size_t bytes, void *all_out) {
    const host_exchange *e = user;
    return ra_comm_allgather(e->host, mine, bytes, all_out, e->timeout_seconds);
}

ra_status crew_ucx_beside(ra_comm *host, double timeout_seconds, ra_comm **comm_out) {
    ra_ucx_options options = limits(timeout_seconds);
    host_exchange e = {host, timeout_seconds};
    return ra_comm_create_ucx(ra_comm_rank(host), ra_comm_ranks(host), over_host, &e, &options, comm_out);
}
