/* All ranks come to one point: everyone sends everyone a word, with the job's whole key in it, and waits for theirs. */
#include "transport/ucx/ucx_transport.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct hello {
    unsigned char key[RA_UCX_KEY_BYTES];
} hello;

struct ra_ucx_assembly {
    hello mine, *theirs;     /* [ranks] */
    void **sent, **received; /* [ranks] requests */
    ra_ucx_assembly *earlier;
};
typedef ra_ucx_assembly assembly;

static ra_status start_assembly(ra_ucx *ucx, int tag, assembly *a) {
    memcpy(a->mine.key, ucx->key, sizeof ucx->key);
    for (int r = 0; r < ucx->ranks; r++)
        if (r != ucx->rank) RA_TRY(ra_ucx_receive(ucx, r, tag, &a->theirs[r], sizeof(hello), &a->received[r]));
    for (int r = 0; r < ucx->ranks; r++)
        if (r != ucx->rank) RA_TRY(ra_ucx_send(ucx, r, tag, &a->mine, sizeof(hello), &a->sent[r]));
    return RA_OK;
}

/* The first rank that has not come; -1: all have. */
static ra_status count_assembly(ra_ucx *ucx, assembly *a, int *absent_out, int *open_out) {
    *absent_out = -1;
    *open_out = 0;
    for (int r = ucx->ranks - 1; r >= 0; r--) {
        size_t came;
        int waited = a->received[r] != NULL;
        if (ra_ucx_test(ucx, &a->sent[r], NULL, NULL) == UCS_INPROGRESS) *open_out = 1;
        ucs_status_t status = ra_ucx_test(ucx, &a->received[r], &came, NULL);
        if (status == UCS_INPROGRESS)
            *absent_out = r, *open_out = 1;
        else if (status != UCS_OK)
            return ra_fail(RA_ERR_PEER, "rank %d is gone (UCX: %s)", r, ucx->api->ucs_status_string(status));
        else if (waited && memcmp(a->theirs[r].key, ucx->key, sizeof ucx->key) != 0)
            return ra_fail(RA_ERR_MISMATCH, "rank %d answered with the key of another job", r);
    }
    return RA_OK;
}

/* Whoever has come may be gone again: only those that are waited for count. */
static ra_status await_assembly(ra_ucx *ucx, assembly *a, double seconds, int *absent_out, int *open_out) {
    ra_ucx_wait wait = ra_ucx_wait_start(seconds);
    int progressed, dead = -1;
    do {
        progressed = ra_ucx_progress(ucx);
        RA_TRY(count_assembly(ucx, a, absent_out, open_out));
        if (*absent_out < 0 && !*open_out) return RA_OK;
        RA_TRY(ra_ucx_hear(ucx));
        RA_TRY(ra_ucx_find_dead(ucx, a->received, &dead));
        if (*absent_out < 0 && ra_ucx_find_dead(ucx, NULL, &dead) != RA_OK) return RA_OK;
    } while (ra_ucx_wait_pause(&wait, progressed));
    return RA_OK;
}

/* Nonzero when UCX will not use the memory any more. */
static int is_over(ra_ucx *ucx, assembly *a) {
    int over = 1;
    for (int r = 0; r < ucx->ranks; r++) {
        if (ra_ucx_test(ucx, &a->sent[r], NULL, NULL) == UCS_INPROGRESS) over = 0;
        if (ra_ucx_test(ucx, &a->received[r], NULL, NULL) == UCS_INPROGRESS) over = 0;
    }
    return over;
}

/* Takes back what is open, and keeps what cannot be. */
static void end_assembly(ra_ucx *ucx, assembly *a) {
    for (int r = 0; r < ucx->ranks; r++)
        if (a->received[r]) ucx->api->ucp_request_cancel(ucx->worker, a->received[r]);
    ra_ucx_progress(ucx);
    a->earlier = ucx->assemblies;
    ucx->assemblies = a;
    ra_ucx_dismiss(ucx);
}

int ra_ucx_dismiss(ra_ucx *ucx) {
    for (assembly *a; (a = ucx->assemblies) != NULL;) {
        if (!is_over(ucx, a)) return 0;
        ucx->assemblies = a->earlier;
        free(a);
    }
    return 1;
}

ra_status ra_ucx_assemble(ra_ucx *ucx, int tag, double seconds, int *absent_out) {
    size_t ranks = (size_t)ucx->ranks;
    int open = 0;
    assembly *a = calloc(1, sizeof *a + ranks * (sizeof(hello) + 2 * sizeof(void *)));
    *absent_out = -1;
    if (!a) return ra_fail(RA_ERR_MEMORY, "no memory to meet %zu ranks", ranks);
    a->sent = (void **)(a + 1);
    a->received = a->sent + ranks;
    a->theirs = (hello *)(a->received + ranks);
    ra_status status = start_assembly(ucx, tag, a);
    if (status == RA_OK) status = await_assembly(ucx, a, seconds, absent_out, &open);
    char why[512];
    snprintf(why, sizeof why, "%s", ra_last_error());
    end_assembly(ucx, a);
    return status == RA_OK ? RA_OK : ra_fail(status, "%s", why);
}
