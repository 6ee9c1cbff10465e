/* For test programs under mpirun. A check that fails on one rank ends the whole job: the others would wait for ever. */
#ifndef RA_TESTS_MPI_TEST_H
#define RA_TESTS_MPI_TEST_H

#include <mpi.h>
#include <ringattn/ringattn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void check_failed(const char *file, int line, const char *what) {
    int rank = -1, initialised = 0, finalised = 0;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    int alive = initialised && !finalised;
    if (alive) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "%s:%d: rank %d: not true: %s (last error: %s)\n", file, line, rank, what, ra_last_error());
    fflush(stderr);
    if (alive) MPI_Abort(MPI_COMM_WORLD, 1);
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

#endif
