#include "support/faults/faulty.h"

#include "base/status.h"
#include "support/rng.h"
#include "transport/thread.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct faulty {
    void *inner;
    fault f;
    int rank, groups;
    int dead;
    rng random;
    ra_message *messages; /* the group as it was really posted */
    int *original;        /* [posted]: which of the caller's messages each is */
    int posted;
    wire_count *count;
} faulty;

static void sleep_for(double seconds) {
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static void maybe_sleep(faulty *self) {
    if (self->f.kind == FAULT_DELAY) sleep_for(1e-3 * (double)rng_between(&self->random, 0, 3));
}

/* Swaps neighbours of different peers at random: the order within a pair stays. */
static void reorder(faulty *self) {
    for (int round = 0; round < 2 * self->posted; round++)
        for (int i = 0; i + 1 < self->posted; i++) {
            if (self->messages[i].peer == self->messages[i + 1].peer || rng_one_in(&self->random, 2)) continue;
            ra_message m = self->messages[i];
            self->messages[i] = self->messages[i + 1];
            self->messages[i + 1] = m;
            int o = self->original[i];
            self->original[i] = self->original[i + 1];
            self->original[i + 1] = o;
        }
}

static int first_send(const faulty *self) {
    for (int i = 0; i < self->posted; i++)
        if (self->messages[i].is_send) return i;
    return -1;
}

static void drop(faulty *self, int i) {
    memmove(&self->messages[i], &self->messages[i + 1], (size_t)(self->posted - i - 1) * sizeof *self->messages);
    memmove(&self->original[i], &self->original[i + 1], (size_t)(self->posted - i - 1) * sizeof *self->original);
    self->posted--;
}

static ra_status post(void *user, const ra_message *messages, int count, void *stream) {
    faulty *self = user;
    maybe_sleep(self);
    self->messages = realloc(self->messages, (size_t)(count + 1) * sizeof *self->messages);
    self->original = realloc(self->original, (size_t)(count + 1) * sizeof *self->original);
    memcpy(self->messages, messages, (size_t)count * sizeof *messages);
    for (int i = 0; i < count; i++) self->original[i] = i;
    self->posted = count;
    for (int i = 0; i < count && self->count; i++) {
        self->count->bytes += messages[i].is_send ? (int64_t)messages[i].bytes : 0;
        self->count->messages += messages[i].is_send != 0;
    }
    if (self->count) self->count->groups++;
    if (self->f.kind == FAULT_REORDER) reorder(self);
    int now = self->rank == self->f.rank && self->groups++ == self->f.group;
    int send = first_send(self);
    if (now && self->f.kind == FAULT_STALL) sleep_for(self->f.seconds);
    if (now && self->f.kind == FAULT_DROP && send >= 0) drop(self, send);
    if (now && self->f.kind == FAULT_LENGTH && send >= 0) self->messages[send].bytes--;
    if (now && self->f.kind == FAULT_ERROR) return ra_fail(RA_ERR_TRANSPORT, "the cable is on fire");
    if (now && self->f.kind == FAULT_KILL) self->dead = 1;
    if (self->dead) return ra_fail(RA_ERR_TRANSPORT, "killed");
    if (self->posted == 0) return RA_OK;
    return ra_thread_ops.post(self->inner, self->messages, self->posted, stream);
}

static ra_status poll(void *user, double seconds, int *done_out, int *culprit_out) {
    faulty *self = user;
    maybe_sleep(self);
    *done_out = 1;
    *culprit_out = -1;
    if (self->dead || self->posted == 0) return RA_OK;
    ra_status status = ra_thread_ops.poll(self->inner, seconds, done_out, culprit_out);
    if (*culprit_out >= 0) *culprit_out = self->original[*culprit_out];
    return status;
}

static void inquire(void *user, int peer, ra_sign *sign_out) {
    ra_thread_ops.inquire(((faulty *)user)->inner, peer, sign_out);
}

static int abandon(void *user, const char *reason) {
    faulty *self = user;
    return self->dead ? 1 : ra_thread_ops.abandon(self->inner, reason); /* the dead do not talk */
}

static void destroy(void *user) {
    faulty *self = user;
    ra_thread_ops.destroy(self->inner);
    free(self->messages);
    free(self->original);
    free(self);
}

ra_status fault_create(int ranks, fault f, wire_count *counts, ra_comm **comms_out) {
    ra_transport_ops ops = {.struct_size = sizeof ops,
                            .name = "faulty",
                            .post = post,
                            .poll = poll,
                            .abandon = abandon,
                            .destroy = destroy,
                            .inquire = f.without_signs ? NULL : inquire};
    void **inner = calloc((size_t)ranks, sizeof *inner);
    if (!inner) return ra_fail(RA_ERR_MEMORY, "no memory for a test");
    ra_status status = ra_thread_create(ranks, inner);
    for (int r = 0; r < ranks && status == RA_OK; r++) {
        faulty *self = calloc(1, sizeof *self);
        *self = (faulty){.inner = inner[r],
                         .f = f,
                         .rank = r,
                         .random = {f.seed + (uint64_t)r * 77},
                         .count = counts ? &counts[r] : NULL};
        status = ra_comm_create_custom(&ops, self, r, ranks, &comms_out[r]);
    }
    free(inner);
    return status;
}
