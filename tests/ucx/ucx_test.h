/* For test programs over UCX, which start_ranks.py starts: RANK, WORLD_SIZE and RINGATTN_TEST_FOLDER say who and where.
 * A check that fails ends the process, and start_ranks.py the others. */
#ifndef RA_TESTS_UCX_TEST_H
#define RA_TESTS_UCX_TEST_H

#include <ringattn/ucx.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SKIPPED = 77 };

static inline int test_number(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : -1;
}

static inline void check_failed(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: rank %d: not true: %s (last error: %s)\n", file, line, test_number("RANK"), what,
            ra_last_error());
    fflush(stderr);
    _Exit(1);
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) check_failed(__FILE__, __LINE__, #condition);                                                \
    } while (0)

/* The status, and a word that the error text must have. */
#define CHECK_FAILS(expr, status, word)                                                                                \
    do {                                                                                                               \
        CHECK((expr) == (status));                                                                                     \
        CHECK(strstr(ra_last_error(), word) != NULL);                                                                  \
    } while (0)

/* splitmix64: the same numbers on every rank from the same seed. */
static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
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
