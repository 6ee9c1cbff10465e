#include "support/concurrent.h"

#include "base/status.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

ra_status concurrent_make(uint64_t seed, int count, int ranks, concurrent_problems *problems_out) {
    concurrent_problems p = {.cases = calloc((size_t)count, sizeof *p.cases),
                             .data = calloc((size_t)count, sizeof *p.data),
                             .bits = calloc((size_t)count, sizeof *p.bits),
                             .count = count};
    if (!p.cases || !p.data || !p.bits) return ra_fail(RA_ERR_MEMORY, "no memory for a test");
    *problems_out = p;
    for (int i = 0; i < count; i++) {
        sweep_result alone = {0};
        case_make(&p.cases[i], seed + (uint64_t)i, RA_F64, 1e6);
        p.data[i] = sweep_data_make(&p.cases[i]);
        if (!p.data[i]) return ra_fail(RA_ERR_MEMORY, "no memory for a test");
        RA_TRY(sweep_threads(ranks, p.data[i], 1, &alone));
        p.bits[i] = alone.bits;
    }
    return RA_OK;
}

void concurrent_free(concurrent_problems *problems) {
    for (int i = 0; problems->data && i < problems->count; i++) sweep_data_free(problems->data[i]);
    free(problems->cases);
    free(problems->data);
    free(problems->bits);
}

typedef struct worker {
    ra_comm *comm;
    int number; /* of the comm: the same on every rank */
    const concurrent_problems *problems;
    ra_status status;
    char error[512];
} worker;

static ra_status solve(const worker *w) {
    for (int n = 0; n < w->problems->count; n++) {
        int i = (n + w->number) % w->problems->count;
        sweep_result result = {0};
        RA_TRY(sweep_run(w->comm, w->problems->data[i], 1, &result));
        if (ra_comm_rank(w->comm) == 0 && result.bits != w->problems->bits[i])
            return ra_fail(RA_ERR_BROKEN, "comm %d, problem %d: other bits than alone", w->number, i);
    }
    return RA_OK;
}

static void *work(void *user) {
    worker *w = user;
    /* So that ranks meet each comm at different times. */
    long wait = (long)(ra_comm_rank(w->comm) * 7 + w->number * 5) % 11 * 200000;
    nanosleep(&(struct timespec){.tv_nsec = wait}, NULL);
    w->status = solve(w);
    if (w->status != RA_OK) snprintf(w->error, sizeof w->error, "%s", ra_last_error());
    return NULL;
}

ra_status concurrent_run(ra_comm **comms, int count, const concurrent_problems *problems) {
    worker workers[CONCURRENT_MOST];
    pthread_t threads[CONCURRENT_MOST];
    int started[CONCURRENT_MOST] = {0}, rank = ra_comm_rank(comms[0]);
    ra_status status = RA_OK;
    for (int n = 0; n < count; n++) {
        int i = (n + rank) % count; /* an order of its own on every rank */
        workers[i] = (worker){.comm = comms[i], .number = i, .problems = problems};
        started[i] = pthread_create(&threads[i], NULL, work, &workers[i]) == 0;
    }
    for (int i = 0; i < count; i++) {
        if (started[i]) pthread_join(threads[i], NULL);
        if (!started[i]) status = ra_fail(RA_ERR_MEMORY, "no thread for a test");
    }
    for (int i = 0; i < count && status == RA_OK; i++)
        if (workers[i].status != RA_OK) status = ra_fail(workers[i].status, "%s", workers[i].error);
    return status;
}
