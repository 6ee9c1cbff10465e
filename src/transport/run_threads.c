/* ra_run_threads: in-process ranks with their threads, and one answer for all of them. */
#include "base/status.h"
#include "transport/comm.h"

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
    char error[512];
} rank_thread;

static void *run_rank(void *argument) {
    rank_thread *rank = argument;
    rank->status = rank->body(rank->comm, rank->user);
    if (rank->status != RA_OK) {
        snprintf(rank->error, sizeof rank->error, "%s", ra_last_error());
        ra_comm_lose(rank->comm, rank->status); /* a body that fails must not leave its peers waiting for it */
    }
    ra_comm_destroy(rank->comm); /* nor one that ends early */
    return NULL;
}

/* A rank that failed by itself tells more than one that failed because a peer did. */
static const rank_thread *first_failure(const rank_thread *all, int ranks) {
    const rank_thread *found = NULL;
    for (int r = 0; r < ranks; r++) {
        if (all[r].status == RA_OK) continue;
        if (all[r].status != RA_ERR_PEER && all[r].status != RA_ERR_BROKEN) return &all[r];
        if (!found) found = &all[r];
    }
    return found;
}

static ra_status run_all(rank_thread *all, int ranks) {
    for (int r = 0; r < ranks; r++) {
        all[r].started = pthread_create(&all[r].thread, NULL, run_rank, &all[r]) == 0;
        if (all[r].started) continue;
        all[r].status = RA_ERR_MEMORY;
        snprintf(all[r].error, sizeof all[r].error, "rank %d: its thread could not be started", r);
        ra_comm_lose(all[r].comm, ra_fail(RA_ERR_MEMORY, "%s", all[r].error));
        ra_comm_destroy(all[r].comm);
    }
    for (int r = 0; r < ranks; r++)
        if (all[r].started) pthread_join(all[r].thread, NULL);
    const rank_thread *failure = first_failure(all, ranks);
    return failure ? ra_fail(failure->status, "%s", failure->error) : RA_OK;
}

ra_status ra_run_threads(int ranks, ra_rank_body body, void *user) {
    if (!body) RA_REFUSE("body is NULL");
    if (ranks < 1 || ranks > 4096) RA_REFUSE("ranks is %d; a process can have between 1 and 4096", ranks);
    ra_comm **comms = calloc((size_t)ranks, sizeof *comms);
    rank_thread *all = calloc((size_t)ranks, sizeof *all);
    ra_status status = comms && all ? ra_comm_create_threads(ranks, comms)
                                    : ra_fail(RA_ERR_MEMORY, "no memory for %d ranks", ranks);
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
