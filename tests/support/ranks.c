#include "support/ranks.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct rank_job {
    pthread_t thread;
    ra_comm *comm;
    ra_rank_body body;
    void *user;
    rank_outcome *outcome;
} rank_job;

static void *run(void *argument) {
    rank_job *job = argument;
    double start = ra_clock();
    job->outcome->status = job->body(job->comm, job->user);
    job->outcome->seconds = ra_clock() - start;
    snprintf(job->outcome->error, sizeof job->outcome->error, "%s", job->outcome->status ? ra_last_error() : "");
    return NULL;
}

void ranks_run(ra_comm **comms, int ranks, ra_rank_body body, void *user, rank_outcome *outcomes_out) {
    rank_job *jobs = calloc((size_t)ranks, sizeof *jobs);
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (rank_job){.comm = comms[r], .body = body, .user = user, .outcome = &outcomes_out[r]};
        if (pthread_create(&jobs[r].thread, NULL, run, &jobs[r]) != 0) abort();
    }
    for (int r = 0; r < ranks; r++) pthread_join(jobs[r].thread, NULL);
    free(jobs);
}

void ranks_destroy(ra_comm **comms, int ranks) {
    for (int r = 0; r < ranks; r++) ra_comm_destroy(comms[r]);
}
