/* For test programs under mpirun. A check that fails on one rank ends the whole job: the others would wait for ever. */
#ifndef RA_TESTS_MPI_TEST_H
#define RA_TESTS_MPI_TEST_H

#include "processes/check.h"

#include <mpi.h>

static void check_failed(const char *file, int line, const char *what) {
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

#endif
