/* Ranks over MPI; in libringattn_mpi, which is built against one MPI implementation. */
#ifndef RINGATTN_MPI_H
#define RINGATTN_MPI_H

#include <mpi.h>
#include <ringattn/ringattn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Collective over mpi, which may be any intra-communicator; it is duplicated, so that no message of the host program
 * is ever matched, and it is not changed. MPI must be initialised; any thread level will do as long as the comm is used
 * by a thread that MPI allows to call it: unless the level is MPI_THREAD_MULTIPLE, the one that initialised MPI.
 * Destroy the comm, which is collective as well, before MPI_Finalize. */
RA_API ra_status ra_comm_create_mpi(MPI_Comm mpi, ra_comm **comm_out);

/* The same with a timeout in place of RA_TIMEOUT_DEFAULT: how long a rank waits for the others to make theirs. A rank
 * that cannot (no memory) tells the others, which then get an error with its reason at once. ra_comm_destroy, too,
 * waits for the others for at most timeout_seconds, and never for more than 5 s. */
RA_API ra_status ra_comm_create_mpi_timeout(MPI_Comm mpi, double timeout_seconds, ra_comm **comm_out);

#ifdef __cplusplus
}
#endif
#endif
