#include "bandwidth.h"
#include "transport/ucx/ucx_transport.h"
#include "ucx_test.h"

static void exchange(void *self, char *out, char *in, size_t bytes) {
    ra_ucx *ucx = self;
    int peer = 1 - ucx->rank, done = 0, culprit;
    ra_message group[] = {{.peer = peer, .tag = 1, .data = in, .bytes = bytes},
                          {.peer = peer, .is_send = 1, .tag = 1, .data = out, .bytes = bytes}};
    CHECK(ra_ucx_ops.post(ucx, group, 2, NULL) == RA_OK);
    CHECK(ra_ucx_ops.poll(ucx, 60, &done, &culprit) == RA_OK && done);
}

int main(void) {
    ra_rendezvous *meeting = meet();
    ra_ucx *ucx = NULL;
    int machine_ranks;
    CHECK(ra_rendezvous_ranks(meeting) == 2);
    CHECK(ra_ucx_open(ra_rendezvous_rank(meeting), 2, ra_rendezvous_allgather, meeting, NULL, &ucx, &machine_ranks) ==
          RA_OK);
    exchanger e = {.rank = ucx->rank, .self = ucx, .exchange = exchange};
    int failed = run_bandwidth(&e);
    ra_ucx_ops.destroy(ucx);
    ra_rendezvous_destroy(meeting);
    return failed;
}
