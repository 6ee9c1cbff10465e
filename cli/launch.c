#include "launch.h"

#include "cli.h"
#include "devices.h"
#include "launcher.h"
#include "watchdog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef RA_HAVE_MPI
#include <ringattn/mpi.h>
#endif

enum { SENTENCE_BYTES = 1024, AT_WORK = -1 /* in the place of a status */ };

/* MPI may take this long to start the processes, however short the deadline is. */
#define START_SECONDS 10.0

static int lost(ra_status status) {
    return status == RA_ERR_TIMEOUT || status == RA_ERR_PEER || status == RA_ERR_TRANSPORT || status == RA_ERR_BROKEN;
}

void launch_complain(const char *sentence) {
    char line[SENTENCE_BYTES];
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

/* ---- MPI ------------------------------------------------------------------------------------------------------- */

#ifdef RA_HAVE_MPI
static const char start_sentence[] = "MPI_Init did not end: another process has not come to it";

/* --ranks, and what the launcher says, against the processes that MPI knows of. */
static ra_status check_processes(const cli_launch *launch) {
    const cli_list *ranks = &launch->options->ranks;
    for (int64_t i = 0; i < ranks->count; ++i)
        if (ranks->values[i] != launch->processes)
            CLI_REFUSE("--ranks: %lld ranks, but mpirun started %d process%s; leave --ranks out under mpi",
                       (long long)ranks->values[i], launch->processes, launch->processes == 1 ? "" : "es");
    int started = launcher_processes();
    if (launch->processes == 1 && started > 1)
        CLI_REFUSE(
            "--transport mpi: the launcher started %d processes, but MPI knows of one, so that each would do the "
            "whole job; use the launcher of the MPI that ringattn was built with",
            started);
    return RA_OK;
}

static ra_status open_mpi(cli_launch *launch) {
    int level;
    double seconds = launch->timeout_seconds;
    watchdog_begin(seconds > START_SECONDS ? seconds : START_SECONDS, start_sentence, NULL);
    int initialised = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    watchdog_end();
    if (initialised != MPI_SUCCESS) return ra_fail(CLI_FAILED, "--transport mpi: MPI could not be initialised");
    MPI_Comm_size(MPI_COMM_WORLD, &launch->processes);
    MPI_Comm_rank(MPI_COMM_WORLD, &launch->process);
    CLI_TRY(ra_comm_create_mpi(MPI_COMM_WORLD, &launch->comm));
    return launch_agree(launch->comm, check_processes(launch), seconds);
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
    return launch->transport == CLI_TRANSPORT_NCCL ? run_nccl(launch, launch->comm, body, user)
                                                   : body(launch->comm, user);
}

/* The processes have lost each other, or the launcher looks at nothing else. */
static void abort_mpi(int code) {
    /* mpirun kills the other processes at once: leave them time to say what they know. */
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    MPI_Abort(MPI_COMM_WORLD, code);
}

/* Most launchers end a job one process of which exits with an error; the others are told by MPI itself. */
static void withdraw_mpi(int code) {
    int initialised = 0;
    MPI_Initialized(&initialised);
    if (initialised || launcher_processes() == 1 || !launcher_ignores_exit_codes()) return;
    watchdog_begin(START_SECONDS, start_sentence, NULL);
    MPI_Init(NULL, NULL);
    abort_mpi(code);
}

/* Only the thread that is stuck in MPI_Finalize may call MPI, but a job that is broken may as well be told from here:
 * otherwise a process that is stopped stays where exit codes are not looked at. */
static void abort_late(void) {
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Destroying the comm and MPI_Finalize are collective, and every process is on its way to them: one that does not
 * arrive died or was stopped after it had said that all is well. */
static void close_mpi(cli_launch *launch, int gone, int code) {
    watchdog_begin(launch->timeout_seconds,
                   gone ? "MPI_Abort did not end this process"
                        : "MPI_Finalize did not end: another process has not come to it",
                   gone ? NULL : abort_late);
    if (gone || (code && launcher_ignores_exit_codes())) abort_mpi(code);
    ra_comm_destroy(launch->comm);
    MPI_Finalize();
    watchdog_end();
}
#else
static ra_status open_mpi(cli_launch *launch) {
    return ra_fail(RA_ERR_UNSUPPORTED, "--transport %s: this ringattn was built without MPI; use --transport thread",
                   launch->transport == CLI_TRANSPORT_NCCL ? "nccl" : "mpi");
}

static ra_status run_mpi(const cli_launch *launch, ra_rank_body body, void *user) {
    (void)launch, (void)body, (void)user;
    return ra_fail(RA_ERR_UNSUPPORTED, "--transport mpi: this ringattn was built without MPI");
}

static void withdraw_mpi(int code) {
    (void)code;
}

static void close_mpi(cli_launch *launch, int gone, int code) {
    (void)launch, (void)gone, (void)code;
}
#endif

/* ---- agreement ------------------------------------------------------------------------------------------------- */

/* The others wait for an exchange that this rank cannot take part in. */
static ra_status absent(const char *reason) {
    return ra_fail(RA_ERR_BROKEN, "%s", reason);
}

/* Whether every rank came with the sentence of the culprit: then it is nobody's in particular. */
static int all_say(const char *sentences, int ranks, const char *sentence) {
    for (int r = 0; r < ranks; ++r)
        if (strcmp(sentences + (size_t)r * SENTENCE_BYTES, sentence) != 0) return 0;
    return 1;
}

/* Some rank has failed: takes over the sentence of the first. statuses [ranks]. */
static ra_status share_sentence(ra_comm *comm, const int *statuses, const char *mine, double timeout_seconds) {
    int ranks = ra_comm_ranks(comm), culprit = 0;
    while (statuses[culprit] == RA_OK) ++culprit;
    char *sentences = malloc((size_t)ranks * SENTENCE_BYTES);
    if (!sentences) return absent("no memory for the sentences of the ranks");
    ra_status status = ra_comm_allgather(comm, mine, SENTENCE_BYTES, sentences, timeout_seconds);
    if (status == RA_OK) {
        const char *said = sentences + (size_t)culprit * SENTENCE_BYTES;
        int named = strncmp(said, "rank ", 5) == 0 || all_say(sentences, ranks, said);
        status = named ? ra_fail((ra_status)statuses[culprit], "%s", said)
                       : ra_fail((ra_status)statuses[culprit], "rank %d: %s", culprit, said);
    }
    free(sentences);
    return status;
}

/* One round: statuses_out [ranks]. */
static ra_status exchange(ra_comm *comm, int mine, double timeout_seconds, int *statuses_out) {
    return ra_comm_allgather(comm, &mine, sizeof mine, statuses_out, timeout_seconds);
}

static int count_of(const int *statuses, int ranks, int value) {
    int count = 0;
    for (int r = 0; r < ranks; ++r) count += statuses[r] == value;
    return count;
}

/* Rounds until no rank is at work any more. sentence [SENTENCE_BYTES]: why mine is what it is. */
static ra_status agree_whatever(ra_comm *comm, ra_status mine, const char *sentence, double timeout_seconds) {
    int ranks = ra_comm_ranks(comm);
    int *statuses = malloc((size_t)ranks * sizeof *statuses);
    if (!statuses) return absent("no memory for the statuses of the ranks");
    ra_status status;
    do status = exchange(comm, mine, timeout_seconds, statuses);
    while (status == RA_OK && count_of(statuses, ranks, AT_WORK));
    if (status == RA_OK && count_of(statuses, ranks, RA_OK) < ranks)
        status = share_sentence(comm, statuses, sentence, timeout_seconds);
    free(statuses);
    return status;
}

ra_status launch_agree(ra_comm *comm, ra_status mine, double timeout_seconds) {
    char sentence[SENTENCE_BYTES] = "";
    if (mine != RA_OK) snprintf(sentence, sizeof sentence, "%s", ra_last_error());
    return lost(mine) ? mine : agree_whatever(comm, mine, sentence, timeout_seconds);
}

ra_status launch_at_work(ra_comm *comm, double timeout_seconds) {
    int ranks = ra_comm_ranks(comm);
    int *statuses = malloc((size_t)ranks * sizeof *statuses);
    if (!statuses) return absent("no memory for the statuses of the ranks");
    ra_status status = exchange(comm, AT_WORK, timeout_seconds, statuses);
    free(statuses);
    return status;
}

/* ---- any transport --------------------------------------------------------------------------------------------- */

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
    if (options->transport.count || started == 1) return RA_OK;
    *transport_out = CLI_TRANSPORT_MPI;
#ifndef RA_HAVE_MPI
    return ra_fail(
        RA_ERR_UNSUPPORTED,
        "--transport: %d processes were started together, and this ringattn, built without MPI, would do the "
        "whole job in each; start one, or say --transport thread",
        started);
#else
    return RA_OK;
#endif
}

ra_status launch_open(const cli_options *options, cli_launch *launch_out) {
    *launch_out = (cli_launch){.options = options, .timeout_seconds = options->timeout_given ? options->timeout : 60};
    CLI_TRY(choose_transport(options, &launch_out->transport));
    int ordinal, nccl = launch_out->transport == CLI_TRANSPORT_NCCL;
    CLI_TRY(devices_ordinal(options, 0, &ordinal));
    if (nccl && !devices_have_nccl())
        return ra_fail(RA_ERR_UNSUPPORTED,
                       "--transport nccl: this ringattn was built without NCCL; use --transport mpi");
    return nccl || launch_out->transport == CLI_TRANSPORT_MPI ? open_mpi(launch_out) : RA_OK;
}

/* Whether the processes can no longer come together: what the comm says, not what this process met. Those that can
 * agree on how it went. status: changed to what was agreed; sentence [SENTENCE_BYTES]: what is to be said. */
static int part(const cli_launch *launch, ra_status *status, char *sentence) {
    snprintf(sentence, SENTENCE_BYTES, "%s", *status == RA_OK ? "" : ra_last_error());
    if (!launch->processes) return 0;
    ra_status agreed =
        launch->comm ? agree_whatever(launch->comm, *status, sentence, launch->timeout_seconds) : *status;
    int gone = !launch->comm || lost(agreed);
    /* What made this process fail says more than that the others are gone. */
    if (gone && *status != RA_OK) return 1;
    if (agreed != RA_OK) snprintf(sentence, SENTENCE_BYTES, "%s", ra_last_error());
    *status = agreed;
    return gone;
}

int launch_close(cli_launch *launch, ra_status status) {
    char sentence[SENTENCE_BYTES] = "";
    int gone = part(launch, &status, sentence), code = launch_exit_code(status);
    /* What the ranks agreed on is said once; what tore them apart looks different to each. */
    if (code && (launch->process == 0 || gone)) launch_complain(sentence);
    if (launch->processes)
        close_mpi(launch, gone, code);
    else if (code)
        launch_withdraw(code);
    return code;
}

void launch_withdraw(int code) {
    withdraw_mpi(code);
}

ra_status launch_run(const cli_launch *launch, int ranks, ra_rank_body body, void *user) {
    if (launch->processes) return run_mpi(launch, body, user);
    return launch->transport == CLI_TRANSPORT_SELF ? run_self(body, user) : ra_run_threads(ranks, body, user);
}
