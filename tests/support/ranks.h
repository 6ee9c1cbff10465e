/* Ranks on threads over comms of any kind; every rank's status and error come back for the main thread to assert on. */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include <ringattn/ringattn.h>

typedef struct rank_outcome {
    ra_status status;
    char error[1024];
    double seconds; /* until the body returned */
} rank_outcome;

/* Runs body(comms[r], user) on a thread per rank and waits for all. The comms stay. */
void ranks_run(ra_comm **comms, int ranks, ra_rank_body body, void *user, rank_outcome *outcomes_out);

void ranks_destroy(ra_comm **comms, int ranks);

#endif
