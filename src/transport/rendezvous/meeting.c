#include "transport/rendezvous/meeting.h"

#include "base/status.h"
#include "core/problem.h"
#include "transport/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

ra_status ra_meeting_make(int rank, int ranks, double timeout_seconds, ra_rendezvous **meeting_out) {
    if (ranks < 1 || ranks > RA_MAX_RANKS)
        return ra_refuse("ranks is %d; it must be between 1 and %d", ranks, RA_MAX_RANKS);
    if (rank < 0 || rank >= ranks) return ra_refuse("rank is %d; it must be between 0 and %d", rank, ranks - 1);
    if (!(timeout_seconds >= 0) || timeout_seconds > RA_LONGEST_WAIT)
        return ra_refuse("timeout_seconds must be between 0 (%g s) and %g", RA_TIMEOUT_DEFAULT, RA_LONGEST_WAIT);
    ra_rendezvous *meeting = calloc(1, sizeof *meeting);
    if (!meeting) return ra_fail(RA_ERR_MEMORY, "no memory for a rendezvous");
    meeting->rank = rank;
    meeting->ranks = ranks;
    meeting->timeout_seconds = timeout_seconds > 0 ? timeout_seconds : RA_TIMEOUT_DEFAULT;
    *meeting_out = meeting;
    return RA_OK;
}

void ra_meeting_hex(const unsigned char *bytes, char *text_out) {
    for (int i = 0; i < 16; i++) snprintf(text_out + 2 * i, 3, "%02x", bytes[i]);
}

void ra_meeting_nap(double waited) {
    nanosleep(&(struct timespec){.tv_nsec = waited < 0.1 ? 1000000 : waited < 2 ? 5000000 : 20000000}, NULL);
}

int ra_rendezvous_rank(const ra_rendezvous *rendezvous) {
    return rendezvous ? rendezvous->rank : -1;
}

int ra_rendezvous_ranks(const ra_rendezvous *rendezvous) {
    return rendezvous ? rendezvous->ranks : -1;
}

ra_status ra_rendezvous_allgather(void *rendezvous, const void *mine, size_t bytes, void *all_out) {
    ra_rendezvous *meeting = rendezvous;
    if (!meeting) return ra_refuse("rendezvous is NULL");
    if (meeting->failed)
        return ra_fail(RA_ERR_BROKEN, "this rendezvous failed earlier: destroy it and make another one");
    if (bytes == 0) return RA_OK;
    if (!mine || !all_out) return ra_refuse("mine or all_out is NULL");
    if (bytes > SIZE_MAX / 2 / (size_t)meeting->ranks) return ra_refuse("bytes is too large");
    ra_status status = meeting->allgather(meeting, mine, bytes, all_out);
    if (status != RA_OK) meeting->failed = 1;
    return status;
}

void ra_rendezvous_destroy(ra_rendezvous *rendezvous) {
    if (!rendezvous) return;
    rendezvous->destroy(rendezvous);
    free(rendezvous);
}
