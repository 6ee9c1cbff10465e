/* For test programs over UCX, which start_ranks.py starts: RANK, WORLD_SIZE and RINGATTN_TEST_FOLDER say who and where.
 * A check that fails ends the process, and start_ranks.py the others. */
#ifndef RA_TESTS_UCX_TEST_H
#define RA_TESTS_UCX_TEST_H

#include "processes/check.h"

#include <ringattn/ucx.h>
#include <time.h>

enum { SKIPPED = 77 };

static inline int test_number(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : -1;
}

static void check_failed(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: rank %d: not true: %s (last error: %s)\n", file, line, test_number("RANK"), what,
            ra_last_error());
    fflush(stderr);
    _Exit(1);
}

static inline double test_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void skip_without_ucx(void) {
    const char *version;
    if (ra_ucx_version(&version) == RA_OK) return;
    fprintf(stderr, "skipped: %s\n", ra_last_error());
    exit(SKIPPED);
}

/* Meets the other ranks. The meeting also serves as a barrier. */
static inline ra_rendezvous *meet(void) {
    ra_rendezvous *meeting = NULL;
    skip_without_ucx();
    CHECK(ra_rendezvous_folder(getenv("RINGATTN_TEST_FOLDER"), test_number("RANK"), test_number("WORLD_SIZE"), 60,
                               &meeting) == RA_OK);
    return meeting;
}

static inline void barrier(ra_rendezvous *meeting) {
    static char all[1024];
    CHECK(ra_rendezvous_allgather(meeting, "", 1, all) == RA_OK);
}

#endif
