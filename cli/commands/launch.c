/* ringattn launch: processes of this machine.
 *
 * The processes are this same program with the command that follows --, and flags behind it that say who they are. They
 * meet in a folder that is made for the job and removed after it. A process that dies is found by the others
 * themselves, which then say what they were doing; those that do not end of their own accord are ended from here. */
#define _XOPEN_SOURCE 700

#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <ringattn/ucx.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* From the first failure: until the others are asked to end, and until they are made to. */
static const double ASK_SECONDS = 2, KILL_SECONDS = 4;

typedef struct job {
    const cli_options *options;
    char folder[256];
    pid_t *pids; /* [processes]; 0: not started, or ended */
    int alive, code;
    double failed_at; /* on the monotonic clock; 0: nothing has failed */
} job;

static volatile sig_atomic_t told_to_end;

static void on_signal(int signal) {
    told_to_end = signal;
}

static const int ENDING[] = {SIGHUP, SIGINT, SIGTERM};
enum { ENDINGS = sizeof ENDING / sizeof ENDING[0] };

/* One that was ignored from the start, as by nohup or in a shell's background, stays so, here and in the processes; but
 * for SIGTERM, by which these are ended. */
static void handle_endings(void (*handler)(int)) {
    struct sigaction before, action = {.sa_handler = handler};
    for (int i = 0; i < ENDINGS; ++i)
        if (sigaction(ENDING[i], NULL, &before) == 0 && (before.sa_handler != SIG_IGN || ENDING[i] == SIGTERM))
            sigaction(ENDING[i], &action, NULL);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

static ra_status make_folder(job *j) {
    const char *base = getenv("TMPDIR");
    int length = snprintf(j->folder, sizeof j->folder, "%s/ringattn-XXXXXX", base && *base ? base : "/tmp");
    if (length >= (int)sizeof j->folder) CLI_RETURN_REFUSAL("TMPDIR: is too long");
    if (mkdtemp(j->folder)) return RA_OK;
    return ra_fail(CLI_FAILED, "launch: a folder for the processes to meet in could not be made: %s", strerror(errno));
}

static void remove_folder(const job *j) {
    DIR *list = opendir(j->folder);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        char path[sizeof j->folder + 300];
        snprintf(path, sizeof path, "%s/%s", j->folder, entry->d_name);
        if (entry->d_name[0] != '.') unlink(path);
    }
    if (list) closedir(list);
    rmdir(j->folder);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

/* In the child. It ends with its parent, however that ends. */
static void become_rank(const job *j, int rank, pid_t parent) {
    const cli_options *o = j->options;
    char this_rank[16], ranks[16];
    const char *added[] = {"--transport", "ucx",          "--rank",  this_rank, "--ranks",
                           ranks,         "--rendezvous", j->folder, NULL};
    size_t count = (size_t)o->forwarded_count, extra = sizeof added / sizeof *added;
    char **argv = calloc(count + extra + 1, sizeof *argv);
    if (!argv) _exit(1);
    snprintf(this_rank, sizeof this_rank, "%d", rank);
    snprintf(ranks, sizeof ranks, "%d", o->processes);
    argv[0] = "ringattn";
    for (size_t i = 0; i < count; ++i) argv[1 + i] = (char *)o->forwarded[i];
    for (size_t i = 0; i < extra; ++i) argv[1 + count + i] = (char *)added[i];
    handle_endings(SIG_DFL);
    setenv("RINGATTN_JOB_KEY", j->folder, 0); /* nobody else has that name */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    execv("/proc/self/exe", argv);
    fprintf(stderr, "ringattn: error: launch: rank %d could not be started: %s\n", rank, strerror(errno));
    _exit(1);
}

static ra_status start(job *j) {
    pid_t parent = getpid();
    fflush(NULL);
    for (int rank = 0; rank < j->options->processes; ++rank) {
        pid_t pid = fork();
        if (pid < 0) return ra_fail(CLI_FAILED, "launch: rank %d could not be started: %s", rank, strerror(errno));
        if (pid == 0) become_rank(j, rank, parent);
        j->pids[rank] = pid;
        j->alive++;
    }
    return RA_OK;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static void signal_all(const job *j, int signal) {
    for (int rank = 0; rank < j->options->processes; ++rank)
        if (j->pids[rank]) kill(j->pids[rank], signal);
}

/* The first failure counts: the others follow from it, or were ended because of it. */
static void note_end(job *j, pid_t pid, int state) {
    int rank = 0;
    while (rank < j->options->processes && j->pids[rank] != pid) ++rank;
    if (rank == j->options->processes) return;
    j->pids[rank] = 0;
    j->alive--;
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return;
    if (j->failed_at == 0) {
        char sentence[128];
        j->failed_at = now();
        j->code = WIFEXITED(state) ? WEXITSTATUS(state) : 1;
        snprintf(sentence, sizeof sentence, "launch: rank %d was ended by signal %d", rank, WTERMSIG(state));
        if (WIFSIGNALED(state)) crew_complain(sentence);
    }
}

static void wait_for_all(job *j) {
    while (j->alive > 0) {
        int state;
        pid_t pid = waitpid(-1, &state, WNOHANG);
        if (pid > 0) {
            note_end(j, pid, state);
            continue;
        }
        if (pid < 0 && errno != EINTR) return;
        if (told_to_end && j->failed_at == 0) {
            j->failed_at = now() - ASK_SECONDS;
            j->code = 1;
        }
        double since = j->failed_at == 0 ? 0 : now() - j->failed_at;
        if (since >= KILL_SECONDS)
            signal_all(j, SIGKILL);
        else if (since >= ASK_SECONDS)
            signal_all(j, SIGTERM);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* What none of the processes could do is said once. */
static ra_status run(job *j) {
    const char *version;
    CLI_RETURN_ON_ERROR(ra_ucx_version(&version));
    CLI_RETURN_ON_ERROR(make_folder(j));
    ra_status status = start(j);
    if (status != RA_OK) {
        crew_complain(ra_last_error());
        j->failed_at = now() - ASK_SECONDS;
        j->code = 1;
    }
    wait_for_all(j);
    remove_folder(j);
    return RA_OK;
}

int cli_launch(const cli_options *options) {
    job j = {.options = options, .pids = calloc((size_t)options->processes, sizeof *j.pids)};
    handle_endings(on_signal);
    ra_status status =
        j.pids ? run(&j) : ra_fail(RA_ERR_MEMORY, "launch: no memory for %d processes", options->processes);
    if (status != RA_OK) {
        crew_complain(ra_last_error());
        j.code = crew_exit_code(status);
    }
    free(j.pids);
    return j.code;
}
