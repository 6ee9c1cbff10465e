/* ra_run_threads: in-process ranks with their threads, and one answer for all of them. */
#include "base/status.h"
#include "transport/comm_state.h"
#include "transport/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct rank_thread {
    pthread_t thread;
    int started;
    ra_comm *comm;
    ra_rank_body body;
    void *user;
    ra_status status;
    char error[1024];
} rank_thread;

/* The rank has failed: its peers must not be left waiting for it. It does not give the comm up for them, for they may
 * be about to finish an exchange that it has taken part in, and are to get its result. */
static void leave(rank_thread *rank) {
    if (!rank->error[0])
        snprintf(rank->error, sizeof rank->error, "rank %d: %s", rank->comm->rank, ra_status_text(rank->status));
    ra_thread_leave(rank->comm->self, rank->error);
}

static void *run_rank(void *argument) {
    rank_thread *rank = argument;
    rank->status = rank->body(rank->comm, rank->user);
    if (rank->status != RA_OK) {
        snprintf(rank->error, sizeof rank->error, "%s", ra_last_error());
        leave(rank);
    }
    ra_comm_destroy(rank->comm); /* nor is anybody left waiting for one that ends early */
    return NULL;
}

/* How far a failure is another rank's: 0, its own; 1, the ranks disagree, which may be because one of them failed, or
 * nobody answers; 2, a peer's. */
static int remoteness(ra_status status) {
    if (status == RA_ERR_PEER || status == RA_ERR_BROKEN) return 2;
    return status == RA_ERR_MISMATCH || status == RA_ERR_TIMEOUT;
}

/* The lowest rank whose failure is its own, or is nearest to that. */
static const rank_thread *first_failure(const rank_thread *all, int ranks) {
    const rank_thread *found = NULL;
    for (int r = 0; r < ranks; r++) {
        if (all[r].status == RA_OK) continue;
        if (!found || remoteness(all[r].status) < remoteness(found->status)) found = &all[r];
    }
    return found;
}

static ra_status run_all(rank_thread *all, int ranks) {
    for (int r = 0; r < ranks; r++) {
        all[r].started = pthread_create(&all[r].thread, NULL, run_rank, &all[r]) == 0;
        if (all[r].started) continue;
        all[r].status = RA_ERR_MEMORY;
        snprintf(all[r].error, sizeof all[r].error, "rank %d: its thread could not be started", r);
        leave(&all[r]);
        ra_comm_destroy(all[r].comm);
    }
    for (int r = 0; r < ranks; r++)
        if (all[r].started) pthread_join(all[r].thread, NULL);
    const rank_thread *failure = first_failure(all, ranks);
    return failure ? ra_fail(failure->status, "%s", failure->error) : RA_OK;
}

ra_status ra_run_threads(int ranks, ra_rank_body body, void *user) {
    if (!body) return ra_refuse("body is NULL");
    if (ranks < 1 || ranks > 4096) return ra_refuse("ranks is %d; a process can have between 1 and 4096", ranks);
    ra_comm **comms = calloc((size_t)ranks, sizeof *comms);
    rank_thread *all = calloc((size_t)ranks, sizeof *all);
    ra_status status =
        comms && all ? ra_comm_create_threads(ranks, comms) : ra_fail(RA_ERR_MEMORY, "no memory for %d ranks", ranks);
    if (status == RA_OK) {
        for (int r = 0; r < ranks; r++) {
            all[r].comm = comms[r];
            all[r].body = body;
            all[r].user = user;
        }
        status = run_all(all, ranks);
    }
    free(all);
    free(comms);
    return status;
}
