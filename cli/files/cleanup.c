#include "files/cleanup.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static char *volatile unfinished[CLEANUP_FILES_MAX];

/* What ends a process. A fault does so whoever handles it, so the handler that was there (MPI's, which says where)
 * comes after; any other signal that has a handler is somebody's message, and is left to it. */
static const struct {
    int number, fault;
} signals[] = {{SIGHUP, 0},  {SIGINT, 0},  {SIGQUIT, 0}, {SIGTERM, 0}, {SIGPIPE, 0},   {SIGXCPU, 0},
               {SIGALRM, 0}, {SIGUSR1, 0}, {SIGUSR2, 0}, {SIGPROF, 0}, {SIGVTALRM, 0}, {SIGABRT, 1},
               {SIGSEGV, 1}, {SIGBUS, 1},  {SIGFPE, 1},  {SIGILL, 1},  {SIGSYS, 1}};

enum { SIGNALS = sizeof signals / sizeof signals[0] };

static struct sigaction before[SIGNALS];

/* Who has the word: nobody, the program (signals are put off), or a signal (the process ends). */
enum { FREE, HELD, ENDING };
static atomic_int word;
static atomic_int put_off; /* the signal that came meanwhile; 0: none */

void cleanup_set(int place, char *path) {
    unfinished[place] = path;
}

void cleanup_remove(void) {
    for (int i = 0; i < CLEANUP_FILES_MAX; ++i)
        if (unfinished[i]) unlink(unfinished[i]);
}

static int is_fault(int number) {
    for (int i = 0; i < SIGNALS; ++i)
        if (signals[i].number == number) return signals[i].fault;
    return 0;
}

/* The signal comes again when this returns, to the action that was there before: the process ends the way it would have
 * ended. */
static void end_without_files(int number) {
    int error = errno, who = FREE;
    if (!atomic_compare_exchange_strong(&word, &who, ENDING) && who == HELD && !is_fault(number)) {
        atomic_store(&put_off, number);
        return;
    }
    cleanup_remove();
    for (int i = 0; i < SIGNALS; ++i)
        if (signals[i].number == number) sigaction(number, &before[i], NULL);
    raise(number);
    errno = error;
}

void cleanup_catch_signals(void) {
    static int caught;
    if (caught) return;
    caught = 1;
    for (int i = 0; i < SIGNALS; ++i) {
        struct sigaction action = {.sa_flags = 0};
        action.sa_handler = end_without_files;
        sigemptyset(&action.sa_mask);
        if (sigaction(signals[i].number, NULL, &before[i]) != 0) continue;
        int handled = (before[i].sa_flags & SA_SIGINFO) || before[i].sa_handler != SIG_DFL;
        int ignored = !(before[i].sa_flags & SA_SIGINFO) && before[i].sa_handler == SIG_IGN;
        if (!handled || (signals[i].fault && !ignored)) sigaction(signals[i].number, &action, NULL);
    }
}

void cleanup_hold_signals(void) {
    /* Another thread's signal may have come first: it ends the process. */
    for (int who = FREE; !atomic_compare_exchange_strong(&word, &who, HELD); who = FREE) pause();
}

void cleanup_release_signals(void) {
    atomic_store(&word, FREE);
    int number = atomic_exchange(&put_off, 0);
    if (number) raise(number);
}
