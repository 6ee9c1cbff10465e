#include "mpi_transport.h"

#include <stdio.h>

ra_status ra_mpi_listen(ra_mpi *mpi) {
    return ra_mpi_check(MPI_Irecv(mpi->heard, RA_MPI_NOTICE_BYTES, MPI_BYTE, MPI_ANY_SOURCE, RA_MPI_NOTICE_TAG,
                                  mpi->comm, &mpi->hearing),
                        "MPI_Irecv");
}

ra_status ra_mpi_hear(ra_mpi *mpi) {
    if (mpi->heard_from < 0) {
        int came = 0;
        MPI_Status from;
        if (mpi->hearing == MPI_REQUEST_NULL) return RA_OK;
        RA_MPI_TRY(ra_mpi_check(MPI_Test(&mpi->hearing, &came, &from), "MPI_Test"));
        if (!came) return RA_OK;
        mpi->heard_from = from.MPI_SOURCE;
        mpi->heard[RA_MPI_NOTICE_BYTES - 1] = 0;
        mpi->lost = 1;
    }
    return ra_fail(RA_ERR_PEER, "rank %d gave up: %s", mpi->heard_from, mpi->heard);
}

/* A notice that cannot be sent is not worth a word: the peer then learns of it by its own deadline. */
void ra_mpi_tell(ra_mpi *mpi, const char *reason) {
    snprintf(mpi->told, sizeof mpi->told, "%s", reason);
    for (int peer = 0; peer < mpi->ranks; peer++) {
        if (peer == mpi->rank) continue;
        int error = MPI_Isend(mpi->told, RA_MPI_NOTICE_BYTES, MPI_BYTE, peer, RA_MPI_NOTICE_TAG, mpi->comm,
                              &mpi->telling[peer]);
        if (error != MPI_SUCCESS) mpi->telling[peer] = MPI_REQUEST_NULL;
    }
}

int ra_mpi_all_told(ra_mpi *mpi) {
    int told = 1;
    for (int peer = 0; peer < mpi->ranks; peer++) {
        int sent = 0;
        int error = MPI_Test(&mpi->telling[peer], &sent, MPI_STATUS_IGNORE);
        if (error == MPI_SUCCESS && !sent) told = 0;
    }
    return told;
}

int ra_mpi_hush(ra_mpi *mpi) {
    int over = 0;
    if (mpi->hearing == MPI_REQUEST_NULL) return 1;
    MPI_Cancel(&mpi->hearing);
    MPI_Test(&mpi->hearing, &over, MPI_STATUS_IGNORE);
    return over;
}
