/* Signs of life: a rank that has waited for a while asks the one it waits for, and any rank that polls, computing or
 * waiting, answers. At most one question and one answer are under way between two ranks each way, so a rank that was
 * stopped finds one question from each waiter when it goes on. */
#include "mpi_transport.h"

void ra_mpi_note(ra_mpi *mpi, int peer) {
    if (peer >= 0 && mpi->waits_for < 0) mpi->wait_since = MPI_Wtime();
    mpi->waits_for = peer;
}

static int send_word(const ra_mpi *mpi, int to, const ra_mpi_word *word, MPI_Request *request) {
    int error = MPI_Isend(word, sizeof *word, MPI_BYTE, to, RA_MPI_NOTICE_TAG, mpi->comm, request);
    if (error != MPI_SUCCESS) *request = MPI_REQUEST_NULL;
    return error == MPI_SUCCESS;
}

void ra_mpi_answer(ra_mpi *mpi) {
    double waited = mpi->waits_for < 0 ? 0 : MPI_Wtime() - mpi->wait_since;
    for (int rank = 0; rank < mpi->ranks && mpi->owed > 0; rank++) {
        ra_mpi_peer *peer = &mpi->peers[rank];
        if (!peer->owed || !ra_mpi_is_sent(&peer->answering)) continue;
        peer->answer = (ra_mpi_word){RA_MPI_ANSWER, mpi->waits_for, waited};
        send_word(mpi, rank, &peer->answer, &peer->answering);
        peer->owed = 0;
        mpi->owed--;
    }
}

void ra_mpi_heed(ra_mpi *mpi, int from) {
    const ra_mpi_word *word = &mpi->heard.word;
    ra_mpi_peer *peer = &mpi->peers[from];
    peer->since = MPI_Wtime();
    if (word->kind == RA_MPI_ANSWER) {
        peer->asked = 0;
        peer->waits_for = word->rank;
        peer->waited = word->waited;
    } else if (word->kind == RA_MPI_LEFT) {
        peer->gone = 1;
        peer->asked = 0;
        mpi->left++;
    } else if (!peer->owed) {
        peer->owed = 1;
        mpi->owed++;
    }
}

int ra_mpi_all_answered(const ra_mpi *mpi) {
    for (int rank = 0; rank < mpi->ranks; rank++)
        if (mpi->peers[rank].asked) return 0;
    return 1;
}

void ra_mpi_inquire(void *self, int rank, ra_sign *sign_out) {
    static const ra_mpi_word question = {RA_MPI_QUESTION, -1, 0};
    ra_mpi *mpi = self;
    ra_mpi_peer *peer = &mpi->peers[rank];
    double now = MPI_Wtime();
    if (!peer->asked && !mpi->lost && ra_mpi_is_sent(&peer->asking))
        peer->asked = send_word(mpi, rank, &question, &peer->asking);
    if (peer->since < 0) peer->since = now;
    *sign_out =
        (ra_sign){.silent = peer->gone ? 0 : now - peer->since, .waits_for = peer->waits_for, .waited = peer->waited};
}
