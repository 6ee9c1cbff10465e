#include "mpi_transport.h"

#include <stdio.h>

ra_status ra_mpi_listen(ra_mpi *mpi) {
    return ra_mpi_check(MPI_Irecv(&mpi->heard, sizeof mpi->heard, MPI_BYTE, MPI_ANY_SOURCE, RA_MPI_NOTICE_TAG,
                                  mpi->comm, &mpi->hearing),
                        "MPI_Irecv");
}

/* One notice, if any has come. */
static ra_status hear_one(ra_mpi *mpi, int *came_out) {
    MPI_Status from;
    *came_out = 0;
    if (mpi->hearing == MPI_REQUEST_NULL) return RA_OK;
    RA_TRY(ra_mpi_check(MPI_Test(&mpi->hearing, came_out, &from), "MPI_Test"));
    if (!*came_out) return RA_OK;
    if (mpi->heard.word.kind != RA_MPI_GAVE_UP) {
        ra_mpi_heed(mpi, from.MPI_SOURCE);
        return ra_mpi_listen(mpi);
    }
    mpi->heard_from = mpi->heard.word.rank;
    mpi->heard.text[sizeof mpi->heard.text - 1] = 0;
    mpi->lost = 1;
    return RA_OK;
}

ra_status ra_mpi_hear(ra_mpi *mpi) {
    int came = 1;
    while (mpi->heard_from < 0 && came) RA_TRY(hear_one(mpi, &came));
    if (mpi->owed > 0) ra_mpi_answer(mpi);
    if (mpi->heard_from < 0) return RA_OK;
    return ra_fail(RA_ERR_PEER, "rank %d gave up: %s", mpi->heard_from, mpi->heard.text);
}

/* A notice that cannot be sent is not worth a word: the peer then learns of it by its own deadline. */
static void tell_all(ra_mpi *mpi, size_t bytes) {
    for (int peer = 0; peer < mpi->ranks; peer++) {
        if (peer == mpi->rank) continue;
        int error =
            MPI_Isend(&mpi->told, (int)bytes, MPI_BYTE, peer, RA_MPI_NOTICE_TAG, mpi->comm, &mpi->telling[peer]);
        if (error != MPI_SUCCESS) mpi->telling[peer] = MPI_REQUEST_NULL;
    }
}

/* What was heard is forwarded as it was, since the one who said it may not have reached everybody. */
void ra_mpi_tell(ra_mpi *mpi, const char *reason) {
    mpi->told = (ra_mpi_notice){.word = {.kind = RA_MPI_GAVE_UP, .rank = mpi->rank}};
    if (mpi->heard_from >= 0)
        mpi->told = mpi->heard;
    else
        snprintf(mpi->told.text, sizeof mpi->told.text, "%s", reason);
    tell_all(mpi, sizeof mpi->told);
}

void ra_mpi_take_leave(ra_mpi *mpi) {
    mpi->told.word = (ra_mpi_word){.kind = RA_MPI_LEFT, .rank = mpi->rank};
    tell_all(mpi, sizeof mpi->told.word);
}

int ra_mpi_is_sent(MPI_Request *request) {
    int sent = 0;
    return MPI_Test(request, &sent, MPI_STATUS_IGNORE) != MPI_SUCCESS || sent;
}

int ra_mpi_all_told(ra_mpi *mpi) {
    int told = 1;
    for (int peer = 0; peer < mpi->ranks; peer++) {
        if (!ra_mpi_is_sent(&mpi->telling[peer])) told = 0;
        if (!ra_mpi_is_sent(&mpi->peers[peer].asking)) told = 0;
        if (!ra_mpi_is_sent(&mpi->peers[peer].answering)) told = 0;
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
