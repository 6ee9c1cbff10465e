#include "ranks/crew_mpi.h"

#include "cli.h"
#include "ranks/agreement.h"

#ifdef RA_HAVE_MPI
#include "ranks/crew_ucx.h"
#include "ranks/devices.h"
#include "ranks/launcher.h"
#include "ranks/watchdog.h"

#include <ringattn/mpi.h>
#include <stdio.h>
#include <time.h>

/* MPI may take this long to start the processes, however short the deadline is. */
#define START_SECONDS 10.0
static const char start_sentence[] = "MPI_Init did not end: another process has not come to it";

/* --ranks, and what the launcher says, against the processes that MPI knows of. */
static ra_status check_processes(const cli_crew *crew) {
    const cli_list *ranks = &crew->options->ranks;
    for (int64_t i = 0; i < ranks->count; ++i)
        if (ranks->values[i] != crew->processes)
            CLI_RETURN_REFUSAL("--ranks: %lld ranks, but mpirun started %d process%s; leave --ranks out under mpi",
                               (long long)ranks->values[i], crew->processes, crew->processes == 1 ? "" : "es");
    int started = launcher_processes();
    if (crew->processes == 1 && started > 1)
        CLI_RETURN_REFUSAL(
            "--transport mpi: the launcher started %d processes, but MPI knows of one, so that each would do the "
            "whole job; use the launcher of the MPI that ringattn was built with",
            started);
    return RA_OK;
}

ra_status crew_mpi_open(cli_crew *crew) {
    int level;
    double seconds = crew->timeout_seconds;
    watchdog_begin(seconds > START_SECONDS ? seconds : START_SECONDS, start_sentence, NULL);
    int initialised = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    watchdog_end();
    if (initialised != MPI_SUCCESS) return ra_fail(CLI_FAILED, "--transport mpi: MPI could not be initialised");
    MPI_Comm_size(MPI_COMM_WORLD, &crew->processes);
    MPI_Comm_rank(MPI_COMM_WORLD, &crew->process);
    CLI_RETURN_ON_ERROR(ra_comm_create_mpi_timeout(MPI_COMM_WORLD, seconds, &crew->comm));
    return crew_agree(crew->comm, check_processes(crew), seconds);
}

/* The same ranks over NCCL or UCX, beside MPI. */
static ra_status run_beside(const cli_crew *crew, ra_comm *host, ra_rank_body body, void *user) {
    ra_comm *comm = NULL;
    if (crew->transport == CLI_TRANSPORT_NCCL)
        CLI_RETURN_ON_ERROR(devices_nccl(crew->options, host, crew->timeout_seconds, &comm));
    else
        CLI_RETURN_ON_ERROR(crew_ucx_beside(host, crew->timeout_seconds, &comm));
    ra_status status = body(comm, user);
    char sentence[AGREEMENT_BYTES];
    snprintf(sentence, sizeof sentence, "%s", ra_last_error());
    ra_comm_destroy(comm);
    return status == RA_OK ? RA_OK : ra_fail(status, "%s", sentence);
}

ra_status crew_mpi_run(const cli_crew *crew, ra_rank_body body, void *user) {
    return crew->transport == CLI_TRANSPORT_MPI ? body(crew->comm, user) : run_beside(crew, crew->comm, body, user);
}

/* The processes have lost each other, or the launcher looks at nothing else. */
static void abort_mpi(int code) {
    /* mpirun kills the other processes at once: leave them time to say what they know. */
    nanosleep(&(struct timespec){.tv_nsec = 150000000}, NULL);
    MPI_Abort(MPI_COMM_WORLD, code);
}

/* Most launchers end a job one process of which exits with an error; the others are told by MPI itself. */
void crew_mpi_withdraw(int code) {
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
void crew_mpi_close(cli_crew *crew, int gone, int code) {
    watchdog_begin(crew->timeout_seconds,
                   gone ? "MPI_Abort did not end this process"
                        : "MPI_Finalize did not end: another process has not come to it",
                   gone ? NULL : abort_late);
    if (gone || (code && launcher_ignores_exit_codes())) abort_mpi(code);
    ra_comm_destroy(crew->comm);
    MPI_Finalize();
    watchdog_end();
}

int crew_mpi_built(void) {
    return 1;
}
#else
ra_status crew_mpi_open(cli_crew *crew) {
    return ra_fail(RA_ERR_UNSUPPORTED, "--transport %s: this ringattn was built without MPI; use --transport thread",
                   crew->transport == CLI_TRANSPORT_NCCL ? "nccl" : "mpi");
}

ra_status crew_mpi_run(const cli_crew *crew, ra_rank_body body, void *user) {
    (void)crew, (void)body, (void)user;
    return ra_fail(RA_ERR_UNSUPPORTED, "--transport mpi: this ringattn was built without MPI");
}

void crew_mpi_withdraw(int code) {
    (void)code;
}

void crew_mpi_close(cli_crew *crew, int gone, int code) {
    (void)crew, (void)gone, (void)code;
}

int crew_mpi_built(void) {
    return 0;
}
#endif
