/* Signs of life: a rank that has waited for a while asks the one it waits for, and any rank that polls, computing or
 * waiting, answers. At most one question and one answer are under way between two ranks each way, so a rank that was
 * stopped finds one question from each waiter when it goes on. */
#include "transport/ucx/ucx_transport.h"

#include "base/clock.h"

void ra_ucx_note(ra_ucx *ucx, int peer) {
    if (peer >= 0 && ucx->waits_for < 0) ucx->wait_since = ra_clock();
    ucx->waits_for = peer;
}

static int is_over(ra_ucx *ucx, void **request) {
    return ra_ucx_test(ucx, request, NULL, NULL) != UCS_INPROGRESS;
}

void ra_ucx_answer(ra_ucx *ucx) {
    double waited = ucx->waits_for < 0 ? 0 : ra_clock() - ucx->wait_since;
    for (int rank = 0; rank < ucx->ranks && ucx->owed > 0; rank++) {
        ra_ucx_peer *peer = &ucx->peers[rank];
        if (!peer->owed || !is_over(ucx, &peer->answering)) continue;
        peer->answer = (ra_ucx_word){RA_UCX_ANSWER, ucx->waits_for, waited};
        ra_ucx_send(ucx, rank, RA_UCX_NOTICE, &peer->answer, sizeof peer->answer, &peer->answering);
        peer->owed = 0;
        ucx->owed--;
    }
}

void ra_ucx_heed(ra_ucx *ucx, int from) {
    const ra_ucx_word *word = &ucx->heard.word;
    ra_ucx_peer *peer = &ucx->peers[from];
    peer->since = ra_clock();
    if (word->kind == RA_UCX_ANSWER) {
        peer->asked = 0;
        peer->waits_for = word->rank;
        peer->waited = word->waited;
    } else if (word->kind == RA_UCX_LEFT && !peer->left) {
        peer->left = 1;
        ucx->left++;
    } else if (word->kind == RA_UCX_QUESTION && !peer->owed) {
        peer->owed = 1;
        ucx->owed++;
    }
}

void ra_ucx_inquire(void *self, int rank, ra_sign *sign_out) {
    static const ra_ucx_word question = {RA_UCX_QUESTION, -1, 0};
    ra_ucx *ucx = self;
    ra_ucx_peer *peer = &ucx->peers[rank];
    double now = ra_clock();
    if (!peer->asked && !peer->left && !ucx->lost && is_over(ucx, &peer->asking))
        peer->asked = ra_ucx_send(ucx, rank, RA_UCX_NOTICE, &question, sizeof question, &peer->asking) == RA_OK;
    if (peer->since < 0) peer->since = now;
    *sign_out =
        (ra_sign){.silent = peer->left ? 0 : now - peer->since, .waits_for = peer->waits_for, .waited = peer->waited};
}
