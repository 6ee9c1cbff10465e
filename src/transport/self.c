/* One rank: nobody to talk to. */
#include "base/status.h"
#include "transport/comm.h"

static ra_status post(void *self, const ra_message *messages, int count, void *stream) {
    (void)self, (void)messages, (void)count, (void)stream;
    return ra_fail(RA_ERR_INTERNAL, "a rank that is alone was given a message to send");
}

static ra_status poll(void *self, double seconds, int *done_out, int *culprit_out) {
    (void)self, (void)seconds;
    *done_out = 1;
    *culprit_out = -1;
    return RA_OK;
}

static int abandon(void *self, const char *reason) {
    (void)self, (void)reason;
    return 1;
}

static void destroy(void *self) {
    (void)self;
}

ra_status ra_comm_create_self(ra_comm **comm_out) {
    static const ra_transport_ops ops = {
        .struct_size = sizeof ops, .name = "self", .post = post, .poll = poll, .abandon = abandon, .destroy = destroy};
    return ra_comm_create_custom(&ops, NULL, 0, 1, comm_out);
}
