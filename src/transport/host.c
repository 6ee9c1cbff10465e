#include "transport/host.h"

#include "base/status.h"
#include "transport/comm_state.h"

#include <stdio.h>

ra_status ra_host_post(ra_comm *host, const ra_message *messages, int count) {
    return host->ops.post(host->self, messages, count, NULL);
}

ra_status ra_host_poll(ra_comm *host, double seconds, int *done_out, int *culprit_out) {
    return host->ops.poll(host->self, seconds, done_out, culprit_out);
}

void ra_host_inquire(ra_comm *host, int peer, ra_sign *sign_out) {
    host->ops.inquire(host->self, peer, sign_out);
}

int ra_host_abandon(ra_comm *host, const char *reason) {
    if (!host->broken) {
        host->broken = 1;
        snprintf(host->reason, sizeof host->reason, "%s", reason);
        host->memory_held = !host->ops.abandon(host->self, reason);
    }
    return !host->memory_held;
}

ra_status ra_comm_create_beside(const ra_comm *host, const ra_transport_ops *ops, void *self, ra_comm **comm_out) {
    ra_transport_ops mine = *ops;
    mine.machine_ranks = host->machine_ranks;
    if (!host->ops.inquire) mine.inquire = NULL;
    RA_TRY(ra_comm_create_custom(&mine, self, host->rank, host->ranks, comm_out));
    (*comm_out)->process_ranks = host->process_ranks;
    return RA_OK;
}
