#include "launch.h"

#include "cli.h"
#include "devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef RA_HAVE_MPI
#include <ringattn/mpi.h>
#endif

enum { SENTENCE_BYTES = 1024 };

static int lost(ra_status status) {
    return status == RA_ERR_TIMEOUT || status == RA_ERR_PEER || status == RA_ERR_TRANSPORT || status == RA_ERR_BROKEN;
}

int launch_exit_code(ra_status status) {
    if (status == RA_OK) return 0;
    return status == RA_ERR_ARGUMENT || status == RA_ERR_UNSUPPORTED ? 2 : 1;
}

/* ---- MPI ------------------------------------------------------------------------------------------------------- */

#ifdef RA_HAVE_MPI
static ra_status open_mpi(const cli_options *options, cli_launch *launch) {
    int level;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return ra_fail(CLI_FAILED, "--transport mpi: MPI could not be initialised");
    MPI_Comm_size(MPI_COMM_WORLD, &launch->processes);
    MPI_Comm_rank(MPI_COMM_WORLD, &launch->process);
    for (int64_t i = 0; i < options->ranks.count; ++i)
        if (options->ranks.values[i] != launch->processes)
            CLI_REFUSE("--ranks: %lld ranks, but mpirun started %d process%s; leave --ranks out under mpi",
                       (long long)options->ranks.values[i], launch->processes, launch->processes == 1 ? "" : "es");
    return RA_OK;
}

/* The same ranks over NCCL, beside MPI. */
static ra_status run_nccl(const cli_launch *launch, ra_comm *host, ra_rank_body body, void *user) {
    ra_comm *comm = NULL;
    CLI_TRY(devices_nccl(launch->options, host, launch->timeout_seconds, &comm));
    ra_status status = body(comm, user);
    char sentence[SENTENCE_BYTES];
    snprintf(sentence, sizeof sentence, "%s", ra_last_error());
    ra_comm_destroy(comm);
    return status == RA_OK ? RA_OK : ra_fail(status, "%s", sentence);
}

static ra_status run_mpi(const cli_launch *launch, ra_rank_body body, void *user) {
    ra_comm *comm;
    CLI_TRY(ra_comm_create_mpi(MPI_COMM_WORLD, &comm));
    ra_status status =
        launch->transport == CLI_TRANSPORT_NCCL ? run_nccl(launch, comm, body, user) : body(comm, user);
    char sentence[SENTENCE_BYTES];
    snprintf(sentence, sizeof sentence, "%s", ra_last_error());
    /* Destroying is collective; peers that are lost will not come to it. */
    if (!lost(status)) ra_comm_destroy(comm);
    return status == RA_OK ? RA_OK : ra_fail(status, "%s", sentence);
}

static void close_mpi(ra_status status) {
    if (lost(status)) {
        /* mpirun kills the other processes at once: leave them time to say what they know. */
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        MPI_Abort(MPI_COMM_WORLD, launch_exit_code(status));
    }
    MPI_Finalize();
}
#else
static ra_status open_mpi(const cli_options *options, cli_launch *launch) {
    (void)options;
    return ra_fail(RA_ERR_UNSUPPORTED, "--transport %s: this ringattn was built without MPI; use --transport thread",
                   launch->transport == CLI_TRANSPORT_NCCL ? "nccl" : "mpi");
}

static ra_status run_mpi(const cli_launch *launch, ra_rank_body body, void *user) {
    (void)launch, (void)body, (void)user;
    return ra_fail(RA_ERR_UNSUPPORTED, "--transport mpi: this ringattn was built without MPI");
}

static void close_mpi(ra_status status) {
    (void)status;
}
#endif

/* ---- any transport --------------------------------------------------------------------------------------------- */

static ra_status run_self(ra_rank_body body, void *user) {
    ra_comm *comm;
    CLI_TRY(ra_comm_create_self(&comm));
    ra_status status = body(comm, user);
    ra_comm_destroy(comm);
    return status;
}

ra_status launch_open(const cli_options *options, cli_launch *launch_out) {
    *launch_out = (cli_launch){.options = options,
                               .transport = (cli_transport)cli_list_at(options->transport, 0, CLI_TRANSPORT_THREAD),
                               .timeout_seconds = options->timeout_given ? options->timeout : 60};
    int ordinal, nccl = launch_out->transport == CLI_TRANSPORT_NCCL;
    CLI_TRY(devices_ordinal(options, 0, &ordinal));
    if (nccl && !devices_have_nccl())
        return ra_fail(RA_ERR_UNSUPPORTED, "--transport nccl: this ringattn was built without NCCL; use --transport mpi");
    return nccl || launch_out->transport == CLI_TRANSPORT_MPI ? open_mpi(options, launch_out) : RA_OK;
}

int launch_close(cli_launch *launch, ra_status status) {
    /* What the ranks agreed on is said once; what tore them apart looks different to each. */
    if (status != RA_OK && (launch->process == 0 || lost(status))) {
        fprintf(stderr, "ringattn: error: %s\n", ra_last_error());
        fflush(stderr);
    }
    if (launch->processes) close_mpi(status);
    return launch_exit_code(status);
}

ra_status launch_run(const cli_launch *launch, int ranks, ra_rank_body body, void *user) {
    if (launch->processes) return run_mpi(launch, body, user);
    return launch->transport == CLI_TRANSPORT_SELF ? run_self(body, user) : ra_run_threads(ranks, body, user);
}

/* Some rank has failed: takes over the sentence of the first. statuses [ranks]. */
static ra_status share_sentence(ra_comm *comm, const int *statuses, const char *mine, double timeout_seconds) {
    int ranks = ra_comm_ranks(comm), culprit = 0;
    while (statuses[culprit] == RA_OK) ++culprit;
    char *sentences = malloc((size_t)ranks * SENTENCE_BYTES);
    if (!sentences) return ra_fail((ra_status)statuses[culprit], "rank %d failed", culprit);
    ra_status status = ra_comm_allgather(comm, mine, SENTENCE_BYTES, sentences, timeout_seconds);
    if (status == RA_OK)
        status =
            ra_fail((ra_status)statuses[culprit], "%.*s", SENTENCE_BYTES, sentences + (size_t)culprit * SENTENCE_BYTES);
    free(sentences);
    return status;
}

ra_status launch_agree(ra_comm *comm, ra_status mine, double timeout_seconds) {
    char sentence[SENTENCE_BYTES] = "";
    if (mine != RA_OK) snprintf(sentence, sizeof sentence, "%s", ra_last_error());
    if (lost(mine)) return mine;
    int ranks = ra_comm_ranks(comm), value = mine, failed = 0;
    int *statuses = malloc((size_t)ranks * sizeof *statuses);
    if (!statuses) return ra_fail(RA_ERR_MEMORY, "no memory for the status of %d ranks", ranks);
    ra_status status = ra_comm_allgather(comm, &value, sizeof value, statuses, timeout_seconds);
    for (int i = 0; status == RA_OK && i < ranks; ++i) failed |= statuses[i] != RA_OK;
    if (failed) status = share_sentence(comm, statuses, sentence, timeout_seconds);
    free(statuses);
    return status;
}
