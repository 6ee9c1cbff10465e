#include "transport/ucx/ucx_transport.h"

#include "base/status.h"

#include <stdio.h>

ra_status ra_ucx_listen(ra_ucx *ucx) {
    return ra_ucx_receive(ucx, -1, RA_UCX_NOTICE, &ucx->heard, sizeof ucx->heard, &ucx->hearing);
}

/* One notice, if any has come. One that no rank of this job sends is ignored. */
static ra_status hear_one(ra_ucx *ucx, int *came_out) {
    size_t bytes = 0;
    int from = 0;
    *came_out = 0;
    if (!ucx->hearing) return RA_OK;
    ucs_status_t status = ra_ucx_test(ucx, &ucx->hearing, &bytes, &from);
    if (status == UCS_INPROGRESS) return RA_OK;
    *came_out = 1;
    int valid = status == UCS_OK && from < ucx->ranks && from != ucx->rank && bytes >= sizeof ucx->heard.word;
    if (valid && ucx->heard.word.kind == RA_UCX_GAVE_UP && bytes == sizeof ucx->heard) {
        ucx->heard_from = ucx->heard.word.rank;
        ucx->heard.text[sizeof ucx->heard.text - 1] = 0;
        ucx->lost = 1;
        return RA_OK;
    }
    if (valid) ra_ucx_heed(ucx, from);
    return ra_ucx_listen(ucx);
}

ra_status ra_ucx_hear(ra_ucx *ucx) {
    int came = 1;
    while (ucx->heard_from < 0 && came) RA_TRY(hear_one(ucx, &came));
    if (ucx->owed > 0) ra_ucx_answer(ucx);
    if (ucx->heard_from < 0) return RA_OK;
    return ra_fail(RA_ERR_PEER, "rank %d gave up: %s", ucx->heard_from, ucx->heard.text);
}

/* A notice that cannot be sent is not worth a word: the peer then learns of it in another way. */
static void tell_all(ra_ucx *ucx, size_t bytes) {
    for (int peer = 0; peer < ucx->ranks; peer++) {
        ra_ucx_peer *p = &ucx->peers[peer];
        if (!p->endpoint || p->failed || p->left || p->telling) continue;
        ra_ucx_send(ucx, peer, RA_UCX_NOTICE, &ucx->told, bytes, &p->telling);
    }
}

/* What was heard is forwarded as it was, since the one who said it may not have reached everybody. */
void ra_ucx_tell(ra_ucx *ucx, const char *reason) {
    ucx->told = (ra_ucx_notice){.word = {.kind = RA_UCX_GAVE_UP, .rank = ucx->rank}};
    if (ucx->heard_from >= 0)
        ucx->told = ucx->heard;
    else
        snprintf(ucx->told.text, sizeof ucx->told.text, "%s", reason);
    tell_all(ucx, sizeof ucx->told);
}

void ra_ucx_take_leave(ra_ucx *ucx) {
    ucx->told.word = (ra_ucx_word){.kind = RA_UCX_LEFT, .rank = ucx->rank};
    tell_all(ucx, sizeof ucx->told.word);
}

int ra_ucx_all_told(ra_ucx *ucx) {
    int told = 1;
    for (int peer = 0; peer < ucx->ranks; peer++) {
        ra_ucx_peer *p = &ucx->peers[peer];
        if (ra_ucx_test(ucx, &p->telling, NULL, NULL) == UCS_INPROGRESS) told = 0;
        if (ra_ucx_test(ucx, &p->asking, NULL, NULL) == UCS_INPROGRESS) told = 0;
        if (ra_ucx_test(ucx, &p->answering, NULL, NULL) == UCS_INPROGRESS) told = 0;
    }
    return told;
}

int ra_ucx_hush(ra_ucx *ucx) {
    size_t came;
    if (!ucx->hearing) return 1;
    ucx->api->ucp_request_cancel(ucx->worker, ucx->hearing);
    ra_ucx_progress(ucx);
    return ra_ucx_test(ucx, &ucx->hearing, &came, NULL) != UCS_INPROGRESS;
}
