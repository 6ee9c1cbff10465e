/* Several comms of one rank at once, a thread for each, with problems of its own: what one does must not show in what
 * another does. */
#ifndef TESTS_SUPPORT_CONCURRENT_H
#define TESTS_SUPPORT_CONCURRENT_H

#include "support/problems/sweep.h"

enum { CONCURRENT_MOST = 8 };

/* Problems of the same seed on every rank, and the bits that they have with ranks of one process, one after another. */
typedef struct concurrent_problems {
    test_case *cases;  /* [count] */
    sweep_data **data; /* [count] */
    uint64_t *bits;    /* [count] */
    int count;
} concurrent_problems;

ra_status concurrent_make(uint64_t seed, int count, int ranks, concurrent_problems *problems_out);
void concurrent_free(concurrent_problems *problems);

/* One rank: starts a thread for every comm, in an order of this rank's own, and waits for them. Each solves all
 * problems, beginning with another one. Fails with the first thread's failure, or where bits differ. */
ra_status concurrent_run(ra_comm **comms, int count, const concurrent_problems *problems);

#endif
