#include "transport/ucx/ucx_transport.h"

#include "base/status.h"

#include <stdio.h>

ra_status ra_ucx_listen(ra_ucx *ucx) {
    return ra_ucx_receive(ucx, -1, RA_UCX_NOTICE, ucx->heard, RA_UCX_NOTICE_BYTES, &ucx->hearing);
}

ra_status ra_ucx_hear(ra_ucx *ucx) {
    if (ucx->heard_from < 0) {
        size_t came = 0;
        int from = 0;
        if (!ucx->hearing) return RA_OK;
        ucs_status_t status = ra_ucx_test(ucx, &ucx->hearing, &came, &from);
        if (status == UCS_INPROGRESS) return RA_OK;
        RA_TRY(ra_ucx_check(ucx, status, "receiving a notice"));
        ucx->heard_from = from;
        ucx->heard[came < RA_UCX_NOTICE_BYTES ? came : RA_UCX_NOTICE_BYTES - 1] = 0;
        ucx->lost = 1;
    }
    return ra_fail(RA_ERR_PEER, "rank %d gave up: %s", ucx->heard_from, ucx->heard);
}

/* A notice that cannot be sent is not worth a word: the peer then learns of it in another way. */
void ra_ucx_tell(ra_ucx *ucx, const char *reason) {
    snprintf(ucx->told, sizeof ucx->told, "%s", reason);
    for (int peer = 0; peer < ucx->ranks; peer++) {
        ra_ucx_peer *p = &ucx->peers[peer];
        if (!p->endpoint || p->failed || p->telling) continue;
        ra_ucx_send(ucx, peer, RA_UCX_NOTICE, ucx->told, RA_UCX_NOTICE_BYTES, &p->telling);
    }
}

int ra_ucx_all_told(ra_ucx *ucx) {
    int told = 1;
    for (int peer = 0; peer < ucx->ranks; peer++)
        if (ra_ucx_test(ucx, &ucx->peers[peer].telling, NULL, NULL) == UCS_INPROGRESS) told = 0;
    return told;
}

int ra_ucx_hush(ra_ucx *ucx) {
    size_t came;
    if (!ucx->hearing) return 1;
    ucx->api->ucp_request_cancel(ucx->worker, ucx->hearing);
    ra_ucx_progress(ucx);
    return ra_ucx_test(ucx, &ucx->hearing, &came, NULL) != UCS_INPROGRESS;
}
